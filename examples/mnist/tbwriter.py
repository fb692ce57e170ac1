"""Writes scalars for TensorBoard, with the standard library only.

Sources of the format: tensorflow/core/lib/io/record_writer.h (framing),
tensorflow/core/util/event.proto and framework/summary.proto (messages),
RFC 3720 appendix B.4 (CRC32C).
"""

import importlib
import os
import socket
import struct
import time


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli, reflected
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC32C of the bytes, 0..2**32-1."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """CRC32C rotated right by 15 bits, plus a constant, as TFRecord files hold it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """One record: length (uint64), CRC of the length, data, CRC of the data; little-endian."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative numbers as two's complement, 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # too large for 32 bits
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def version_event(wall_time: float) -> bytes:
    """Event{wall_time = 1, file_version = 3}: the first record of each file."""
    return b"\x09" + struct.pack("<d", wall_time) + _bytes_field(3, b"brain.Event:2")


def scalar_event(wall_time: float, step: int, tag: str, value: float) -> bytes:
    """Event{wall_time = 1 (unix seconds), step = 2, summary = 5 {value = 1 {tag = 1, simple_value = 2}}}."""
    one = _bytes_field(1, tag.encode()) + b"\x15" + _float32(value)
    summary = _bytes_field(5, _bytes_field(1, one))
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + summary


class EventFile:
    """A new event file in `logdir`, with the part of SummaryWriter's interface that train.py uses."""

    def __init__(self, logdir: str):
        os.makedirs(logdir, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}."
        number = 0
        while True:  # never write into a file that exists
            try:
                self._file = open(os.path.join(logdir, name + str(number)), "xb")
                break
            except FileExistsError:
                number += 1
        self._file.write(frame(version_event(now)))
        self._file.flush()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._file.write(frame(scalar_event(time.time(), step, tag, value)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def open_writer(logdir: str):
    """Returns (writer, its name): torch's or tensorboardX's SummaryWriter if it can be imported, else EventFile."""
    for module in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            writer = importlib.import_module(module).SummaryWriter
        except Exception:  # missing, or broken in one of many ways: neither should stop the training
            continue
        return writer(logdir), module
    return EventFile(logdir), "tbwriter.py"
