"""A progress bar on one line, redrawn with a carriage return."""

import time

WIDTH = 10         # characters of the bar
MIN_SECONDS = 0.1  # between two drawings


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


class Bar:
    """epoch 3/20:  45%|####      | 54/120 [00:01<00:01, 45.2it/s, loss=0.312]"""

    def __init__(self, title: str, total: int, stream):
        self.title, self.total, self.stream = title, total, stream
        self.start = time.monotonic()
        self.drawn = float("-inf")  # when it was drawn last
        self.length = 0             # characters on the line now

    def update(self, done: int, note: str) -> None:
        """Shows `done` of `total` steps and a note; draws at most ten times a second, and at the end."""
        now = time.monotonic()
        if self.stream is None or (done < self.total and now - self.drawn < MIN_SECONDS):
            return
        self.drawn = now
        seconds = max(now - self.start, 1e-6)
        percent = 100 * done // self.total
        hashes = "#" * (WIDTH * done // self.total)
        left = seconds / done * (self.total - done)
        text = (f"{self.title}: {percent:3d}%|{hashes:<{WIDTH}}| {done}/{self.total} "
                f"[{_clock(seconds)}<{_clock(left)}, {done / seconds:.1f}it/s, {note}]")
        self.stream.write("\r" + text.ljust(self.length))
        self.stream.flush()
        self.length = len(text)

    def close(self) -> None:
        """Ends the line, if there is one."""
        if self.length:
            self.stream.write("\n")
            self.stream.flush()
            self.length = 0
