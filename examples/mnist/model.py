"""A small network for the digits, its gradients and its optimiser.

    hidden = relu(pixels W1 + b1)      W1: 64 x H, b1: H
    logits = hidden W2 + b2            W2: H x 10, b2: 10
    loss   = -log softmax(logits)[label]

Formulas: Goodfellow, Bengio, Courville, "Deep Learning" (2016), chapters 6 and 8.

The same seed gives the same bits, whatever the machine and the version of
Python: only + - * / and square roots are used for what ends in the weights,
always in the same order. That is why there is no math.exp here (C libraries
differ in the last bit) and no sum() (Python 3.12 changed how it rounds).
"""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from data import CLASSES, PIXELS, Sample

Row = list[float]


def exp(x: float) -> float:
    """e**x for x <= 0, within 2 units of the last place.

    x = k ln 2 + r with |r| <= ln 2 / 2, then the Taylor series of e**r
    (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980).
    """
    if x != x:
        return x  # NaN
    if x < -700.0:
        return 0.0
    k = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * 0.693145751953125) - k * 1.4286068203094173e-06
    e = 1.0
    for n in (13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0):
        e = 1.0 + r / n * e
    return math.ldexp(e, k)


class Network:
    """The weights. `rows` holds all of them as a flat list of rows:

    64 rows of W1 (one for each pixel, H long), b1 (H long),
    H rows of W2 (one for each hidden unit, 10 long), b2 (10 long).
    """

    def __init__(self, rows: list[Row]):
        self.rows = rows
        self.w1 = rows[:PIXELS]
        self.b1 = rows[PIXELS]
        self.w2 = rows[PIXELS + 1:-1]
        self.b2 = rows[-1]

    @classmethod
    def random(cls, hidden: int, rng: random.Random) -> "Network":
        """Uniform weights with variance 2 / inputs (He et al. 2015), biases 0."""

        def matrix(inputs: int, outputs: int) -> list[Row]:
            limit = math.sqrt(6.0 / inputs)
            return [[(2.0 * rng.random() - 1.0) * limit for _ in range(outputs)] for _ in range(inputs)]

        return cls(matrix(PIXELS, hidden) + [[0.0] * hidden] + matrix(hidden, CLASSES) + [[0.0] * CLASSES])

    def forward(self, sample: Sample) -> tuple[Row, Row]:
        """Returns (hidden: H values >= 0, logits: 10 values)."""
        hidden = self.b1
        for i, value in sample.pixels:
            hidden = [h + value * w for h, w in zip(hidden, self.w1[i])]
        hidden = [h if h > 0.0 or h != h else 0.0 for h in hidden]  # keeps NaN
        logits = self.b2
        for h, row in zip(hidden, self.w2):
            if h:
                logits = [z + h * w for z, w in zip(logits, row)]
        return hidden, logits


def softmax(logits: Row) -> tuple[Row, float]:
    """Returns (10 probabilities, log of the sum of e**logit)."""
    top = max(logits)
    powers = [exp(z - top) for z in logits]
    total = 0.0
    for p in powers:
        total += p
    return [p / total for p in powers], top + math.log(total)


class Batch(NamedTuple):
    """What one minibatch gave: mean loss (nats), hits (count), gradients shaped like Network.rows."""

    loss: float
    hits: int
    grads: list[Row]


def backward(net: Network, samples: Sequence[Sample]) -> Batch:
    """Returns loss and gradients, averaged over the samples (at least one)."""
    hidden_size = len(net.b1)
    g1 = [[0.0] * hidden_size for _ in net.w1]
    gb1 = [0.0] * hidden_size
    g2 = [[0.0] * CLASSES for _ in net.w2]
    gb2 = [0.0] * CLASSES
    scale = 1.0 / len(samples)
    loss, hits = 0.0, 0
    for sample in samples:
        hidden, logits = net.forward(sample)
        probs, log_total = softmax(logits)
        loss += log_total - logits[sample.label]
        hits += best_class(logits) == sample.label

        # d loss / d logits = probs - one-hot(label)
        d_logits = [p * scale for p in probs]
        d_logits[sample.label] -= scale
        gb2 = [g + d for g, d in zip(gb2, d_logits)]

        # Through W2 and the ReLU: units at 0 pass nothing on.
        d_hidden = [0.0] * hidden_size
        for j, h in enumerate(hidden):
            if h:
                g2[j] = [g + h * d for g, d in zip(g2[j], d_logits)]
                total = 0.0
                for w, d in zip(net.w2[j], d_logits):
                    total += w * d
                d_hidden[j] = total
        gb1 = [g + d for g, d in zip(gb1, d_hidden)]
        for i, value in sample.pixels:
            g1[i] = [g + value * d for g, d in zip(g1[i], d_hidden)]
    return Batch(loss * scale, hits, g1 + [gb1] + g2 + [gb2])


def best_class(logits: Row) -> int:
    """The digit with the highest logit; the smallest digit when two are equal."""
    return logits.index(max(logits))


def evaluate(net: Network, samples: Sequence[Sample]) -> tuple[float, float]:
    """Returns (mean loss in nats, share of hits 0..1) over the samples."""
    loss, hits = 0.0, 0
    for sample in samples:
        _, logits = net.forward(sample)
        loss += softmax(logits)[1] - logits[sample.label]
        hits += best_class(logits) == sample.label
    return loss / len(samples), hits / len(samples)


class Sgd:
    """Stochastic gradient descent with momentum (Sutskever et al. 2013):

    velocity = momentum * velocity - lr * gradient;  weight += velocity
    """

    def __init__(self, net: Network, momentum: float):
        self.net = net
        self.momentum = momentum
        self.velocity = [[0.0] * len(row) for row in net.rows]

    def step(self, grads: list[Row], lr: float) -> None:
        """Changes the weights in place. `grads` is shaped like Network.rows."""
        m = self.momentum
        for row, speed, grad in zip(self.net.rows, self.velocity, grads):
            speed[:] = [m * v - lr * g for v, g in zip(speed, grad)]
            row[:] = [w + v for w, v in zip(row, speed)]
