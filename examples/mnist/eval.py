#!/usr/bin/env python3
"""Evaluates a checkpoint of train.py and prints one JSON object of metrics."""

import argparse
import json
import os
import sys

# Found also with `python3 -I`, which leaves the folder of the script out.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checkpoint
import data
from model import evaluate


def main(argv=None):
    """Returns the exit code: 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="Evaluate a checkpoint of train.py.")
    parser.add_argument("checkpoint", metavar="CKPT", help="a file that train.py wrote")
    parser.add_argument("--split", choices=("val", "train"), default="val", help="which images (default: val)")
    args = parser.parse_args(argv)
    try:
        net, content = checkpoint.load(args.checkpoint)
        train_set, val_set = data.split(data.load())
    except (checkpoint.CheckpointError, data.DataError) as err:
        print(f"eval.py: {err}", file=sys.stderr)
        return 2
    samples = val_set if args.split == "val" else train_set
    loss, accuracy = evaluate(net, samples)
    print(json.dumps({
        args.split + "/accuracy": round(accuracy, 6),
        args.split + "/loss": round(loss, 6),
        "samples": len(samples),
        "step": content["step"],
        "epoch": content["epoch"],
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
