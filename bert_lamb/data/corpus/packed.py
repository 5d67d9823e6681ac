"""Files that may be local or remote, plain or packed, read as plain bytes."""

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import zstandard

from bert_lamb.data.corpus.remote import is_remote, open_remote, remote_size
from bert_lamb.data.errors import DataError, KeptWorkError

# Few enough bytes that what they unpack to fits in memory, even if they were made to swell.
_PACKED_BYTES = 1 << 12


@contextmanager
def open_unpacked(file: str) -> Iterator[BinaryIO]:
    """Opens a local or remote file for reading unpacked bytes.

    Raises:
        DataError: while opening or reading, if the file cannot be read, or its packing is damaged,
            cut short, or followed by something else; names the file.
    """
    try:
        with open_raw(file) as raw:
            packing = packing_of(file)
            if packing is None:
                yield raw
                return
            with io.BufferedReader(_Unpacked(raw, *PACKINGS[packing])) as stream:
                yield stream
    except OSError as error:
        raise KeptWorkError(
            f"{file}: cannot be read ({error}); check the file and its ending"
        ) from error
    except (EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); check the file and its ending"
        ) from error


def open_raw(file: str) -> BinaryIO:
    """Opens a local or remote file as it is stored.

    Raises:
        DataError: for a pipe or device, whose reader may wait for ever.
    """
    if is_remote(file):
        return open_remote(file)
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        raise DataError(f"{file}: a pipe or device; save the text in a file")
    return open(file, "rb")


def stored_size(file: str) -> int:
    """Returns the bytes of a local or remote file as it is stored.

    Raises:
        DataError: if it cannot be found or reached.
    """
    if is_remote(file):
        return remote_size(file)
    try:
        return os.stat(file).st_size
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error}); check the file") from error


def packing_of(file: str) -> str | None:
    """Returns the ending that says how `file` is packed, or None."""
    ending = PurePosixPath(file).suffix.lower()
    return ending if ending in PACKINGS else None


def plain_name(file: str) -> str:
    """Returns the last part of a path without the ending of a packing."""
    name = Path(file).name
    packing = packing_of(name)
    return name[: -len(packing)] if packing else name


class _Unpacked(io.RawIOBase):
    """Unpacks all frames (streams, members) of a file, one after the other.

    The readers of Python's modules take what follows a frame and is none for the end of the file,
    and zstandard's takes the end of a cut file for the end of the text: both lose text silently.

    Args:
        raw: the packed bytes.
        new_frame: makes an object that unpacks one frame.
        padded: whether zero bytes may stand between frames and behind the last.
    """

    def __init__(self, raw: BinaryIO, new_frame: Callable[[], Any], padded: bool) -> None:
        self._raw = raw
        self._new_frame = new_frame
        self._padded = padded
        self._frame: Any = None
        self._packed = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._packed = self._packed or self._raw.read(_PACKED_BYTES)
            if self._frame is None and self._padded:
                self._packed = self._packed.lstrip(b"\0") or self._raw.read(_PACKED_BYTES)
                if self._packed.startswith(b"\0"):
                    continue
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the file ends inside a frame")
                return 0
            if self._frame is None:
                self._frame = self._new_frame()
            self._text = memoryview(self._frame.decompress(self._packed))
            self._packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        size = min(len(buffer), len(self._text))
        buffer[:size], self._text = self._text[:size], self._text[size:]
        return size


# By file name ending: what unpacks one frame, and whether zeros may stand between frames.
PACKINGS: dict[str, tuple[Callable[[], Any], bool]] = {
    ".gz": (lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), True),
    ".xz": (lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), True),
    ".zst": (lambda: zstandard.ZstdDecompressor().decompressobj(), False),
    ".bz2": (bz2.BZ2Decompressor, False),
}
