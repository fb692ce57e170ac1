"""A pretended training: lines, bars that overwrite themselves, nested bars, bursts, colours. Same seed, same bytes. Ends with a code.

usage: soak.py SECONDS EXIT_CODE [SEED]
"""
import os
import random
import sys
import time

seconds, code = float(sys.argv[1]), int(sys.argv[2])
rnd = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
out = sys.stdout
steps = int(seconds * 20)
start = time.monotonic()
for step in range(steps):
    kind = rnd.random()
    if kind < 0.5:
        out.write("step %d loss %.4f\n" % (step, rnd.random()))
    elif kind < 0.7:
        for i in range(1, 9):
            out.write("\rbar %d: %3d%%|%s%s|" % (step, i * 100 // 8, "#" * i, " " * (8 - i)))
        out.write("\n")
    elif kind < 0.8:
        out.write("outer %d\ninner 0\n" % step)
        for i in range(1, 5):
            out.write("\x1b[2A\router %d.%d\n\rinner %d\n" % (step, i, i))
        out.write("nested done %d\n" % step)
    elif kind < 0.9:
        for i in range(rnd.randrange(200)):
            out.write("burst %d.%d %s\n" % (step, i, "x" * rnd.randrange(120)))
    elif kind < 0.95:
        out.write("\x1b[32mgreen %d\x1b[0m caf\u00e9 \u6f22\u5b57\n" % step)
    else:
        out.write("long %d %s\n" % (step, "y" * rnd.randrange(20000)))
    out.flush()
    rest = start + (step + 1) / 20 - time.monotonic()
    if rest > 0:
        time.sleep(rest)
out.write("last line, not ended, pid %d" % os.getpid())
out.flush()
sys.exit(code)
