"""Files that may be local or remote, plain or packed, read as plain bytes."""

import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import zstandard
from etils import epath


def _open_zst(raw: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_ZstReader(raw))


class _ZstReader(io.RawIOBase):
    """Unpacks all frames of a zst file, and raises EOFError if the last one is cut short.

    zstandard's own reader takes the end of a cut file for the end of the text.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._packed = b""
        self._text = b""
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._packed = self._packed or self._raw.read(1 << 14)
            if not self._packed and self._frame:
                raise EOFError("the file ends inside a frame")
            if not self._packed:
                return 0
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            self._text = self._frame.decompress(self._packed)
            self._packed = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        size = min(len(buffer), len(self._text))
        buffer[:size], self._text = self._text[:size], self._text[size:]
        return size


# By file name ending.
PACKINGS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


@contextmanager
def open_unpacked(file: str) -> Iterator[BinaryIO]:
    """Opens a local or remote file for reading unpacked bytes."""
    with epath.Path(file).open("rb") if "://" in file else open(file, "rb") as raw:
        suffix = Path(file).suffix.lower()
        if suffix not in PACKINGS:
            yield raw
            return
        with PACKINGS[suffix](raw) as stream:
            yield stream
