"""JSON lines: one record a line, its text under one key."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from bert_lamb.data.corpus.document import Document, ReadStats, whole_or_parts
from bert_lamb.data.corpus.files import FileSplit
from bert_lamb.data.corpus.policy import without_surrogates
from bert_lamb.data.errors import DataError

# JSON can spell halves of surrogate pairs, which have no UTF-8 form.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class JsonLinesSplit(FileSplit):
    """A file with one document a line, as a JSON object.

    The keys "id" and "title" are taken where present. Lines that are no such record are faults,
    which `on_error` "skip" leaves out; records with a blank text are counted as "no text".

    Attributes:
        text_field: key of the text.
    """

    text_field: str = "text"

    def _documents(self, stream: BinaryIO, stats: ReadStats) -> Iterator[Document]:
        for number, line in self._lines(stream, stats, divide=False):
            if line is None or not line or line.isspace():
                continue
            try:
                record = json.loads(line)
                text = record[self.text_field]
                good = type(text) is str
            except (ValueError, KeyError, TypeError, RecursionError):
                good = False
            if not good or ("\\u" in line and _SURROGATE.search(line)):
                record = self._mended_record(line, number, stats)
                if record is None:
                    continue
                text = record[self.text_field]
            id, title = record.get("id"), record.get("title")
            id = f"{self.name}:{number}" if id is None else str(id)
            documents = whole_or_parts(id, "" if title is None else str(title), text)
            if not documents:
                stats.skip("no text")
            yield from documents

    def _mended_record(self, line: str, number: int, stats: ReadStats) -> dict[str, Any] | None:
        """Returns a suspicious line's record, None if it is left out."""
        place = f"{self.name}, line {number}"
        record, problem = self._problem(line)
        if record is not None and problem and self.on_error == "replace":
            stats.fault(f"{place}: {problem}")
            problem = ""
        if problem:
            stats.fault(f"{place}: {problem}")
            if self.on_error != "skip":
                raise DataError(f"{place}: {problem}; mend the line, or skip it (--on-error=skip)")
            stats.lines_skipped += 1
            stats.bytes_dropped += len(line.encode())
            return None
        assert record is not None
        names = {"id", "title", self.text_field} & record.keys()
        return {key: _mended_value(record[key]) for key in names}

    def _problem(self, line: str) -> tuple[dict[str, Any] | None, str]:
        """Returns (a record with a text, or None; what is wrong with the line)."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            return None, f"not a JSON record ({error}); expected one JSON object a line"
        if not isinstance(record, dict):
            return None, f"expected a JSON object, got {type(record).__name__}"
        text = record.get(self.text_field)
        if not isinstance(text, str):
            found = f"{self.text_field!r} holds {text!r:.40}"
            keys = ", ".join(map(repr, record)) or "no keys"
            absent = f"no key {self.text_field!r} (the record has {keys:.200})"
            return None, f"{found if self.text_field in record else absent}; expected a string"
        try:
            text.encode()
        except UnicodeEncodeError:
            return record, "the text holds half of a surrogate pair (a lone \\ud800-\\udfff)"
        return record, ""


def _mended_value(value: Any) -> Any:
    return without_surrogates(value) if isinstance(value, str) else value
