"""How are a shard's samples found and checked without TensorFlow? By an index of its TFRecords, made once."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from trainer.data.files import Buffer
from trainer.data.manifest import Shard
from trainer.data.tfrecord import label_entry
from trainer.errors import DataError

_FIX = "prepare or upload the data set again"
_HEADER = struct.Struct("<QI")  # length of the payload, masked crc of the length
_CRC = struct.Struct("<I")
_VARINT, _LENGTH_DELIMITED = 0, 2
_IMAGE_ENTRY = b"\x0a\x05image\x12"
_LONGEST_HEAD = 24  # two tags and lengths come before it
_LONGEST_HEADS = 64  # and three more lengths after it


class _Malformed(Exception):
    """Bytes that are no tf.train.Example of ours."""


@dataclass(frozen=True)
class ShardIndex:
    """Where in a shard's bytes each sample lies; the same for as long as the shard has the same sha256.

    Arrays, not lists of tuples: Python's garbage collector counts those, and so many new ones make it walk over all
    that the process holds, which is a pause of 0.2 s once TensorFlow is imported.
    """

    path: str
    payloads: NDArray[np.int64]  # [samples, 2]: start and end in the file
    images: NDArray[np.int64]  # [samples, images per sample, 2]: start and end in the payload
    labels: NDArray[np.int32]  # [samples]

    def images_of(self, buffer: Buffer, record: int) -> list[memoryview]:
        """Return the image or the frames of one sample, its checksum verified. Raises DataError."""
        start, end = self.payloads[record].tolist()
        payload = buffer[start:end]
        if _CRC.unpack(buffer[end : end + 4])[0] != masked_crc(payload):
            raise DataError(self.path, f"is damaged: the checksum of record {record} is wrong", _FIX)
        view = memoryview(payload)
        return [view[first:last] for first, last in self.images[record].tolist()]


def masked_crc(data: bytes) -> int:
    """Return the checksum that a TFRecord carries."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def index_shard(buffer: Buffer, shard: Shard, path: str, images_per_sample: int, classes: int) -> ShardIndex:
    """Walk over the records of a shard. Raises DataError when it is not what the manifest says."""
    payloads: list[int] = []
    images: list[int] = []
    labels: list[int] = []
    tails = {label_entry(label): label for label in range(classes)}
    position, size_bytes = 0, len(buffer)
    while position < size_bytes:
        header = buffer[position : position + _HEADER.size]
        start = position + _HEADER.size
        if len(header) < _HEADER.size or _HEADER.unpack(header)[1] != masked_crc(header[:8]):
            raise DataError(path, f"is damaged: record {len(labels)} has no sound header", _FIX)
        end = start + _HEADER.unpack(header)[0]
        if end + _CRC.size > size_bytes:
            raise DataError(path, f"is truncated: record {len(labels)} goes on after its end", _FIX)
        try:
            spans, label = _parse_own_layout(buffer, start, end, tails) or parse_example(buffer[start:end])
        except (_Malformed, IndexError) as error:
            raise DataError(path, f"record {len(labels)} is no sample {{image, label}} ({error})", _FIX) from error
        if len(spans) != images_per_sample or not 0 <= label < classes:
            problem = f"record {len(labels)} has {len(spans)} images and label {label}"
            raise DataError(path, f"{problem}, where {images_per_sample} and less than {classes} are due", _FIX)
        payloads += (start, end)
        for span in spans:
            images += span
        labels.append(label)
        position = end + _CRC.size
    if len(labels) != shard.samples:
        raise DataError(path, f"holds {len(labels)} samples where the manifest says {shard.samples}", _FIX)
    return ShardIndex(
        path,
        np.array(payloads, np.int64).reshape(-1, 2),
        np.array(images, np.int64).reshape(-1, images_per_sample, 2),
        np.array(labels, np.int32),
    )


