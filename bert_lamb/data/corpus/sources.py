"""The sources a user names, opened.

A source is written PATTERN or KIND:PATTERN, the pattern being a path, a glob, a folder (all visible
files directly inside, in the order of their names) or an address. Without a kind each file's ending
decides, after the ending of a packing (.gz .xz .zst .bz2) is taken off:

=============== ===================== ==========================================================
kind            ending                documents
=============== ===================== ==========================================================
text:           any other             divided by blank lines; a line end is a sentence boundary
whole:                                a file is one; its title is the file's name
jsonl:          .jsonl .json          a JSON object a line: "text", and "id", "title" if present
wikiextractor:                        what WikiExtractor writes; of a folder, also inside of it
mediawiki:      .xml .xml-p1p41242    the articles of a MediaWiki dump, their prose
parquet:        .parquet              a row each: columns "text", and "id", "title" if present
arrow:          .arrow                the same of an Arrow file
hf:DIR                                Hugging Face data set made by `save_to_disk`
tfds:NAME                             data set of TFDS prepared as array_record (see tfds)
python:                               English prose of the running Python (see python_prose)
=============== ===================== ==========================================================

A file whose own name begins with a kind and a colon is written with a folder: ./text:notes.
"""

import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_lamb.data.corpus.document import Source, Split
from bert_lamb.data.corpus.files import TextSplit, WholeSplit
from bert_lamb.data.corpus.jsonl import JsonLinesSplit
from bert_lamb.data.corpus.mediawiki import MediaWikiSplit
from bert_lamb.data.corpus.packed import packing_of, plain_name
from bert_lamb.data.corpus.policy import OnError, check_on_error
from bert_lamb.data.corpus.python_prose import PythonSplit
from bert_lamb.data.corpus.remote import find_remote, is_remote, local_path
from bert_lamb.data.corpus.tables import ArrowSplit, ParquetSplit, saved_dataset
from bert_lamb.data.corpus.tfds import open_tfds
from bert_lamb.data.corpus.wikiextractor import WikiExtractorSplit
from bert_lamb.data.errors import DataError

_MakeSplit = Callable[[str, OnError, str], Split]
_FILE_KINDS: dict[str, _MakeSplit] = {
    "text": lambda file, on_error, _: TextSplit(file, on_error, is_guess=False),
    "whole": lambda file, on_error, _: WholeSplit(file, on_error),
    "jsonl": JsonLinesSplit,
    "wikiextractor": lambda file, on_error, _: WikiExtractorSplit(file, on_error),
    "mediawiki": lambda file, on_error, _: MediaWikiSplit(file, on_error),
    "parquet": ParquetSplit,
    "arrow": ArrowSplit,
}
_TABLES = ("parquet", "arrow")  # these hold their own packing and are read at random
_KINDS = (*_FILE_KINDS, "hf", "tfds", "python")
_ENDINGS = {
    ".jsonl": "jsonl", ".json": "jsonl", ".xml": "mediawiki", ".parquet": "parquet",
    ".arrow": "arrow",
}  # fmt: skip
_DUMP_PART = re.compile(r"\.xml-p\d+p\d+")  # as Wikimedia names the parts of a dump
# Some of these would pass for text, with the archive's own bytes in it.
_NOT_TEXT = re.compile(
    r"\.(?:7z|array_record|bin|docx?|epub|html?|np[yz]|odt|pdf|pkl|rar|rtf|safetensors|sql|tar|tbz"
    r"|tfrecord|tgz|txz|z|zip)"
)


_MAX_WEIGHT = 1000


def open_sources(
    patterns: Sequence[str],
    weights: Sequence[float] | None = None,
    *,
    on_error: OnError = "error",
    text_field: str = "text",
) -> list[Source]:
    """Turns the sources a user names into readers.

    Args:
        patterns: as this module's description says.
        weights: of each source, times its documents are used; all 1 by default.
        on_error: what to do with faulty lines; see policy.OnError.
        text_field: key or column of the text in JSON lines, Parquet, Arrow and TFDS.

    Raises:
        DataError: for no pattern, an unknown `on_error`, weights that are not positive or not one
            for each pattern, or a pattern that matches no file or cannot be reached; names the
            pattern.
    """
    check_on_error(on_error)
    if isinstance(patterns, str):
        raise DataError(f"sources {patterns!r}: expected a list of sources, got one string")
    if not patterns:
        raise DataError("no source of text: name a file, a glob, a folder or python:")
    if not text_field:
        raise DataError("text_field '': empty; name the key or column of the text")
    return [
        Source(pattern, _open(pattern, on_error, text_field), weight)
        for pattern, weight in zip(patterns, _check_weights(patterns, weights), strict=True)
    ]


def _check_weights(patterns: Sequence[str], weights: Sequence[float] | None) -> list[float]:
    if weights is None:
        return [1.0] * len(patterns)
    if len(weights) != len(patterns):
        raise DataError(
            f"{len(weights)} weights for {len(patterns)} sources: give one for each, or none"
        )
    for pattern, weight in zip(patterns, weights, strict=True):
        if not 0 < weight <= _MAX_WEIGHT:
            raise DataError(
                f"source {pattern!r}: weight {weight}: expected a number above 0, at most "
                f"{_MAX_WEIGHT}, such as 2 to use each document twice, or 0.5 to use half of them"
            )
    return [float(weight) for weight in weights]


