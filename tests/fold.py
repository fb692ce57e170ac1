#!/usr/bin/env python3
"""The reference for what a log looks like on the server: bytes of log.txt in, one JSON line {"text", "continued"} an output line.

Written from the rules, not from the program, and in another way: it cuts the bytes into tokens and plays them on a small screen.

- A line ends at \\n. \\r puts the cursor to the start of its row; what is written next then replaces the row as a whole.
- ESC [ n A moves up n rows (1 when n is missing or 0), at most to the top of a window of 32 rows that grows upwards as needed. As long as
  the cursor is above the lowest row, \\n moves down a row instead of ending a line. Below the lowest row the whole window is given out;
  rows that were passed but never written are not lines.
- Other escape sequences are text like any other, but are not cut.
- When the rows hold 8,192 bytes together, they are given out before the next character, and the last one is marked continued. A
  character is not cut (at most 3 bytes more).
- Bytes that are not UTF-8 become U+FFFD as errors="replace" does it.
- The end of the file gives out what the window shows; a lowest row that is empty is no line.
"""
import json
import re
import sys

LINE = 8192
ROWS = 32
TOKEN = re.compile(rb"\x1b\[[\x20-\x3f]{0,30}[\x40-\x7e]|\x1b\[[\x20-\x3f]{0,30}|[^\x1b\r\n]+|[\s\S]")


class Screen:
    def __init__(self, give):
        self.rows = [bytearray()]  # None: passed by the cursor, never written
        self.at = 0
        self.fresh = False  # what is written next replaces the row
        self.give = give

    def out(self, continued):
        last = len(self.rows) - 1
        for i, row in enumerate(self.rows):
            if row is not None:
                self.give(row.decode("utf-8", errors="replace"), continued and i == self.at == last)
        self.rows, self.at, self.fresh = [bytearray()], 0, False

    def up(self, n):
        for _ in range(min(n, ROWS)):
            if self.at > 0:
                self.at -= 1
            elif len(self.rows) < ROWS:
                self.rows.insert(0, None)
        self.fresh = True

    def newline(self):
        if self.at + 1 < len(self.rows):
            self.at += 1
            self.fresh = True
        else:
            self.out(False)

    def room(self):
        return LINE - sum(len(r) for r in self.rows if r)

    def show(self, data):
        if self.fresh or self.rows[self.at] is None:
            self.rows[self.at] = bytearray()
            self.fresh = False
        if data[:1] == b"\x1b" and self.room() < len(data) and self.room() < LINE:
            self.out(True)
        i = 0
        while i < len(data):
            room = self.room()
            if room > 0:
                self.rows[self.at] += data[i : i + room]
                i += room
                continue
            k = i
            while k < len(data) and room - (k - i) > -3 and data[k] & 0xC0 == 0x80:
                k += 1
            self.rows[self.at] += data[i:k]
            i = k
            if i < len(data):
                self.out(True)


def fold(data, give):
    screen = Screen(give)
    for m in TOKEN.finditer(data):
        tok = m.group()
        up = re.fullmatch(rb"\x1b\[(\d*)A", tok)
        if tok == b"\n":
            screen.newline()
        elif tok == b"\r":
            screen.fresh = True
        elif up:
            screen.up(max(1, int(up.group(1) or 1)))
        else:
            screen.show(tok)
    if not screen.rows[-1]:
        screen.rows.pop()
    if any(screen.rows):
        screen.out(False)


def main():
    if len(sys.argv) < 2 or sys.argv[1] == "--self-test":
        return self_test()
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    write = sys.stdout.write
    fold(data, lambda text, cont: write(json.dumps({"text": text, "continued": cont}) + "\n"))
    return 0


def self_test():
    cases = [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\r\n", ["a", "b"]),
        (b"10%\r50%\r100%\nx", ["100%", "x"]),
        (b"longer\rab\n", ["ab"]),
        (b"one\ntwo\n\x1b[2AONE\nTWO\n", ["one", "two", "ONE", "TWO"]),
        (b"\n\x1b[A\rp 1\n\x1b[A\rp 2\n", ["", "p 2"]),
        (b"\n\x1b[A\rp 1\n\x1b[A\rp 2\nnext\nlast\n", ["", "p 2", "next", "last"]),
        (b"a\n\n\nb", ["a", "", "", "b"]),
        (b"\x1b[31mred\x1b[0m\n", ["\x1b[31mred\x1b[0m"]),
        (b"\xff\xfe ok \xc3\xa9\n", ["\ufffd\ufffd ok \u00e9"]),
        (b"x" * 8192 + b"y\n", ["x" * 8192 + "+", "y"]),
        (b"x" * 8191 + "\u20ac".encode() + b"y\n", ["x" * 8191 + "\u20ac+", "y"]),
        (b"x" * 8192 + b"\n", ["x" * 8192]),
        (b"", []),
    ]
    failed = 0
    for data, want in cases:
        got = []
        fold(data, lambda text, cont: got.append(text + ("+" if cont else "")))
        if got != want:
            failed += 1
            print("FAIL %.60r\n  got  %.80r\n  want %.80r" % (data, got, want))
    print("%d cases, %d failed" % (len(cases), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
