"""Rows of tables as documents, and the columns they come from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bert_lamb.data.corpus.document import Document, ReadStats, whole_or_parts
from bert_lamb.data.corpus.policy import OnError, mend_utf8
from bert_lamb.data.errors import DataError


@dataclass(frozen=True)
class Rows:
    """Turns the rows of one file into documents, one a row.

    Attributes:
        file: its name, for messages and for ids where the table has none.
        on_error: what to do with text that is not UTF-8; see policy.OnError.
    """

    file: str
    on_error: OnError

    def documents(
        self, row: int, id: object, title: object, text: bytes | None, stats: ReadStats
    ) -> Iterable[Document]:
        """Returns the documents of a row and counts it into `stats`.

        Args:
            row: its number from 0.
            id: value of the column "id", None without it.
            title: value of the column "title", None without it.
            text: UTF-8; None and blank ones are skipped as "no text".
            stats: of the split.

        Raises:
            DataError: for text that is not UTF-8, unless `on_error` passes it.
        """
        key, name = _label(id, f"{self.file}:{row}"), _label(title, "")
        size = -1 if text is None else len(text)
        # With the lengths, text moved from one field or row to the next changes the hash.
        head = f"{len(key)} {len(name)} {size}\n{'' if id is None else key}\n{name}\n"
        stats.sha256.update(head.encode())
        stats.lines += 1
        if text is None:
            stats.skip("no text")
            return ()
        stats.sha256.update(text)
        stats.bytes += len(text)
        decoded: str | None
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            decoded = mend_utf8(text, error, f"{self.file}, row {row}", 0, self.on_error, stats)
            if decoded is None:
                return ()
        documents = whole_or_parts(key, name, decoded)
        if not documents:
            stats.skip("no text")
        return documents


def check_text_column(file: str, text_field: str, columns: Sequence[str]) -> None:
    """Raises DataError if a table has no column `text_field`; the message lists those it has."""
    if text_field not in columns:
        raise DataError(
            f"{file}: no column {text_field!r}; it has {', '.join(map(repr, columns)) or 'none'}; "
            "name the one with the text (--text-field)"
        )


def _label(value: object, default: str) -> str:
    if value is None:
        return default
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