def _open(source: str, on_error: OnError, text_field: str) -> tuple[Split, ...]:
    head, colon, pattern = source.partition(":")
    kind = head if colon and head in _KINDS and not pattern.startswith("//") else ""
    pattern = local_path(pattern if kind else source)
    if kind == "python":
        if pattern:
            raise DataError(f"source {source!r}: nothing can follow python:")
        return (PythonSplit(),)
    if not pattern.strip():
        raise DataError(f"source {source!r}: empty; name a file, a glob, a folder or python:")
    if "\0" in pattern:
        raise DataError(f"source {source!r}: holds a NUL character; check the name")
    if kind == "tfds":
        return open_tfds(pattern, on_error, text_field)
    if kind == "hf":
        return tuple(ArrowSplit(file, on_error, text_field) for file in saved_dataset(pattern))
    files = _expand(source, pattern, recursive=kind == "wikiextractor")
    return tuple(_file_split(file, kind, on_error, text_field) for file in files)


def _file_split(file: str, kind: str, on_error: OnError, text_field: str) -> Split:
    is_guess, kind = not kind, kind or _kind_of(file)
    if kind == "text":
        return TextSplit(file, on_error, is_guess)
    if kind in _TABLES:
        if packing_of(file):
            raise DataError(
                f"{file}: {kind} files are read at random and cannot be packed; unpack it first"
            )
        if file.lower().startswith(("http://", "https://")):
            raise DataError(
                f"{file}: {kind} files are read at random, which the web does not allow; fetch it "
                "first and name the local file"
            )
    return _FILE_KINDS[kind](file, on_error, text_field)


def _kind_of(file: str) -> str:
    """Returns the kind that a file's ending stands for."""
    name = plain_name(file)
    ending = Path(name).suffix.lower()
    if _NOT_TEXT.fullmatch(ending):
        raise DataError(
            f"{file}: {ending} files cannot be read; make text or JSON lines of it, or force "
            f"a kind (text:{file})"
        )
    return "mediawiki" if _DUMP_PART.fullmatch(ending) else _ENDINGS.get(ending, "text")


def _expand(source: str, pattern: str, recursive: bool) -> tuple[str, ...]:
    """Returns the files `pattern` stands for, sorted; raises DataError if there are none."""
    if is_remote(pattern):
        found, is_dir = find_remote(pattern, recursive)
    else:
        found, is_dir = _find_local(source, pattern, recursive)
    files = sorted(n for n in found if n == pattern or not Path(n).name.startswith("."))
    if is_dir and any(Path(name).name in ("state.json", "dataset_dict.json") for name in files):
        raise DataError(
            f"source {source!r}: looks like a Hugging Face data set; write hf:{pattern}"
        )
    if not files:
        what = "no file matches"
        if is_dir:
            inside = f"{pattern.rstrip('/')}/**/*.txt"
            what = f"no visible file directly in this folder; for those deeper down, {inside!r}"
        hint = "" if ":" not in source else f"; kinds are {', '.join(f'{k}:' for k in _KINDS)}"
        raise DataError(
            f"source {source!r}: {what}; check the spelling, and quote globs in the shell{hint}"
        )
    return tuple(files)


def _find_local(source: str, pattern: str, recursive: bool) -> tuple[list[str], bool]:
    """Returns (the files a pattern stands for, whether it is a folder)."""
    path = Path(pattern)
    try:
        if path.is_dir():
            return _files_below(source, path, recursive), True
        if path.exists():
            # A file whose name holds glob characters is meant literally where it exists.
            if not path.is_file():
                raise DataError(
                    f"source {source!r}: a pipe or device, which cannot be read twice; save the "
                    "text in a file"
                )
            return [pattern], False
        found = glob.glob(pattern, recursive=True)
    except (OSError, re.error) as error:  # a name too long, say
        raise DataError(f"source {source!r}: cannot be looked up ({error})") from error
    return [name for name in found if _is_file(source, Path(name))], False


def _files_below(source: str, folder: Path, recursive: bool) -> list[str]:
    """Returns the files in a folder; fails for what cannot be looked into."""

    def fail(error: OSError) -> None:
        raise error

    found: list[str] = []
    for place, folders, names in os.walk(folder, onerror=fail):  # does not follow links to folders
        found += [name for name in (f"{place}/{n}" for n in names) if _is_file(source, Path(name))]
        if not recursive:
            folders.clear()
    return found


def _is_file(source: str, path: Path) -> bool:
    """Whether a path is a file, and not a folder; fails for what would be left out unseen."""
    if path.is_dir() or path.name.startswith("."):
        return False
    if not path.is_file():
        what = "a link to nowhere" if path.is_symlink() else "a pipe or device"
        raise DataError(f"source {source!r}: {path} is {what}; remove it, or name the files")
    return True
