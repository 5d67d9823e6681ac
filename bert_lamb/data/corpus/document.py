"""Documents, the sources they come from, and what reading met with."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bert_lamb.data.errors import DataError

# A document longer than this comes in several parts, so that no buffer depends on its length.
PART_CHARS = 1 << 19
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


class _Digest(Protocol):
    """What is used of a hash object of hashlib."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class _FinishedDigest:
    """The result of a hash that came from another process; nothing can be added to it."""

    hex: str

    def update(self, data: bytes, /) -> None:
        raise TypeError("these statistics came through pickle; read into new ones and add them")

    def hexdigest(self) -> str:
        return self.hex


@dataclass
class ReadStats:
    """What reading a source met with; filled while it is read.

    It goes to other processes by pickle. What arrives there keeps the hash's value and can be
    added to other statistics, but no more can be read into it.

    Attributes:
        files: files or shards read to their end.
        bytes: bytes read, after unpacking. Of tables (Parquet, Arrow, TFDS) only the texts count.
        lines: lines read; of tables, rows.
        lines_skipped: lines or rows left out for a fault (on_error "skip").
        bytes_dropped: bytes of faulty text that were replaced or left out.
        skipped: documents left out for other causes than a fault, by cause: "redirect", "no text".
        faults: the first few faults in words: file, line, byte offset.
        sha256: hash of all bytes read, in order. Of tables: of the rows' ids, titles and texts.
    """

    files: int = 0
    bytes: int = 0
    lines: int = 0
    lines_skipped: int = 0
    bytes_dropped: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    sha256: _Digest = field(default_factory=hashlib.sha256)

    def fault(self, message: str) -> None:
        """Keeps `message` if it is among the first few."""
        if len(self.faults) < _SHOWN_FAULTS:
            self.faults.append(message)

    def skip(self, cause: str) -> None:
        """Counts a document that was left out for `cause`."""
        self.skipped[cause] = self.skipped.get(cause, 0) + 1

    def add(self, other: "ReadStats") -> None:
        """Adds the counts and faults of `other`. The hashes of several splits do not add up."""
        self.files += other.files
        self.bytes += other.bytes
        self.lines += other.lines
        self.lines_skipped += other.lines_skipped
        self.bytes_dropped += other.bytes_dropped
        for cause, count in other.skipped.items():
            self.skipped[cause] = self.skipped.get(cause, 0) + count
        for message in other.faults:
            self.fault(message)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "sha256": _FinishedDigest(self.sha256.hexdigest())}


class Split(Protocol):
    """A part of a source that is read on its own: a file, most often.

    Splits go to other processes by pickle, and reading one again gives the same documents.
    """

    @property
    def name(self) -> str:
        """What to call it in messages: the path of the file, most often."""

    @property
    def size(self) -> int:
        """Bytes as stored; a hint for dividing work and showing progress."""

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents in a fixed order and counts into `stats`."""


@dataclass(frozen=True)
class Source:
    """What a user named as one source of text.

    Attributes:
        name: the source as the user wrote it.
        splits: its parts in the order in which they are read; at least one.
        weight: times its documents are used; a fraction takes that share of them.
    """

    name: str
    splits: tuple[Split, ...]
    weight: float = 1.0

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of all splits, each once whatever the weight."""
        for split in self.splits:
            yield from split.read(stats)


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


def split_parts(id: str, title: str, lines: Iterable[str]) -> Iterator[Document]:
    """Yields the text of `lines` in parts of about PART_CHARS, cut at line ends or else spaces.

    Blank lines go, and white space at both ends of a line; other characters stay as they are.
    """
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


def whole_or_parts(id: str, title: str, text: str) -> Iterable[Document]:
    """Returns the documents `split_parts` makes of a text at hand; faster for short ones."""
    if len(text) > PART_CHARS:
        return split_parts(id, title, [text])
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    return (Document(id, title, "\n".join(lines)),) if lines else ()


def _short_lines(lines: Iterable[str]) -> Iterator[str]:
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
