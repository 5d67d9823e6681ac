"""Files of a local folder, each fault in one line."""

import json
from pathlib import Path
from typing import Any

from bert_lamb.interop.errors import InteropError

# What `git clone` leaves in place of a large file where git-lfs is not installed.
_POINTER = b"version https://git-lfs"


def open_folder(folder: str | Path) -> Path:
    """Returns the folder as a path.

    Raises:
        InteropError: if there is no such local folder.
    """
    path = Path(folder)
    if not path.is_dir():
        what = "a file, not a folder" if path.is_file() else "no such folder"
        raise InteropError(
            f"{str(folder)!r}: {what}; expected a local folder with config.json, model.safetensors "
            "and the tokenizer's files (nothing is downloaded: fetch the model first)"
        )
    return path


def check_file(file: Path) -> None:
    """Raises InteropError unless `file` is there, can be read and is no git-lfs pointer."""
    if not file.is_file():
        raise InteropError(f"{file}: no such file; add it, as it belongs to the model's folder")
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_POINTER))
    except OSError as error:
        raise InteropError(f"{file}: cannot be read ({error.strerror}); check its rights") from None
    if start == _POINTER:
        raise InteropError(
            f"{file}: a git-lfs pointer, not the file itself; run `git lfs pull` in its folder, or "
            "download the file"
        )


def read_json(file: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        InteropError: if it is absent, cannot be read, or holds anything else.
    """
    check_file(file)
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InteropError(
            f"{file}: not JSON ({error}); expected the file as the model's author saved it"
        ) from None
    if not isinstance(content, dict):
        raise InteropError(
            f"{file}: holds {type(content).__name__}, expected a JSON object of keys and values"
        )
    return content


def short(value: object) -> str:
    """Returns a value of JSON as it is written there, in ASCII and cut to a readable length."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
