#!/usr/bin/env python3
"""What TensorBoard itself reads from a folder, as JSON: {folder: {tag: [[step, wall time, value], ...]}}; folder is relative, "" = itself.

usage: tbread.py DIR

Read by TensorBoard's EventAccumulator with all points kept (size_guidance 0) and nothing purged. Needs the package tensorboard. Values that
JSON has no number for are "NaN", "Infinity", "-Infinity".
"""
import json
import logging
import math
import os
import sys

from tensorboard.backend.event_processing import event_accumulator as ea
from tensorboard.util import tensor_util

logging.getLogger("tensorboard").setLevel(logging.ERROR)


def value(v):
    if math.isnan(v):
        return "NaN"
    if math.isinf(v):
        return "Infinity" if v > 0 else "-Infinity"
    return v


def main():
    root = sys.argv[1]
    out = {}
    for folder, _, files in os.walk(root):
        if not any("tfevents" in f for f in files):
            continue
        acc = ea.EventAccumulator(folder, size_guidance={ea.SCALARS: 0, ea.TENSORS: 0}, purge_orphaned_data=False)
        acc.Reload()
        tags = {t: [[e.step, e.wall_time, value(e.value)] for e in acc.Scalars(t)] for t in acc.Tags()["scalars"]}
        for t in acc.Tags()["tensors"]:
            if t in acc.summary_metadata and acc.SummaryMetadata(t).plugin_data.plugin_name == "scalars":
                tags[t] = [[e.step, e.wall_time, value(float(tensor_util.make_ndarray(e.tensor_proto)))] for e in acc.Tensors(t)]
        rel = os.path.relpath(folder, root)
        out["" if rel == "." else rel] = tags
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
