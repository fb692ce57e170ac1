"""Checkpoints: one JSON file with the weights and the numbers of its epoch.

    {"format": "digits-mlp-1", "epoch": 3, "step": 270,
     "config": {"seed": 0, ...},
     "metrics": {"train/loss": ..., "train/accuracy": ..., "val/loss": ..., "val/accuracy": ...},
     "weights": {"w1": 64 x H, "b1": H, "w2": H x 10, "b2": 10}}

Nothing in it depends on the time, the folder or the machine.
"""

import json
import math
import os

from data import CLASSES, PIXELS
from model import Network

FORMAT = "digits-mlp-1"


class CheckpointError(Exception):
    """The file cannot be read or is not a checkpoint of this network."""


def encode(net: Network, epoch: int, step: int, config: dict, metrics: dict) -> bytes:
    """Returns the bytes of the file. Losses are rounded to 6 decimals: math.log may differ in the last bit."""
    content = {
        "format": FORMAT,
        "epoch": epoch,
        "step": step,
        "config": config,
        "metrics": {name: round(value, 6) for name, value in metrics.items()},
        "weights": {"w1": net.w1, "b1": net.b1, "w2": net.w2, "b2": net.b2},
    }
    return json.dumps(content, allow_nan=False).encode("ascii") + b"\n"


def write(path: str, data: bytes) -> None:
    """Replaces the file at once: a reader sees the old file or the whole new one."""
    temp = path + ".tmp"
    try:
        with open(temp, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        try:
            os.unlink(temp)
        except OSError:
            pass
        raise


def load(path: str):
    """Returns (network, the content of the file as a dict) or raises CheckpointError."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read().decode("ascii"))
    except OSError as err:
        raise CheckpointError(f"cannot read {path}: {err.strerror}") from err
    except (ValueError, RecursionError) as err:
        raise CheckpointError(f"{path} is not a checkpoint: not JSON, or cut off") from err
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f'{path} is not a checkpoint: no "format": "{FORMAT}"')
    try:
        int(content["epoch"]), int(content["step"])
        weights = content["weights"]
        hidden = len(weights["b1"])
        rows = (_matrix(weights["w1"], PIXELS, hidden) + _matrix([weights["b1"]], 1, hidden)
                + _matrix(weights["w2"], hidden, CLASSES) + _matrix([weights["b2"]], 1, CLASSES))
    except (KeyError, TypeError, ValueError, OverflowError) as err:
        raise CheckpointError(f"{path} is not a checkpoint: damaged ({type(err).__name__}: {err})") from err
    return Network(rows), content


def _matrix(values, height: int, width: int):
    """Returns the rows as floats; ValueError unless they are height x width finite numbers."""
    rows = [[float(v) for v in row] for row in values]
    if len(rows) != height or any(len(row) != width for row in rows):
        raise ValueError(f"a weight is not {height} x {width}")
    if not all(math.isfinite(v) for row in rows for v in row):
        raise ValueError("a weight is not finite")
    return rows
