#!/usr/bin/env python3
"""A writer of TensorBoard event files in plain Python, for what real writers do seldom: both forms of a scalar, every number type,
images, session starts, broken records. Jobs of the tests import it; it needs nothing but the standard library.

usage: tbwrite.py --self-test    what it writes is what TensorBoard reads (needs the package tensorboard)

Framing: length as uint64 LE, masked CRC32C of these 8 bytes, data, masked CRC32C of the data (TensorFlow, "TFRecord"). Messages: event.proto,
summary.proto, tensor.proto of TensorFlow, encoded by hand.
"""
import os
import socket
import struct
import sys
import time


def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = _TABLE[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data):
    """One record."""
    head = struct.pack("<Q", len(data))
    return head + masked(head) + data + masked(data)


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field_number, n):
    """A varint field."""
    return varint(field_number << 3) + varint(n)


def event(body, step=None, wall=None):
    out = b"\x09" + struct.pack("<d", time.time() if wall is None else wall)
    if step is not None:  # a step that was left out reads as 0
        out += number(2, step)
    return out + body


def summary(*values):
    return field(5, b"".join(field(1, v) for v in values))


def metadata(plugin):
    return field(9, field(1, field(1, plugin.encode()))) if plugin else b""


def simple(tag, value, plugin=None):
    return field(1, tag.encode()) + metadata(plugin) + b"\x15" + struct.pack("<f", value)


def bf16(value):
    """The 16 upper bits of a float32."""
    return struct.pack("<f", value)[2:]


# name -> (dtype, how a value is put into the TensorProto)
FORMS = {
    "float_val": (1, lambda v: field(5, struct.pack("<f", v))),
    "double_val": (2, lambda v: field(6, struct.pack("<d", v))),
    "int_val": (3, lambda v: field(7, varint(v))),
    "int64_val": (9, lambda v: field(10, varint(v))),
    "bool_val": (10, lambda v: field(11, varint(v))),
    "half_val": (19, lambda v: field(13, varint(struct.unpack("<H", struct.pack("<e", v))[0]))),
    "content_f32": (1, lambda v: field(4, struct.pack("<f", v))),
    "content_f64": (2, lambda v: field(4, struct.pack("<d", v))),
    "content_i32": (3, lambda v: field(4, struct.pack("<i", v))),
    "content_i64": (9, lambda v: field(4, struct.pack("<q", v))),
    "content_u8": (4, lambda v: field(4, struct.pack("<B", v))),
    "content_bool": (10, lambda v: field(4, struct.pack("<?", v))),
    "content_f16": (19, lambda v: field(4, struct.pack("<e", v))),
    "content_bf16": (14, lambda v: field(4, bf16(v))),
}


def shape(*sizes):
    return field(2, b"".join(field(2, number(1, n)) for n in sizes))


def tensor(tag, form, value, plugin=None, sizes=()):
    """A tensor of one element; sizes () is rank 0."""
    dtype, put = FORMS[form]
    return field(1, tag.encode()) + metadata(plugin) + field(8, number(1, dtype) + shape(*sizes) + put(value))


def matrix(tag, rows, plugin=None):
    """A float tensor of rank 2."""
    flat = b"".join(struct.pack("<f", v) for row in rows for v in row)
    return field(1, tag.encode()) + metadata(plugin) + field(8, number(1, 1) + shape(len(rows), len(rows[0])) + field(4, flat))


def text(tag, words):
    return field(1, tag.encode()) + metadata("text") + field(8, number(1, 7) + shape(1) + field(8, words.encode()))


def image(tag, data):
    return field(1, tag.encode()) + metadata("images") + field(4, number(1, 8) + number(2, 8) + number(3, 3) + field(4, data))


def session_start():
    return field(7, number(1, 1))


