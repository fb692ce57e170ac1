"""Tests of the example: `python3 -m unittest` in this folder, about 15 seconds."""

import contextlib
import glob
import hashlib
import io
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import data
import model
import tbwriter
import train

# epoch-001.json of `train.py --epochs 1`: the same on every machine and Python.
FIRST_EPOCH_SHA256 = "e5e55a3948bb61f6c4cb883721ccba24f78ed44616407978e64274bb0b2d4216"


def start(script, *args, cwd=None, env=None):
    """Starts a script of this folder as a user would, isolated, with Ctrl-C at its default."""
    return subprocess.Popen(
        [sys.executable, "-I", "-B", os.path.join(HERE, script), *args], cwd=cwd, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def run(script, *args, **options):
    """Returns (exit code, stdout, stderr)."""
    with start(script, *args, **options) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def read(path):
    with open(path, "rb") as file:
        return file.read()


def slow_crc32c(content):
    """CRC32C bit by bit, not by the writer's table."""
    crc = 0xFFFFFFFF
    for byte in content:
        for bit in range(8):
            low = (crc ^ (byte >> bit)) & 1
            crc = (crc >> 1) ^ (0x82F63B78 * low)
    return crc ^ 0xFFFFFFFF


def unmask(crc):
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def records(content):
    """Yields the payload of each TFRecord; AssertionError when a CRC or the end is wrong."""
    while content:
        length, length_crc = struct.unpack("<QI", content[:12])
        payload, content = content[12:12 + length], content[12 + length:]
        (payload_crc,) = struct.unpack("<I", content[:4])
        assert unmask(length_crc) == slow_crc32c(struct.pack("<Q", length)), "CRC of the length"
        assert len(payload) == length and unmask(payload_crc) == slow_crc32c(payload), "CRC of the data"
        yield payload
        content = content[4:]


def fields(message):
    """Returns {field number: [values]} of a protobuf message."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value, at = message[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def scalars(path):
    """Returns {tag: [(step, value)]} of an event file and checks its first record."""
    events = [fields(payload) for payload in records(read(path))]
    assert events[0][3] == [b"brain.Event:2"], events[0]
    series = {}
    for event in events[1:]:
        for summary in event.get(5, []):
            for value in fields(summary)[1]:
                value = fields(value)
                step = event.get(2, [0])[0]
                series.setdefault(value[1][0].decode(), []).append((step, struct.unpack("<f", value[2][0])[0]))
    return series


class DataTest(unittest.TestCase):
    def test_file_is_the_one_described(self):
        sha256 = hashlib.sha256(read(data.DATA_FILE)).hexdigest()
        with open(os.path.join(HERE, "DATA.md"), encoding="utf-8") as file:
            self.assertIn(sha256, file.read())

    def test_split(self):
        samples = data.load()
        train_set, val_set = data.split(samples)
        self.assertEqual((len(train_set), len(val_set)), (1437, 360))
        self.assertEqual(sorted(s.row for s in train_set + val_set), list(range(1797)))
        self.assertFalse({s.pixels for s in train_set} & {s.pixels for s in val_set}, "the same image in both")
        for part in (train_set, val_set):
            self.assertEqual({s.label for s in part}, set(range(10)))
        self.assertEqual(data.split(samples), (train_set, val_set))

    def test_weights_do_not_depend_on_validation_labels(self):
        samples = data.load()
        val_rows = {s.row for s in data.split(samples)[1]}
        changed = [s._replace(label=0) if s.row in val_rows else s for s in samples]
        weights = []
        for version in (samples, changed):
            with tempfile.TemporaryDirectory() as out, mock.patch.object(data, "load", return_value=version), \
                    contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                train.train(train.parse_args(["--epochs", "1", "--hidden", "4", "--out", out]))
                weights.append(json.loads(read(os.path.join(out, "best.json")))["weights"])
        self.assertEqual(weights[0], weights[1])

    def test_damaged_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "digits.csv.gz")
            for content in (None, b"", b"no gzip", read(data.DATA_FILE)[:30000]):
                if content is not None:
                    with open(path, "wb") as file:
                        file.write(content)
                with self.assertRaises(data.DataError):
                    data.load(path)


class ModelTest(unittest.TestCase):
    def test_exp(self):
        for i in range(7000):
            x = -i / 10.0
            self.assertAlmostEqual(model.exp(x) / math.exp(x), 1.0, delta=5e-16)
        self.assertEqual((model.exp(0.0), model.exp(-1000.0), model.exp(-math.inf)), (1.0, 0.0, 0.0))
        self.assertTrue(math.isnan(model.exp(math.nan)))

    def test_gradients_against_differences(self):
        net = model.Network.random(6, random.Random(1))
        batch = data.load()[:5]
        grads = model.backward(net, batch).grads
        self.assertEqual([len(g) for g in grads], [len(r) for r in net.rows])
        h, checked = 1e-5, 0
        for row, grad in zip(net.rows, grads):
            for i, old in enumerate(row):
                row[i] = old + h
                up = model.evaluate(net, batch)[0]
                row[i] = old - h
                down = model.evaluate(net, batch)[0]
                row[i] = old
                self.assertAlmostEqual(grad[i], (up - down) / (2 * h), delta=1e-7)
                checked += grad[i] != 0.0
        self.assertGreater(checked, 200)

    def test_momentum(self):
        net = model.Network.random(1, random.Random(1))
        net.b1[0] = 1.0
        grads = [[0.0] * len(row) for row in net.rows]
        grads[data.PIXELS][0] = 2.0
        sgd = model.Sgd(net, 0.5)
        sgd.step(grads, 0.1)
        self.assertAlmostEqual(net.b1[0], 1.0 - 0.2)
        sgd.step(grads, 0.1)
        self.assertAlmostEqual(net.b1[0], 0.8 - 0.1 - 0.2)


class EventFileTest(unittest.TestCase):
    def test_crc_vectors(self):
        # RFC 3720 B.4, and the usual check value.
        self.assertEqual(tbwriter.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(tbwriter.crc32c(bytes(32)), 0x8A9136AA)
        self.assertEqual(tbwriter.crc32c(bytes(range(32))), 0x46DD794E)

    def test_values(self):
        points = [(0, 0.5), (127, -1.25), (128, 3.0), (2 ** 40, 1e-3), (5, math.inf), (6, 1e39), (7, -1e39)]
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):  # the second file of the same second gets another name
                writer = tbwriter.EventFile(folder)
                for step, value in points:
                    writer.add_scalar("a/ä", value, step)
                writer.add_scalar("nan", math.nan, -1)
                writer.flush()
                paths = glob.glob(os.path.join(folder, "*"))
                size = sum(os.path.getsize(path) for path in paths)
                writer.close()
                self.assertEqual(size, sum(os.path.getsize(path) for path in paths), "flush left something behind")
            self.assertEqual(len(paths), 2)
            for path in paths:
                self.assertRegex(os.path.basename(path), r"^events\.out\.tfevents\.\d{10}\..+\.\d+\.\d$")
                series = scalars(path)
                want = [(s, struct.unpack("<f", struct.pack("<f", v))[0]) for s, v in points[:5]]
                self.assertEqual(series["a/ä"], want + [(6, math.inf), (7, -math.inf)])
                step, value = series["nan"][0]
                self.assertEqual(step, 2 ** 64 - 1)
                self.assertTrue(math.isnan(value))

    def test_broken_packages_do_not_matter(self):
        for error in (ImportError, OSError("libcudart.so not found"), AttributeError):
            with tempfile.TemporaryDirectory() as folder, \
                    mock.patch.object(tbwriter.importlib, "import_module", side_effect=error):
                writer, name = tbwriter.open_writer(folder)
                writer.close()
                self.assertEqual((type(writer), name), (tbwriter.EventFile, "tbwriter.py"))

    def test_parser_sees_damage(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = tbwriter.EventFile(folder)
            writer.add_scalar("x", 1.0, 1)
            writer.close()
            content = read(glob.glob(os.path.join(folder, "*"))[0])
        for at in range(len(content)):
            broken = content[:at] + bytes([content[at] ^ 1]) + content[at + 1:]
            with self.assertRaises((AssertionError, struct.error)):
                list(records(broken))


class TrainingTest(unittest.TestCase):
    """One training with default arguments, looked at from all sides."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = os.path.join(cls.folder.name, "out with spaces é")
        cls.code, cls.stdout, cls.stderr = run("train.py", "--out", cls.out)

    def test_output(self):
        self.assertEqual(self.code, 0, self.stderr)
        lines = self.stdout.splitlines()
        epochs = [line for line in lines if line.startswith("epoch ")]
        self.assertEqual(len(epochs), 20)
        self.assertRegex(epochs[2], r"^epoch 3/20 train_loss=\S+ train_accuracy=\S+ val_loss=\S+ val_accuracy=0\.\d{4} lr=0\.\d+$")
        final = re.match(r"^final val_accuracy=(\d\.\d{4}) best=(\d\.\d{4}) at epoch (\d+)$", lines[-1])
        self.assertIsNotNone(final, lines[-1])
        self.assertGreaterEqual(float(final[1]), 0.93)
        accuracies = [re.search(r" val_accuracy=(\S+)", line)[1] for line in epochs]
        best = max(accuracies, key=float)
        self.assertEqual(final.groups(), (accuracies[-1], best, str(accuracies.index(best) + 1)))

    def test_bar(self):
        bars = [line for line in re.split(r"[\r\n]+", self.stderr) if line]
        for bar in bars:
            self.assertRegex(bar, r"^epoch \d+/20: +\d+%\|#* *\| \d+/90 \[\d\d:\d\d<\d\d:\d\d, [\d.]+it/s, loss=\d+\.\d{3}\] *$")
        self.assertGreaterEqual(len(bars), 20)
        self.assertNotIn("\r", self.stdout)

    def test_checkpoints(self):
        folder = os.path.join(self.out, "checkpoints")
        self.assertEqual(sorted(os.listdir(folder)), [f"epoch-{n:03d}.json" for n in range(1, 21)])
        self.assertEqual(sorted(os.listdir(self.out)), ["best.json", "checkpoints", "tb"])
        for name in os.listdir(folder):
            self.assertLess(os.path.getsize(os.path.join(folder, name)), 100000)
        best = int(self.stdout.split()[-1])
        self.assertEqual(read(os.path.join(self.out, "best.json")), read(os.path.join(folder, f"epoch-{best:03d}.json")))

    def test_eval_gives_what_training_printed(self):
        best_accuracy, best_epoch = re.search(r"best=(\S+) at epoch (\d+)", self.stdout).groups()
        for path, epoch in (("best.json", int(best_epoch)), ("checkpoints/epoch-020.json", 20)):
            path = os.path.join(self.out, path)
            saved = json.loads(read(path))
            code, stdout, stderr = run("eval.py", path)
            self.assertEqual((code, stderr), (0, ""))
            self.assertEqual(stdout.count("\n"), 1)
            self.assertEqual(json.loads(stdout), {
                "val/accuracy": saved["metrics"]["val/accuracy"], "val/loss": saved["metrics"]["val/loss"],
                "samples": 360, "step": 90 * epoch, "epoch": epoch})
            if path.endswith("best.json"):
                self.assertEqual(format(json.loads(stdout)["val/accuracy"], ".4f"), best_accuracy)
        code, stdout, _ = run("eval.py", "--split", "train", path)
        result = json.loads(stdout)
        self.assertEqual((code, sorted(result)), (0, ["epoch", "samples", "step", "train/accuracy", "train/loss"]))
        self.assertEqual(result["samples"], 1437)

    def test_events(self):
        (path,) = glob.glob(os.path.join(glob.escape(self.out), "tb", "events.out.tfevents.*"))
        series = scalars(path)
        self.assertEqual(sorted(series), ["lr", "train/accuracy", "train/loss", "val/accuracy", "val/loss"])
        self.assertEqual([step for step, _ in series["train/loss"]], list(range(10, 1801, 10)))
        for epoch in range(1, 21):
            saved = json.loads(read(os.path.join(self.out, "checkpoints", f"epoch-{epoch:03d}.json")))
            for tag in ("train/accuracy", "val/loss", "val/accuracy"):
                step, value = series[tag][epoch - 1]
                self.assertEqual(step, saved["step"])
                self.assertAlmostEqual(value, saved["metrics"][tag], places=5)
        self.assertAlmostEqual(series["lr"][0][1], 0.05, places=6)
        self.assertAlmostEqual(series["lr"][-1][1], 0.005, places=6)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def assert_one_line(self, result, code):
        self.assertEqual((result[0], result[1]), (code, ""), result)
        self.assertEqual(result[2].count("\n"), 1, result[2])
        self.assertNotIn("Traceback", result[2])

    def test_same_bytes_everywhere(self):
        for number in (1, 2):
            cwd = self.path(f"cwd{number}")
            os.mkdir(cwd)
            env = dict(os.environ, PYTHONHASHSEED=str(number), TZ=f"UTC-{number}", LC_ALL="C")
            script = os.path.join(HERE, "train.py")
            subprocess.run([sys.executable, script, "--epochs", "1", "--logdir", self.path(f"tb{number}")],
                           cwd=cwd, env=env, check=True, capture_output=True, timeout=300)
            saved = read(os.path.join(cwd, "runs", "mnist", "checkpoints", "epoch-001.json"))
            self.assertEqual(hashlib.sha256(saved).hexdigest(), FIRST_EPOCH_SHA256)
        self.assertEqual(run("train.py", "--epochs", "1", "--seed", "1", "--out", self.path("other"))[0], 0)
        self.assertNotEqual(read(self.path("other", "best.json")), saved)

    def test_save_every(self):
        code, _, stderr = run("train.py", "--epochs", "5", "--hidden", "2", "--save-every", "2", "--out", self.folder)
        self.assertEqual(code, 0, stderr)
        self.assertEqual(sorted(os.listdir(self.path("checkpoints"))),
                         ["epoch-002.json", "epoch-004.json", "epoch-005.json"])

    def test_eval_errors(self):
        good = self.path("good", "best.json")
        self.assertEqual(run("train.py", "--epochs", "1", "--hidden", "2", "--out", self.path("good"))[0], 0)
        content = json.loads(read(good))
        cases = {"empty": b"", "cut.json": read(good)[:-100], "list": b"[]", "text": "é".encode(), "other": b'{"a": 1}'}
        for name, change in (("nan", {"b2": [math.nan] * 10}), ("short", {"b2": [0.0] * 9}),
                             ("words", {"b1": ["x", "y"]}), ("number", {"w1": 3})):
            cases[name] = json.dumps(dict(content, weights=dict(content["weights"], **change))).encode()
        cases["no-epoch"] = json.dumps({k: v for k, v in content.items() if k != "epoch"}).encode()
        for name, damaged in cases.items():
            with open(self.path(name), "wb") as file:
                file.write(damaged)
            with self.subTest(name):
                self.assert_one_line(run("eval.py", self.path(name)), 2)
        for path in (self.path("missing"), self.folder):
            self.assert_one_line(run("eval.py", path), 2)
        self.assertEqual(run("eval.py", good)[0], 0)

    def test_train_errors(self):
        with open(self.path("file"), "w"):
            pass
        self.assert_one_line(run("train.py", "--out", self.path("file", "out")), 2)
        for option in ("--epochs=0", "--lr=nan", "--lr=0", "--lr=inf", "--seed=-1", "--batch-size=x", "--momentum=1"):
            code, stdout, stderr = run("train.py", option, "--out", self.path("unused"))
            self.assertEqual((code, stdout), (2, ""), option)
            self.assertNotIn("Traceback", stderr)
        self.assertFalse(os.path.exists(self.path("unused")))

    def test_diverged(self):
        code, _, stderr = run("train.py", "--lr", "1e200", "--out", self.folder)
        self.assertEqual(code, 1)
        self.assertRegex(stderr.splitlines()[-1], r"^train\.py: the loss is (nan|inf) in epoch 1, step \d+; try a smaller --lr$")
        self.assertNotIn("Traceback", stderr)
        (path,) = glob.glob(self.path("tb", "*"))
        self.assertFalse(math.isfinite(scalars(path)["train/loss"][-1][1]))

    def test_signals(self):
        for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
            out = self.path(sent.name)
            with start("train.py", "--epochs", "1000", "--out", out) as process:
                for line in process.stdout:
                    if line.startswith("epoch 1/1000 "):
                        break
                process.send_signal(sent)
                _, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code)
            self.assertNotIn("Traceback", stderr)
            self.assertEqual(run("eval.py", os.path.join(out, "checkpoints", "epoch-0001.json"))[0], 0)


if __name__ == "__main__":
    unittest.main()
