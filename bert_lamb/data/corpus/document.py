"""Documents, the sources they come from, and what reading met with."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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


def split_parts(id: str, title: str, lines: Iterator[str] | list[str]) -> Iterator[Document]:
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
