"""Files of a build: written under another name first, so that a file that is there is whole."""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from etils import epath

from bert_lamb.data.errors import DataError


@contextmanager
def replacing(file: epath.Path) -> Iterator[BinaryIO]:
    """Opens a file that takes its place only when the block ends without an exception.

    The name in between carries the process, so that two processes at the same piece of work (one
    left over from a killed build, say) do not meet.
    """
    if "://" in str(file):  # an object store shows an object once it is whole
        with file.open("wb") as out:
            yield out
        return
    waiting = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with open(waiting, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())  # or a machine that stops leaves an empty file of that name
        os.replace(waiting, file)
    except BaseException as error:
        waiting.unlink(missing_ok=True)
        if isinstance(error, OSError) and not error.filename:
            error.filename = str(file)
        raise


def save_json(file: epath.Path, values: dict[str, Any]) -> None:
    """Writes a summary whose presence says that a piece of work is done."""
    text = json.dumps(values)
    with replacing(file) as out:
        out.write(f"{zlib.crc32(text.encode()):08x} {text}".encode())


def load_json(file: epath.Path) -> dict[str, Any] | None:
    """Returns what `save_json` wrote, or None if it did not, or the file is damaged."""
    try:
        crc, _, text = file.read_bytes().decode().partition(" ")
        return json.loads(text) if int(crc, 16) == zlib.crc32(text.encode()) else None
    except (FileNotFoundError, ValueError):
        return None


class DamagedWorkError(DataError):
    """A file of an interrupted build is not what was written."""

    def __init__(self, file: object) -> None:
        super().__init__(
            f"{file}: damaged since an interrupted build wrote it; its work is given up, so repeat "
            "the command to build from the start"
        )
