"""Text files, plain or packed: the reading of lines, documents divided by blank lines, whole files.

A line ends at a line feed; a carriage return before it belongs to the line end. All other
characters are left to the tokenizer, as in Google's script: a lone carriage return and U+2028 are
white space to it, and the control characters U+0085, vertical tab, form feed and NUL vanish. White
space of any kind at the two ends of a line goes, so a line of nothing else is blank.
"""

import codecs
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import BinaryIO

from bert_lamb.data.corpus import document
from bert_lamb.data.corpus.document import Document, ReadStats, split_parts
from bert_lamb.data.corpus.packed import open_unpacked, plain_name, stored_size
from bert_lamb.data.corpus.policy import OnError, mend_utf8
from bert_lamb.data.errors import DataError

_PIECE_BYTES = 1 << 20  # files are read in blocks of this size; a longer line of text is divided
_WIKIEXTRACTOR = re.compile(r"\s*<doc id=\"[^\"]*\" (?:revid=\"[^\"]*\" )?url=")
_LINE_BYTES = 1 << 28  # a line that must stay whole is refused above this


@dataclass(frozen=True)
class FileSplit(ABC):
    """A file of any kind; each kind says how documents come out of it.

    Attributes:
        name: its path, local or remote.
        on_error: what to do with faults; see policy.OnError.
    """

    name: str
    on_error: OnError = "error"

    @property
    def size(self) -> int:
        """Bytes of the file as it is stored."""
        return stored_size(self.name)

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of the file.

        Raises:
            DataError: if a file cannot be read or unpacked, or holds a fault that `on_error` does
                not pass; names the file, the line and the byte offset in the unpacked text.
        """
        with open_unpacked(self.name) as stream:
            yield from self._documents(stream, stats)
        stats.files += 1

    @abstractmethod
    def _documents(self, stream: BinaryIO, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents in `stream`, the file unpacked."""

    def _lines(
        self, stream: BinaryIO, stats: ReadStats, *, divide: bool
    ) -> Iterator[tuple[int, str | None]]:
        """Yields (line number from 1, text); None for a line left out.

        With `divide` a line over _PIECE_BYTES comes in pieces, all with its number; without, it
        comes whole, and one over _LINE_BYTES is a DataError.
        """
        blocks = self._blocks(stream, stats, divide)
        return chain.from_iterable(enumerate(lines, first) for first, lines in blocks)

    def _blocks(
        self, stream: BinaryIO, stats: ReadStats, divide: bool
    ) -> Iterator[tuple[int, list[str | None]]]:
        """Yields (number of the first line, lines) of blocks of the file.

        A block is hashed and decoded at once, since line by line takes several times as long.
        """
        number, offset, data = 1, 0, b""
        for data in _whole_lines(stream, divide, self.name):
            stats.sha256.update(data)
            stats.bytes += len(data)
            body = data.removeprefix(codecs.BOM_UTF8) if offset == 0 else data
            start = offset + len(data) - len(body)
            ends = data.count(b"\n")
            stats.lines += ends
            lines: list[str | None]
            try:
                lines = list(body.decode("utf-8").split("\n"))
                if body.endswith(b"\n"):
                    lines.pop()
            except UnicodeDecodeError:
                lines = self._mended(body, number, start, stats)
            yield number, lines
            number += ends
            offset += len(data)
        stats.lines += bool(data) and not data.endswith(b"\n")

    def _mended(self, body: bytes, number: int, start: int, stats: ReadStats) -> list[str | None]:
        """Returns the lines of a block that holds a fault."""
        lines: list[str | None] = []
        for line in io.BytesIO(body):
            try:
                lines.append(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                place = f"{self.name}, line {number}"
                lines.append(mend_utf8(line, error, place, start, self.on_error, stats))
            number += 1
            start += len(line)
        return lines


@dataclass(frozen=True)
class TextSplit(FileSplit):
    """A text file whose documents are divided by blank lines.

    Attributes:
        is_guess: nothing but the lack of a known ending says that it is one.
    """

    is_guess: bool = False

    def _documents(self, stream: BinaryIO, stats: ReadStats) -> Iterator[Document]:
        lines = self._lines(stream, stats, divide=True)
        if self.is_guess:
            lines = self._checked(lines)
        pending: list[str] = []
        size, first = 0, 0
        for number, line in lines:
            if line is None:
                continue
            line = line.strip()
            if line:
                first = first if pending else number
                pending.append(line)
                size += len(line) + 1
                if size > document.PART_CHARS:
                    rest = chain(pending, _until_blank(lines))
                    yield from split_parts(f"{self.name}:{first}", "", rest)
                    pending, size = [], 0
            elif pending:
                yield Document(f"{self.name}:{first}", "", "\n".join(pending))
                pending, size = [], 0
        if pending:
            yield Document(f"{self.name}:{first}", "", "\n".join(pending))

    def _checked(self, lines: Iterator[tuple[int, str | None]]) -> Iterator[tuple[int, str | None]]:
        """Yields the lines, unless the first one is WikiExtractor's."""
        for number, line in lines:
            if number == 1 and line and _WIKIEXTRACTOR.match(line):
                raise DataError(
                    f"{self.name}: begins as WikiExtractor's output; write wikiextractor: in front "
                    "of the source, or text: to take its tags for text"
                )
            yield number, line


@dataclass(frozen=True)
class WholeSplit(FileSplit):
    """A text file that is one document; its title is the file's name without endings."""

    def _documents(self, stream: BinaryIO, stats: ReadStats) -> Iterator[Document]:
        lines = self._lines(stream, stats, divide=True)
        texts = (line for _, line in lines if line is not None)
        empty = True
        for part in split_parts(self.name, PurePath(plain_name(self.name)).stem, texts):
            empty = False
            yield part
        if empty:
            stats.skip("no text")


def _until_blank(lines: Iterator[tuple[int, str | None]]) -> Iterator[str]:
    for _, line in lines:
        if line is not None:
            if not line.strip():
                return
            yield line


def _whole_lines(stream: BinaryIO, divide: bool, file: str) -> Iterator[bytes]:
    """Yields blocks of whole lines, or with `divide` pieces of lines too long for a block."""
    pending: list[bytes] = []
    size, number = 0, 1
    while data := stream.read(_PIECE_BYTES):
        cut = data.rfind(b"\n") + 1
        pending.append(data[:cut] if cut else data)
        size += len(data)
        if not cut and not divide:
            if size > _LINE_BYTES:
                raise DataError(
                    f"{file}, line {number}: longer than {_LINE_BYTES} bytes; expected one record "
                    "a line; divide the file into lines"
                )
            continue
        block = b"".join(pending)
        rest = data[cut:] if cut else b""
        if not cut:
            if size < _PIECE_BYTES:
                continue
            cut = _cut_after_word(block)
            block, rest = block[:cut], block[cut:]
        yield block
        number += block.count(b"\n")
        pending, size = [rest] if rest else [], len(rest)
    if pending:
        yield b"".join(pending)


def _cut_after_word(block: bytes) -> int:
    """Returns where to cut a line: after its last space, or else before its last character."""
    cut = block.rfind(b" ") + 1
    if not cut:  # no space in a megabyte: cut where no UTF-8 character is torn
        cut = len(block) - 1
        while cut > max(1, len(block) - 4) and block[cut] & 0xC0 == 0x80:
            cut -= 1
    return cut
