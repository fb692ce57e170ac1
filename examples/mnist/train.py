#!/usr/bin/env python3
"""Trains a small network on handwritten digits. Standard library only, Python 3.9 or newer."""

import argparse
import math
import os
import random
import sys

# Found also with `python3 -I`, which leaves the folder of the script out.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checkpoint
import data
from model import Network, Sgd, backward, evaluate
from progress import Bar
from tbwriter import open_writer

LOG_EVERY = 10  # steps between two points of train/loss


class Diverged(Exception):
    """The loss is infinite or not a number."""


def number(kind, low, below=math.inf):
    """Returns a parser of numbers with low <= n < below, for argparse."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value < below:
            what = "whole number" if kind is int else "number"
            limit = "" if below == math.inf else f" and below {below}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {low}{limit}")
        return value

    return parse


def parse_args(argv):
    parser = argparse.ArgumentParser(
        description="Train a small network on handwritten digits.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=number(int, 1), default=20, metavar="N", help="passes over the training images")
    parser.add_argument("--lr", type=number(float, 1e-9), default=0.05, metavar="RATE",
                        help="learning rate of the first epoch; falls in a straight line to a tenth in the last")
    parser.add_argument("--momentum", type=number(float, 0, 1), default=0.9, metavar="M", help="momentum")
    parser.add_argument("--batch-size", type=number(int, 1), default=16, metavar="N", help="images in a step")
    parser.add_argument("--hidden", type=number(int, 1), default=32, metavar="N", help="hidden units")
    parser.add_argument("--seed", type=number(int, 0), default=0, metavar="N", help="of first weights and order")
    parser.add_argument("--out", default="runs/mnist", metavar="DIR", help="where checkpoints go")
    parser.add_argument("--save-every", type=number(int, 1), default=1, metavar="N",
                        help="epochs between two checkpoints; the last epoch is always saved")
    parser.add_argument("--logdir", default=argparse.SUPPRESS, metavar="DIR",
                        help="where TensorBoard events go (default: OUT/tb)")
    args = parser.parse_args(argv)
    if "logdir" not in args:
        args.logdir = os.path.join(args.out, "tb")
    return args


def lr_at(args, epoch):
    """Learning rate of an epoch (1..epochs): from args.lr in a straight line to args.lr / 10."""
    done = (epoch - 1) / max(1, args.epochs - 1)
    return args.lr * (1.0 - 0.9 * done)


def check_finite(loss, epoch, step):
    if not math.isfinite(loss):
        raise Diverged(f"the loss is {loss} in epoch {epoch}, step {step}; try a smaller --lr")


def train_epoch(args, epoch, step, net, optimiser, samples, writer):
    """One pass over the samples in the order given. `step` counts the steps before it.

    Returns (step after it, mean loss, accuracy 0..1); both measured on each
    batch just before the weights learn from it.
    """
    lr = lr_at(args, epoch)
    starts = range(0, len(samples), args.batch_size)
    bar = Bar(f"epoch {epoch}/{args.epochs}", len(starts), sys.stderr)
    loss, hits, seen = 0.0, 0, 0
    try:
        for start in starts:
            images = samples[start:start + args.batch_size]
            batch = backward(net, images)
            optimiser.step(batch.grads, lr)
            step += 1
            loss += batch.loss * len(images)
            hits += batch.hits
            seen += len(images)
            if step % LOG_EVERY == 0 or not math.isfinite(batch.loss):
                writer.add_scalar("train/loss", batch.loss, step)
                writer.flush()
            check_finite(batch.loss, epoch, step)
            bar.update(start // args.batch_size + 1, f"loss={loss / seen:.3f}")
    finally:
        bar.close()
    return step, loss / seen, hits / seen


def train(args):
    train_set, val_set = data.split(data.load())
    rng = random.Random(args.seed)
    net = Network.random(args.hidden, rng)
    optimiser = Sgd(net, args.momentum)
    # What shapes the weights, and no folder: the checkpoints are the same wherever they are written.
    config = {name: getattr(args, name) for name in ("seed", "epochs", "lr", "momentum", "batch_size", "hidden")}

    folder = os.path.join(args.out, "checkpoints")
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        print(f"note: {folder} holds files of an earlier run; the same names are replaced", file=sys.stderr)
    writer, writer_name = open_writer(args.logdir)
    print(f"{len(train_set)} training and {len(val_set)} validation images, "
          f"network {data.PIXELS}-{args.hidden}-{data.CLASSES}, seed {args.seed}")
    print(f"checkpoints in {folder}")
    print(f"TensorBoard events in {args.logdir}, written by {writer_name}", flush=True)

    step, accuracy = 0, 0.0
    best_accuracy, best_epoch = -1.0, 0
    digits = max(3, len(str(args.epochs)))  # names sort by epoch
    try:
        for epoch in range(1, args.epochs + 1):
            order = data.shuffled(train_set, rng)
            step, train_loss, train_accuracy = train_epoch(args, epoch, step, net, optimiser, order, writer)
            val_loss, accuracy = evaluate(net, val_set)
            check_finite(val_loss, epoch, step)
            metrics = {"train/loss": train_loss, "train/accuracy": train_accuracy,
                       "val/loss": val_loss, "val/accuracy": accuracy}

            for name in ("train/accuracy", "val/loss", "val/accuracy"):
                writer.add_scalar(name, metrics[name], step)
            writer.add_scalar("lr", lr_at(args, epoch), step)
            writer.flush()

            saved = checkpoint.encode(net, epoch, step, config, metrics)
            if epoch % args.save_every == 0 or epoch == args.epochs:
                checkpoint.write(os.path.join(folder, f"epoch-{epoch:0{digits}d}.json"), saved)
            if accuracy > best_accuracy:  # the first of equals stays
                best_accuracy, best_epoch = accuracy, epoch
                checkpoint.write(os.path.join(args.out, "best.json"), saved)
            print(f"epoch {epoch}/{args.epochs} train_loss={train_loss:.4f} train_accuracy={train_accuracy:.4f} "
                  f"val_loss={val_loss:.4f} val_accuracy={accuracy:.4f} lr={lr_at(args, epoch):.5f}", flush=True)
    finally:
        writer.close()
    print(f"final val_accuracy={accuracy:.4f} best={best_accuracy:.4f} at epoch {best_epoch}", flush=True)


def main(argv=None):
    """Returns the exit code: 0, 1 diverged, 2 cannot read or write, 130 interrupted."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="backslashreplace")  # a folder name can hold any byte
    args = parse_args(argv)
    try:
        train(args)
        return 0
    except KeyboardInterrupt:
        print(f"train.py: interrupted; the checkpoints so far are in {args.out}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # nobody reads the output any more
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        return 1
    except Diverged as err:
        print(f"train.py: {err}", file=sys.stderr)
        return 1
    except OSError as err:
        where = " " + str(err.filename) if err.filename else ""
        print(f"train.py: cannot write{where}: {err.strerror}", file=sys.stderr)
        return 2
    except data.DataError as err:
        print(f"train.py: {err}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
