"""Sources of text: files, globs and the built-in prose, as a stream of bounded documents.

A source is written as one string:

* ``notes.txt``, ``wiki/*.txt.zst``, ``gs://bucket/books/*.txt.gz``: text files, UTF-8, documents
  divided by blank lines; a line end is a boundary that no sentence crosses;
* ``wiki-*.jsonl.xz``: JSON lines (``.jsonl`` or ``.json``), one document a line, its text under
  "text", its name under "id" and "title" where present;
* ``folder``: all visible files directly inside, in the order of their names;
* ``python:``: the English prose of the running Python installation (see python_prose).

Each may be plain or packed (.gz, .xz, .zst). Text is read as UTF-8 whatever the locale says.
"""

import codecs
import glob
import hashlib
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import zstandard
from etils import epath

from bert_lamb.data import python_prose
from bert_lamb.data.errors import DataError
from bert_lamb.data.packed import PACKINGS, open_unpacked

OnError = Literal["error", "replace", "skip"]

# A document longer than this comes in several parts, so that no buffer depends on its length.
PART_CHARS = 1 << 19
_PIECE_BYTES = 1 << 20  # a text line is read in pieces of at most this many bytes
_SHOWN_FAULTS = 10


@dataclass(frozen=True)
class Document:
    """A text, or one part of a long one.

    Attributes:
        id: names the document in its source; all its parts share it.
        title: its title, "" where it has none.
        text: its lines divided by line feeds; each line end is a sentence boundary.
        part: 0 for the first part; parts follow one another directly.
    """

    id: str
    title: str
    text: str
    part: int = 0


@dataclass
class ReadStats:
    """What reading a source met with; filled while it is read.

    Attributes:
        files: files read to their end.
        bytes: bytes of text read, after unpacking.
        lines: lines read.
        lines_skipped: lines left out for a fault (on_error "skip").
        bytes_dropped: bytes of faulty text that were replaced or left out.
        faults: the first few faults in words: file, line, byte offset.
        sha256: hash of all bytes read, in order.
    """

    files: int = 0
    bytes: int = 0
    lines: int = 0
    lines_skipped: int = 0
    bytes_dropped: int = 0
    faults: list[str] = field(default_factory=list)
    sha256: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def fault(self, message: str) -> None:
        """Keeps `message` if it is among the first few."""
        if len(self.faults) < _SHOWN_FAULTS:
            self.faults.append(message)


class Source(Protocol):
    """A named stream of documents that can be read again and again with the same outcome."""

    @property
    def name(self) -> str:
        """The source as the user wrote it."""

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents in a fixed order and counts into `stats`."""


@dataclass(frozen=True)
class PythonSource:
    """The English prose of the running Python installation."""

    name: str = "python:"

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields one document per documentation topic and module."""
        for id, text in python_prose.documents():
            data = text.encode()
            stats.bytes += len(data)
            stats.lines += text.count("\n") + 1
            stats.sha256.update(data)
            yield from _parts(id, "", [text])


