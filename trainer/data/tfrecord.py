"""How are TFRecord files written without TensorFlow? Framing with masked crc32c, and one fixed tf.train.Example.

Sources: the TFRecord format (length, crc of length, payload, crc of payload) and the protocol-buffer encoding of
`tf.train.Example`. A test holds every byte against TensorFlow's own writer.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable
from pathlib import Path

import google_crc32c

from trainer.data.manifest import Shard

_LENGTH_DELIMITED = 2


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


def encode_example(image: bytes, label: int) -> bytes:
    """Return a serialised tf.train.Example {image: bytes_list [image], label: int64_list [label]}; label >= 0."""
    bytes_feature = _field(1, _field(1, image))
    int64_feature = _field(3, _field(1, _varint(label)))
    entries = ((b"image", bytes_feature), (b"label", int64_feature))  # in key order, as TensorFlow serialises a map
    return _field(1, b"".join(_field(1, _field(1, key) + _field(2, feature)) for key, feature in entries))


def _masked_crc(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(payload: bytes) -> bytes:
    """Return one TFRecord: little-endian uint64 length, its masked crc, the payload, its masked crc."""
    length = struct.pack("<Q", len(payload))
    return b"".join((length, _masked_crc(length), payload, _masked_crc(payload)))


def write_shard(path: Path, examples: Iterable[tuple[bytes, int]]) -> Shard:
    """Write (image, label) pairs to `path` and return what was written, with its checksums. Raises OSError."""
    sha256, crc32c = hashlib.sha256(), 0
    samples = written_bytes = 0
    with path.open("wb") as file:
        for image, label in examples:
            record = frame(encode_example(image, label))
            file.write(record)
            sha256.update(record)
            crc32c = google_crc32c.extend(crc32c, record)
            samples += 1
            written_bytes += len(record)
    return Shard(
        name=path.name,
        samples=samples,
        bytes=written_bytes,
        sha256=sha256.hexdigest(),
        crc32c=base64.b64encode(struct.pack(">I", crc32c)).decode(),
    )
