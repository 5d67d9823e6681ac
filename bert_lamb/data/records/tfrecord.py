"""The TFRecord container, written and read without TensorFlow.

Each record is, little-endian,

    uint64  length of the data
    uint32  masked CRC-32C of these eight bytes
    bytes   the data
    uint32  masked CRC-32C of the data

and a file is its records one after the other, or one gzip stream of them.

References:
    TensorFlow, "TFRecord and tf.train.Example", section "TFRecords format details";
    tensorflow/core/lib/io/record_writer.h.
"""

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import google_crc32c
from etils import epath

from bert_lamb.data.errors import DataError

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEAD_SIZE = _LENGTH.size + _CRC.size
_FRAME_SIZE = _HEAD_SIZE + _CRC.size  # what a record takes beside its data
_READ_AT_ONCE = 1 << 20  # bytes
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEVEL = 6  # as TensorFlow writes
_AGAIN = "copy or make the file again"


def masked_crc32c(data: bytes) -> int:
    """Returns the CRC-32C of `data`, rotated and shifted as TFRecords store it.

    The mask keeps the checksum of data that themselves hold checksums from being weak.
    """
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write_tfrecord(path: str | Path, records: Iterable[bytes], *, compressed: bool = False) -> int:
    """Writes `records` to a new file, each as it comes; equal records give equal bytes.

    Args:
        path: local or remote; an existing file is replaced.
        records: the data of each record.
        compressed: write one gzip stream, as TensorFlow does with the option "GZIP".

    Returns:
        The number of records.
    """
    number = 0
    with _create(path, compressed) as stream:
        for data in records:
            length = _LENGTH.pack(len(data))
            stream.write(b"".join((length, _packed_crc(length), data, _packed_crc(data))))
            number += 1
    return number


@contextmanager
def _create(path: str | Path, compressed: bool) -> Iterator[BinaryIO]:
    with epath.Path(path).open("wb") as raw:
        if not compressed:
            yield raw
            return
        # No name and no time, so that equal records give equal bytes.
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as stream:
            yield cast(BinaryIO, stream)


def _packed_crc(data: bytes) -> bytes:
    return _CRC.pack(masked_crc32c(data))


def read_tfrecord(path: str | Path) -> Iterator[bytes]:
    """Yields the data of each record; both checksums of each are verified.

    A gzip file is known by its content, whatever its name.

    Args:
        path: local or remote.

    Raises:
        DataError: if the file cannot be read, is cut short or damaged, or is not a TFRecord file;
            names the record, from 1, and the byte at which it starts (in the unpacked data).
    """
    number, offset = 1, 0
    try:
        with _open(path) as stream:
            while head := _read(stream, _HEAD_SIZE):
                size = _data_size(head, first=number == 1)
                body = _read(stream, size + _CRC.size)
                if len(body) < size + _CRC.size:
                    got = len(head) + len(body)
                    raise _FrameError(f"the file ends after {got} of {size + _FRAME_SIZE} bytes")
                data = body[:size]
                if body[size:] != _packed_crc(data):
                    raise _FrameError("damaged: the checksum of the data is wrong")
                yield data
                number += 1
                offset += size + _FRAME_SIZE
    except (_FrameError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}, record {number}, byte {offset}: {error}; {_AGAIN}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error}); check the path and the file") from error


@contextmanager
def _open(path: str | Path) -> Iterator[BinaryIO]:
    with epath.Path(path).open("rb") as raw:
        if not _is_gzip(raw):
            yield raw
            return
        with gzip.open(raw) as stream:
            yield cast(BinaryIO, stream)


class _FrameError(Exception):
    """What is wrong with the frame around a record."""


def _is_gzip(stream: BinaryIO) -> bool:
    """Tells a gzip file from a plain one whose first length happens to look like gzip."""
    head = stream.read(_HEAD_SIZE)
    stream.seek(0)
    return head.startswith(_GZIP_MAGIC) and not _has_valid_length(head)


def _has_valid_length(head: bytes) -> bool:
    return head[_LENGTH.size :] == _packed_crc(head[: _LENGTH.size])


def _data_size(head: bytes, *, first: bool) -> int:
    if len(head) < _HEAD_SIZE:
        raise _FrameError(f"the file ends after {len(head)} of the {_HEAD_SIZE} bytes of its head")
    if not _has_valid_length(head):
        what = "not a TFRecord file, or damaged" if first else "damaged"
        raise _FrameError(f"{what}: the checksum of the length is wrong")
    return _LENGTH.unpack_from(head)[0]


def _read(stream: BinaryIO, size: int) -> bytes:
    """Reads `size` bytes, fewer at the end; a length that lies takes no memory in advance."""
    parts = []
    while size and (part := stream.read(min(size, _READ_AT_ONCE))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
