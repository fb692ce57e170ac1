"""A training that writes by tensorboardX, a SummaryWriter as people use it.

usage: tblive.py SECONDS LOGDIR [SEED] [SUFFIX]

Scalars of several names, a step axis of its own for the validation, pictures, histograms, texts, add_scalars (a folder for each), values
that are no number. The writer flushes when it likes to. tensorboardX names a file by its second: SUFFIX keeps two apart.
"""
import math
import random
import sys
import time

import numpy
from tensorboardX import SummaryWriter

seconds, logdir = float(sys.argv[1]), sys.argv[2]
rnd = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
w = SummaryWriter(logdir, flush_secs=1, max_queue=7, filename_suffix=sys.argv[4] if len(sys.argv) > 4 else "")
start, step = time.monotonic(), 0
while time.monotonic() < start + seconds:
    step += 1
    w.add_scalar("train/loss", 2 * math.exp(-step / 300) + rnd.gauss(0, 0.1), step)
    w.add_scalar("lr [group 0]", 1e-3 * (1 + math.cos(step / 100)), step)
    w.add_scalar("räte/步", rnd.random() * 10 ** rnd.randint(-30, 30), step)
    if step % 7 == 0:
        w.add_scalars("both", {"a": rnd.random(), "b": -rnd.random()}, step)
    if step % 10 == 0:
        w.add_scalar("validation loss", rnd.random(), step // 10)
        w.add_histogram("weights", numpy.array([rnd.random() for _ in range(1000)]), step)
        w.add_image("picture", numpy.full((3, 64, 64), step % 256, dtype=numpy.uint8), step)
        w.add_text("note", "step %d" % step, step)
    if step % 50 == 0:
        w.add_scalar("odd", rnd.choice([math.nan, math.inf, -math.inf, 1.0]), step)
        w.flush()
    time.sleep(rnd.random() * 0.02)
w.close()