class Writer:
    """One event file. Everything is written at once: nothing waits in a buffer."""

    def __init__(self, path, mode="xb"):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.file = open(path, mode, buffering=0)
        self.add(field(3, b"brain.Event:2"), wall=time.time())

    def raw(self, data):
        self.file.write(data)

    def add(self, body, step=None, wall=None):
        self.raw(frame(event(body, step, wall)))

    def scalar(self, tag, value, step=None, wall=None, plugin=None):
        self.add(summary(simple(tag, value, plugin)), step, wall)

    def tensor(self, tag, form, value, step=None, plugin=None, sizes=(), wall=None):
        self.add(summary(tensor(tag, form, value, plugin, sizes)), step, wall)

    def close(self):
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def name(suffix="", pid=None):
    """A file name as TensorFlow and torch make it; with a pid as torch and TensorFlow 2 do, without as tensorboardX does."""
    return "events.out.tfevents.%010d.%s%s%s" % (time.time(), socket.gethostname(), "" if pid is None else ".%d.0" % pid, suffix)


# a value for each form that it holds exactly
EXAMPLES = {
    "float_val": 0.10000000149011612, "double_val": 0.1, "int_val": -7, "int64_val": 123456789012, "bool_val": 1, "half_val": 0.333251953125,
    "content_f32": -0.10000000149011612, "content_f64": 1e-300, "content_i32": -2147483648, "content_i64": -123456789012, "content_u8": 200,
    "content_bool": 1, "content_f16": -65504.0, "content_bf16": 3.140625,
}


def self_test():
    import tempfile

    import numpy
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.util import tensor_util

    assert crc32c(b"123456789") == 0xE3069283
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, name())
        with Writer(path) as w:
            for form, value in EXAMPLES.items():
                for plugin in (None, "scalars"):
                    for sizes in ((), (1,)):
                        w.tensor(form, form, value, 5, plugin, sizes, wall=1.5)
            w.scalar("simple", 0.5, 7, wall=2.25)
            w.scalar("back", -0.25, -1, wall=3)
            w.scalar("none", 4)
            w.add(session_start(), 9)
            w.add(summary(matrix("matrix", [[1, 2], [3, 4]]), text("words", "hello"), image("picture", b"\x89PNG")), 10)
        events = list(LegacyEventFileLoader(path).Load())
        assert events[0].file_version == "brain.Event:2", events[0]
        n = 1
        for form, value in EXAMPLES.items():
            for plugin in ("", "scalars"):
                for sizes in ((), (1,)):
                    e, v = events[n], events[n].summary.value[0]
                    n += 1
                    assert (e.wall_time, e.step, v.tag, v.metadata.plugin_data.plugin_name) == (1.5, 5, form, plugin), e
                    assert tuple(d.size for d in v.tensor.tensor_shape.dim) == sizes
                    if form == "content_bf16":  # a type that numpy does not have
                        assert v.tensor.dtype == 14 and struct.unpack("<f", b"\0\0" + v.tensor.tensor_content)[0] == value
                        continue
                    got = tensor_util.make_ndarray(v.tensor)
                    assert got.shape == sizes and numpy.float64(got.reshape(())) == value, (form, got)
        assert [(e.step, e.summary.value[0].tag, e.summary.value[0].simple_value) for e in events[n:n + 3]] == [
            (7, "simple", 0.5), (-1, "back", -0.25), (0, "none", 4.0)]
        assert events[n + 3].session_log.status == 1 and events[n + 3].step == 9
        m, t, p = events[n + 4].summary.value
        assert tensor_util.make_ndarray(m.tensor).tolist() == [[1, 2], [3, 4]]
        assert t.tensor.string_val[0] == b"hello" and t.metadata.plugin_data.plugin_name == "text"
        assert p.image.encoded_image_string == b"\x89PNG" and len(events) == n + 5
    print("%d records written and read by TensorBoard" % (n + 5))


if __name__ == "__main__":
    if sys.argv[1:] != ["--self-test"]:
        sys.exit(__doc__)
    self_test()
