"""Text and JSON-lines files, plain or packed."""

import codecs
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import zstandard
from etils import epath

from bert_lamb.data.corpus.document import Document, ReadStats, split_parts
from bert_lamb.data.corpus.packed import PACKINGS, open_unpacked
from bert_lamb.data.errors import DataError

OnError = Literal["error", "replace", "skip"]

_PIECE_BYTES = 1 << 20  # a text line is read in pieces of at most this many bytes


@dataclass(frozen=True)
class FileSplit:
    """A text or JSON-lines file.

    Attributes:
        name: its path, local or remote.
        on_error: what to do with bytes that are not UTF-8 and with lines that are not JSON
            records: stop ("error"), put U+FFFD in their place ("replace", bytes only), or leave
            out the line ("skip").
        text_field: key of the text in JSON records.
    """

    name: str
    on_error: OnError = "error"
    text_field: str = "text"

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of the file.

        Raises:
            DataError: if a file cannot be read or unpacked, or holds a fault and `on_error` is
                "error"; names the file, the line and the byte offset in the unpacked text.
        """
        file = self.name
        try:
            with open_unpacked(file) as stream:
                lines = self._lines(file, stream, stats)
                yield from (self._json if _is_json(file) else _paragraphs)(file, lines, stats)
        except (OSError, EOFError, lzma.LZMAError, zstandard.ZstdError) as error:
            raise DataError(
                f"{file}: cannot be read ({error}); check the file and its ending"
            ) from error
        stats.files += 1

    @property
    def size(self) -> int:
        """Bytes of the file as it is stored."""
        return (epath.Path(self.name) if "://" in self.name else Path(self.name)).stat().st_size

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
            yield from split_parts(str(id), str(title), [record[self.text_field]])


def _encodable(text: str) -> bool:
    """Says whether `text` has a UTF-8 form; JSON escapes can spell some that have not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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

        yield from split_parts(f"{file}:{number}", "", body())
