"""Reads the digits and splits them into training and validation samples.

The file is described in DATA.md: 1,797 images of 8x8 pixels, each pixel an
integer 0..16, and the digit 0..9 that was written.
"""

import gzip
import os
import random
from typing import NamedTuple

DATA_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits.csv.gz")
IMAGES = 1797
PIXELS = 64        # 8 rows x 8 columns, row by row
CLASSES = 10
MAX_PIXEL = 16     # pixel values are 0..16; the network sees value / 16, 0..1

SPLIT_SEED = 1998  # fixed, so that runs with different --seed can be compared
VAL_IMAGES = 360   # 20 % of the images; the other 1,437 are for training


class DataError(Exception):
    """The data file is missing or is not the one that DATA.md describes."""


class Sample(NamedTuple):
    """One image.

    row     line of the file, 0..1796
    label   the digit, 0..9
    pixels  (index 0..63, value / 16) of the pixels that are not 0. About half
            of all pixels are 0 and add nothing to a product, so they are left out.
    """

    row: int
    label: int
    pixels: tuple[tuple[int, float], ...]


def load(path: str = DATA_FILE) -> list[Sample]:
    """Returns all samples in the order of the file."""
    samples = []
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            for row, line in enumerate(lines):
                *values, label = [int(text) for text in line.split(",")]
                if len(values) != PIXELS or not 0 <= label < CLASSES:
                    raise ValueError(f"line {row + 1} is not 64 pixels and a digit")
                if min(values) < 0 or max(values) > MAX_PIXEL:
                    raise ValueError(f"line {row + 1} has a pixel outside 0..16")
                pixels = tuple((i, v / MAX_PIXEL) for i, v in enumerate(values) if v)
                samples.append(Sample(row, label, pixels))
        if len(samples) != IMAGES:
            raise ValueError(f"{len(samples)} images, not {IMAGES}")
    except (OSError, EOFError, ValueError) as err:
        raise DataError(f"cannot read the data file {path}: {err}") from err
    return samples


def shuffled(items: list, rng: random.Random) -> list:
    """Returns a shuffled copy (Fisher-Yates).

    Written out because Python promises the same numbers in every version only
    for rng.random(), not for rng.shuffle().
    """
    items = list(items)
    for i in range(len(items) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        items[i], items[j] = items[j], items[i]
    return items


def split(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Returns (1,437 training samples, 360 validation samples); no image is in both."""
    mixed = shuffled(samples, random.Random(SPLIT_SEED))
    return mixed[VAL_IMAGES:], mixed[:VAL_IMAGES]