def uniform_records(
    buffer: Buffer, shard: Shard, image_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
    """Return images [samples, image_bytes] and labels [samples] of a shard of equal records, or None if it is not one.

    Raw pixels and small labels make every record the same but for pixels, label and checksum: 70,000 of them are
    checked as columns of one array, not one by one. The payloads' checksums are left to the caller.
    """
    if len(buffer) % shard.samples:
        return None
    rows = np.frombuffer(buffer, np.uint8).reshape(shard.samples, -1)
    try:
        payload_bytes = int(_HEADER.unpack(rows[0, : _HEADER.size].tobytes())[0])
        spans, label = parse_example(rows[0, _HEADER.size : -_CRC.size].tobytes())
    except (_Malformed, IndexError, struct.error):
        return None
    first, last = (_HEADER.size + int(position) for position in spans[0])
    same = np.ones(rows.shape[1], np.bool_)
    same[first:last] = same[-_CRC.size - 1 :] = False
    fits = len(spans) == 1 and last - first == image_bytes and payload_bytes == rows.shape[1] - 16 and label < 128
    if not fits or not (rows[:, same] == rows[0, same]).all():
        return None
    return rows[:, first:last], rows[:, -_CRC.size - 1]


def check_uniform(buffer: Buffer, shard: Shard, path: str) -> None:
    """Verify the checksum of every record of a shard of equal records. Raises DataError."""
    step = len(buffer) // shard.samples
    for record in range(shard.samples):
        start, end = record * step + _HEADER.size, (record + 1) * step - _CRC.size
        if _CRC.unpack_from(buffer[end : end + _CRC.size])[0] != masked_crc(buffer[start:end]):
            raise DataError(path, f"is damaged: the checksum of record {record} is wrong", _FIX)


def _parse_own_layout(
    buffer: Buffer, start: int, end: int, tails: Mapping[bytes, int]
) -> tuple[list[tuple[int, int]], int] | None:
    """Return what `parse_example` does, of one image as our own writer lays it out, copying no image; or None."""
    head = buffer[start : min(end, start + _LONGEST_HEADS)]
    position = head.find(_IMAGE_ENTRY, 0, _LONGEST_HEAD)
    if position < 0:
        return None
    position += len(_IMAGE_ENTRY)
    for tag in (0x0A, 0x0A, None):  # value: bytes_list, its one value; each a length, then the next one's tag
        size_bytes, position = _read_varint(head, position)
        if tag is not None:
            if head[position] != tag:
                return None
            position += 1
    label = tails.get(buffer[start + position + size_bytes : end])
    return None if label is None else ([(position, position + size_bytes)], label)


def parse_example(payload: bytes) -> tuple[list[tuple[int, int]], int]:
    """Return start and end of each image in the payload of a tf.train.Example, and the label. Raises _Malformed."""
    spans: list[tuple[int, int]] = []
    label = -1
    for features_start, features_end in _messages(payload, 0, len(payload), 1):
        for entry_start, entry_end in _messages(payload, features_start, features_end, 1):
            key = next((payload[a:b] for a, b in _messages(payload, entry_start, entry_end, 1)), b"")
            for start, end in _messages(payload, entry_start, entry_end, 2):
                if key == b"image":
                    spans = [span for a, b in _messages(payload, start, end, 1) for span in _messages(payload, a, b, 1)]
                elif key == b"label":
                    label = _int64(payload, start, end)
    if not spans or label < 0:
        raise _Malformed("a feature is missing")
    return spans, label


def _int64(payload: bytes, start: int, end: int) -> int:
    for list_start, list_end in _messages(payload, start, end, 3):
        for value_start, _ in _messages(payload, list_start, list_end, 1):
            return _read_varint(payload, value_start)[0]
    raise _Malformed("the label is no int64")


def _messages(payload: bytes, position: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each length-delimited field numbered `wanted`."""
    while position < end:
        tag, position = _read_varint(payload, position)
        if tag & 7 == _VARINT:
            _, position = _read_varint(payload, position)
            continue
        if tag & 7 != _LENGTH_DELIMITED:
            raise _Malformed(f"wire type {tag & 7}")
        size_bytes, position = _read_varint(payload, position)
        if position + size_bytes > end:
            raise _Malformed("a field goes on after its message")
        if tag >> 3 == wanted:
            yield position, position + size_bytes
        position += size_bytes


def _read_varint(payload: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise _Malformed("a number is too long")