@dataclass(frozen=True)
class FileSource:
    """Text and JSON-lines files.

    Attributes:
        name: the path or glob as the user wrote it.
        files: the files it stands for, in the order in which they are read.
        on_error: what to do with bytes that are not UTF-8 and with lines that are not JSON
            records: stop ("error"), put U+FFFD in their place ("replace", bytes only), or leave
            out the line ("skip").
        text_field: key of the text in JSON records.
    """

    name: str
    files: tuple[str, ...]
    on_error: OnError = "error"
    text_field: str = "text"

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of all files.

        Raises:
            DataError: if a file cannot be read or unpacked, or holds a fault and `on_error` is
                "error"; names the file, the line and the byte offset in the unpacked text.
        """
        for file in self.files:
            try:
                with open_unpacked(file) as stream:
                    lines = self._lines(file, stream, stats)
                    yield from (self._json if _is_json(file) else _paragraphs)(file, lines, stats)
            except (OSError, EOFError, lzma.LZMAError, zstandard.ZstdError) as error:
                raise DataError(
                    f"{file}: cannot be read ({error}); check the file and its ending"
                ) from error
            stats.files += 1

    def _lines(
        self, file: str, stream: BinaryIO, stats: ReadStats
    ) -> Iterator[tuple[int, str | None]]:
        """Yields (line number from 1, text without line end); None for a line left out."""
        offset, last = 0, 0
        limit = -1 if _is_json(file) else _PIECE_BYTES
        for number, data in _split_lines(stream, limit):
            stats.sha256.update(data)
            stats.bytes += len(data)
            stats.lines += number != last
            last = number
            body = data.removeprefix(codecs.BOM_UTF8) if offset == 0 else data
            start = offset + len(data) - len(body)
            offset += len(data)
            try:
                text: str | None = body.decode("utf-8")
            except UnicodeDecodeError as error:
                text = self._mend(body, error, f"{file}, line {number}", start, stats)
            yield number, None if text is None else text.rstrip("\r\n")

    def _mend(
        self, body: bytes, error: UnicodeDecodeError, place: str, start: int, stats: ReadStats
    ) -> str | None:
        bad = body[error.start : error.end].hex(" ")
        message = f"{place}, byte {start + error.start}: {bad} is not UTF-8 ({error.reason})"
        stats.fault(message)
        if self.on_error == "error":
            raise DataError(f"{message}; convert the file, or set on_error to replace or skip")
        if self.on_error == "skip":
            stats.lines_skipped += 1
            stats.bytes_dropped += len(body)
            return None
        stats.bytes_dropped += len(body) - len(body.decode("utf-8", "ignore").encode())
        return body.decode("utf-8", "replace")

    def _json(
        self, file: str, lines: Iterator[tuple[int, str | None]], stats: ReadStats
    ) -> Iterator[Document]:
        for number, line in lines:
            if line is None or not line.strip():
                continue
            problem = ""
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = f"not a JSON record ({error})"
            else:
                if not isinstance(record, dict):
                    problem = f"expected a JSON object, got {type(record).__name__}"
                elif not isinstance(record.get(self.text_field), str):
                    found = f"{self.text_field!r} holds {record.get(self.text_field)!r:.40}"
                    keys = ", ".join(map(repr, record)) or "no keys"
                    absent = f"no key {self.text_field!r} (the record has {keys})"
                    problem = found if self.text_field in record else absent
                    problem += "; expected a string"
                elif not _encodable(record[self.text_field]):
                    problem = "the text holds half of a surrogate pair (a lone \\ud800-\\udfff)"
                    if self.on_error == "replace":
                        stats.fault(f"{file}, line {number}: {problem}")
                        record[self.text_field] = _without_surrogates(record[self.text_field])
                        problem = ""
            if problem:
                message = f"{file}, line {number}: {problem}"
                stats.fault(message)
                if self.on_error != "skip":
                    raise DataError(f"{message}; mend the line, or skip it (--on-error=skip)")
                stats.lines_skipped += 1
                stats.bytes_dropped += len(line.encode())
                continue
            id, title = record.get("id", f"{file}:{number}"), record.get("title", "")
            yield from _parts(str(id), str(title), [record[self.text_field]])


def read_texts(sources: Sequence[Source], stats: ReadStats) -> Iterator[str]:
    """Yields the texts of all sources and counts into `stats`.

    Raises:
        DataError: for faulty text, or for a source without any.
    """
    for source in sources:
        empty = True
        for document in source.read(stats):
            empty = False
            yield document.text
        if empty:
            raise DataError(f"source {source.name!r}: no text in it; check the files")


def _encodable(text: str) -> bool:
    """Says whether `text` has a UTF-8 form; JSON escapes can spell some that have not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def open_sources(
    patterns: Sequence[str], *, on_error: OnError = "error", text_field: str = "text"
) -> list[Source]:
    """Turns the sources a user names into readers.

    Args:
        patterns: paths, globs, folders or "python:".
        on_error: what to do with faulty lines; see FileSource.
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
        PythonSource()
        if pattern == "python:"
        else FileSource(pattern, _expand(pattern), on_error, text_field)
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


def _is_json(file: str) -> bool:
    suffixes = [s.lower() for s in Path(file).suffixes]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in (".jsonl", ".json")


def _split_lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yields (line number, bytes); a line over `limit` bytes comes in pieces cut after a space."""
    number, rest = 1, b""
    while data := stream.readline(limit):
        data, rest = rest + data, b""
        if not data.endswith(b"\n") and len(data) >= limit > 0:
            cut = data.rfind(b" ") + 1
            if not cut:  # no space in a megabyte: cut where no UTF-8 character is torn
                cut = len(data)
                while cut > len(data) - 4 and data[cut - 1] & 0xC0 == 0x80:
                    cut -= 1
                cut -= 1
            data, rest = data[:cut], data[cut:]
        yield number, data
        number += data.endswith(b"\n")
    if rest:
        yield number, rest


def _paragraphs(
    file: str, lines: Iterator[tuple[int, str | None]], stats: ReadStats
) -> Iterator[Document]:
    """Divides the lines of a text file into documents at its blank lines."""
    lines = iter(lines)
    for number, line in lines:
        if line is None or not line.strip():
            continue

        def body(first: str = line) -> Iterator[str]:
            yield first
            for _, line in lines:
                if line is not None and not line.strip():
                    return
                if line is not None:
                    yield line

        yield from _parts(f"{file}:{number}", "", body())


def _parts(id: str, title: str, lines: Iterator[str] | list[str]) -> Iterator[Document]:
    """Yields the text of `lines` in parts of about PART_CHARS, cut at line ends or else spaces."""
    part, size = 0, 0
    pending: list[str] = []
    for line in _short_lines(lines):
        if size and size + len(line) > PART_CHARS:
            yield Document(id, title, "\n".join(pending), part)
            part, pending, size = part + 1, [], 0
        pending.append(line)
        size += len(line) + 1
    if pending:
        yield Document(id, title, "\n".join(pending), part)


def _short_lines(lines: Iterator[str] | list[str]) -> Iterator[str]:
    """Yields the non-blank lines inside `lines`, each at most PART_CHARS long."""
    for block in lines:
        for line in block.split("\n"):
            line = line.strip()
            while len(line) > PART_CHARS:
                cut = line.rfind(" ", 1, PART_CHARS)
                cut = cut if cut > 0 else PART_CHARS
                yield line[:cut]
                line = line[cut:].lstrip()
            if line:
                yield line
