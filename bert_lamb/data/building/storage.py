"""Files of a build: written under another name first, so that a file that is there is whole."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from etils import epath


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
        os.replace(waiting, file)
    except BaseException:
        waiting.unlink(missing_ok=True)
        raise


def save_json(file: epath.Path, values: dict[str, Any]) -> None:
    """Writes a summary whose presence says that a piece of work is done."""
    with replacing(file) as out:
        out.write(json.dumps(values).encode())


def load_json(file: epath.Path) -> dict[str, Any] | None:
    """Returns what `save_json` wrote, or None if it did not."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
