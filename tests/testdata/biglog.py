"""Writes whole log lines as fast as it can. usage: biglog.py BYTES; prints nothing else, tells the number of lines in ./count."""
import os
import sys

size = int(sys.argv[1])
line = 0
written = 0
fd = sys.stdout.fileno()
while written < size:
    block = b"".join(b"%09d the quick brown fox jumps over the lazy dog, loss 0.123456, lr 1.0e-04, 12.3 it/s\n" % (line + i) for i in range(4096))
    line += 4096
    view = memoryview(block)
    while view:
        n = os.write(fd, view)
        written += n
        view = view[n:]
with open("count", "w") as f:
    f.write(str(line))
