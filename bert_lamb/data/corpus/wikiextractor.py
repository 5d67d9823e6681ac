"""What WikiExtractor writes: articles between <doc ...> and </doc>."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from bert_lamb.data.corpus.document import Document, ReadStats, split_parts
from bert_lamb.data.corpus.files import FileSplit
from bert_lamb.data.errors import DataError

# A title with quotes in it is not always escaped, so it ends at the last quote of the line.
_BEGIN = re.compile(r'<doc id="([^"<>]*)"(?: \w+="[^"]*")* title="(.*)">')
# The only entities that WikiExtractor writes into an article's text.
_ENTITIES = re.compile("&(?:lt|gt|amp);")


@dataclass(frozen=True)
class WikiExtractorSplit(FileSplit):
    """A file of WikiExtractor's standard output (its --json output is JSON lines).

    The title, which WikiExtractor repeats as the first line of each text, is taken off there. A
    missing </doc>, text outside of <doc> and a <doc> without id or title are faults. With
    `on_error` "skip" a document without </doc> ends where the next begins, and lines outside of
    documents are left out.
    """

    def _documents(self, stream: BinaryIO, stats: ReadStats) -> Iterator[Document]:
        lines = _Lines(self._lines(stream, stats, divide=True))
        for number, line in lines:
            begin = _BEGIN.fullmatch(line)
            if begin is None:
                self._fault(stats, number, f"expected <doc id=... title=...>, got {line:.60}", line)
                continue
            title = html.unescape(begin[2])
            empty = True
            for part in split_parts(begin[1], title, self._body(lines, number, title, stats)):
                empty = False
                yield part
            if empty:
                stats.skip("no text")

    def _body(self, lines: "_Lines", begin: int, title: str, stats: ReadStats) -> Iterator[str]:
        first = True
        for number, line in lines:
            if line == "</doc>":
                return
            if _BEGIN.fullmatch(line):
                self._fault(stats, number, f"<doc> inside the <doc> of line {begin}")
                lines.push(number, line)
                return
            if "&" in line:
                line = _ENTITIES.sub(lambda match: html.unescape(match[0]), line)
            if not (first and line == title):
                yield line
            first = False
        self._fault(stats, begin, "the file ends before the </doc> of this <doc>")

    def _fault(self, stats: ReadStats, number: int, problem: str, line: str = "") -> None:
        message = f"{self.name}, line {number}: {problem}"
        stats.fault(message)
        if self.on_error != "skip":
            raise DataError(
                f"{message}; extract again, or go on with --on-error=skip; other text files are "
                "read with text: in place of wikiextractor:"
            )
        if line:
            stats.lines_skipped += 1
            stats.bytes_dropped += len(line.encode())


class _Lines:
    """The lines that are not blank, stripped; one can be put back."""

    def __init__(self, lines: Iterator[tuple[int, str | None]]) -> None:
        self._lines = lines
        self._pushed: list[tuple[int, str]] = []

    def push(self, number: int, line: str) -> None:
        self._pushed.append((number, line))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while True:
            if self._pushed:
                yield self._pushed.pop()
                continue
            number, line = next(self._lines, (0, ""))
            if not number:
                return
            if line and (line := line.strip()):
                yield number, line
