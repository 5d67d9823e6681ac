"""The sources a user names, opened.

A source is written as one string:

* ``notes.txt``, ``wiki/*.txt.zst``, ``gs://bucket/books/*.txt.gz``: text files, UTF-8, documents
  divided by blank lines; a line end is a boundary that no sentence crosses;
* ``wiki-*.jsonl.xz``: JSON lines (``.jsonl`` or ``.json``), one document a line, its text under
  "text", its name under "id" and "title" where present;
* ``folder``: all visible files directly inside, in the order of their names;
* ``python:``: the English prose of the running Python installation (see python_prose).

Each may be plain or packed (.gz, .xz, .zst). Text is read as UTF-8 whatever the locale says.
"""

import glob
from collections.abc import Sequence
from pathlib import Path

from etils import epath

from bert_lamb.data.corpus.document import Source
from bert_lamb.data.corpus.files import FileSplit, OnError
from bert_lamb.data.corpus.python_prose import PythonSplit
from bert_lamb.data.errors import DataError


def open_sources(
    patterns: Sequence[str], *, on_error: OnError = "error", text_field: str = "text"
) -> list[Source]:
    """Turns the sources a user names into readers.

    Args:
        patterns: paths, globs, folders or "python:".
        on_error: what to do with faulty lines; see FileSplit.
        text_field: key of the text in JSON records.

    Raises:
        DataError: for no pattern, an unknown `on_error`, or a pattern that matches no file; names
            the pattern.
    """
    if on_error not in ("error", "replace", "skip"):
        raise DataError(f"on_error = {on_error!r}: expected error, replace or skip")
    if not patterns:
        raise DataError("no source of text: name a file, a glob, a folder or python:")
    if not all(patterns):
        raise DataError("source '': empty; name a file, a glob, a folder or python:")
    return [
        Source(pattern, (PythonSplit(),))
        if pattern == "python:"
        else Source(
            pattern, tuple(FileSplit(file, on_error, text_field) for file in _expand(pattern))
        )
        for pattern in patterns
    ]


def _expand(pattern: str) -> tuple[str, ...]:
    """Returns the files `pattern` stands for, sorted; raises DataError if there are none."""
    if "://" in pattern:
        try:
            path = epath.Path(pattern)
            is_dir, exists = path.is_dir(), path.exists()
            found = [str(p) for p in (path.iterdir() if is_dir else path.parent.glob(path.name))]
        except (KeyError, ImportError, ValueError) as error:
            raise DataError(
                f"source {pattern!r}: this kind of address cannot be read here "
                f"({_last_line(error)}); install the fsspec package for it (gcsfs for gs://, s3fs "
                "for s3://), or copy the text to a local folder"
            ) from error
    else:
        is_dir, exists = Path(pattern).is_dir(), Path(pattern).exists()
        search = f"{glob.escape(pattern)}/*" if is_dir else pattern
        found = glob.glob(search, recursive=True)
        found = [name for name in found if Path(name).is_file()]
    # A file whose name holds glob characters is meant literally where it exists.
    files = [pattern] if exists and not is_dir else sorted(found)
    files = [name for name in files if not Path(name).name.startswith(".") or name == pattern]
    if not files:
        what = "this folder holds no visible file" if is_dir else "no file matches"
        raise DataError(
            f"source {pattern!r}: {what}; check the spelling, and quote globs in the shell"
        )
    return tuple(files)


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
