"""What becomes of faulty text: stop, mend or leave out, and count."""

from typing import Literal

from bert_lamb.data.corpus.document import ReadStats
from bert_lamb.data.errors import DataError

# Stop ("error"), put U+FFFD in the place of bytes that are not UTF-8 ("replace"), or leave out the
# line or row ("skip").
OnError = Literal["error", "replace", "skip"]


def check_on_error(on_error: str) -> None:
    """Raises DataError for an unknown policy."""
    if on_error not in ("error", "replace", "skip"):
        raise DataError(f"on_error = {on_error!r}: expected error, replace or skip")


def mend_utf8(
    body: bytes, error: UnicodeDecodeError, place: str, start: int, on_error: OnError,
    stats: ReadStats,
) -> str | None:  # fmt: skip
    """Returns the text of faulty UTF-8 as `on_error` wants it, None if it is left out.

    Args:
        body: the line or row.
        error: what decoding it said.
        place: its file and line, for the message.
        start: byte offset of `body` in what `place` names.
        on_error: what to do.
        stats: takes the fault and the bytes dropped.

    Raises:
        DataError: if `on_error` is "error"; names place, byte offset and bytes.
    """
    bad = body[error.start : error.end].hex(" ")
    message = f"{place}, byte {start + error.start}: {bad} is not UTF-8 ({error.reason})"
    stats.fault(message)
    if on_error == "error":
        raise DataError(f"{message}; convert the file, or go on with --on-error=replace or skip")
    if on_error == "skip":
        stats.lines_skipped += 1
        stats.bytes_dropped += len(body)
        return None
    stats.bytes_dropped += len(body) - len(body.decode("utf-8", "ignore").encode())
    return body.decode("utf-8", "replace")


def without_surrogates(text: str) -> str:
    """Replaces halves of surrogate pairs, which have no UTF-8 form, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
