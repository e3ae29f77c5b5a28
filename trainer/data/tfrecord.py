"""Writes TFRecord files without TensorFlow: framing with masked crc32c, and one fixed tf.train.Example.

Sources: the TFRecord format (length, crc of length, payload, crc of payload) and the protocol-buffer encoding of
`tf.train.Example`. A test compares every byte with TensorFlow's own writer.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import google_crc32c

from trainer.data.manifest import Shard

Examples = Iterable["tuple[bytes | Sequence[bytes], int]"]  # (image or frames, label)

_LENGTH_DELIMITED = 2
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_BLOCK_BYTES = 2**20
_NO_TURNS = nullcontext()
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


_IMAGE_KEY = _field(1, b"image")


@cache
def label_entry(label: int) -> bytes:
    """Return the map entry {label: int64_list [label]}; there are as many as classes."""
    return _field(1, _field(1, b"label") + _field(2, _field(3, _field(1, _varint(label)))))


def _example_parts(image: bytes | Sequence[bytes], label: int) -> list[bytes]:
    """Return a serialised tf.train.Example {image: bytes_list [image or frames], label: int64_list [label >= 0]}.

    In pieces, with entries in key order, as TensorFlow serialises a map.

    Messages are nested by prefixing heads, so that the image, which is nearly all of it, is not copied.
    """
    values: list[bytes] = []
    for one in (image,) if isinstance(image, bytes) else image:
        values += (b"\x0a" + _varint(len(one)), one)
    size_bytes = sum(map(len, values))
    head = b"\x0a" + _varint(size_bytes)  # feature: bytes_list is field 1
    head = b"\x12" + _varint(size_bytes + len(head)) + head  # entry: value is field 2
    head = _IMAGE_KEY + head
    head = b"\x0a" + _varint(size_bytes + len(head)) + head  # features: entries are field 1
    tail = label_entry(label)
    head = b"\x0a" + _varint(size_bytes + len(head) + len(tail)) + head  # example: features are field 1
    return [head, *values, tail]


def masked(crc: int) -> int:
    """Return a crc32c as a TFRecord carries it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: Sequence[bytes]) -> list[bytes]:
    """Return one TFRecord in pieces: little-endian uint64 length, its masked crc, the payload, its masked crc."""
    length = _LENGTH.pack(sum(map(len, payload)))
    crc = 0
    for piece in payload:
        crc = google_crc32c.extend(crc, piece)
    return [length, _CRC.pack(masked(google_crc32c.value(length))), *payload, _CRC.pack(masked(crc))]


def write_shard(path: Path, examples: Examples, turn: AbstractContextManager[object] = _NO_TURNS) -> Shard | None:
    """Write `examples` to `path` and return what was written, with its checksums; None, and no file, without any.

    `turn` is held while examples are made, and let go while they are hashed and written. The file appears under its
    name only when it is whole. Raises OSError.
    """
    sha256, crc32c = hashlib.sha256(), 0
    samples = written_bytes = 0
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb", buffering=0) as file:
            for block, block_samples in _blocks(examples, turn):
                sha256.update(block)
                crc32c = google_crc32c.extend(crc32c, block)
                rest = memoryview(block)
                while rest:
                    rest = rest[file.write(rest) :]
                written_bytes += len(block)
                samples += block_samples
        if not samples:
            return None
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Shard(
        name=path.name,
        samples=samples,
        bytes=written_bytes,
        sha256=sha256.hexdigest(),
        crc32c=base64.b64encode(struct.pack(">I", crc32c)).decode(),
    )


def _blocks(examples: Examples, turn: AbstractContextManager[object]) -> Iterator[tuple[bytes, int]]:
    """Yield records of about a megabyte, and how many: hashing and writing that much lets other threads run."""
    left, more = iter(examples), True
    while more:
        pieces: list[bytes] = []
        size_bytes = samples = 0
        with turn:
            more = False
            for image, label in left:
                record = frame(_example_parts(image, label))
                pieces += record
                size_bytes += sum(map(len, record))
                samples += 1
                if more := size_bytes >= _BLOCK_BYTES:
                    break
            block = b"".join(pieces)
        yield block, samples
