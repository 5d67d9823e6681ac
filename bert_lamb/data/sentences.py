"""Sentence splitting, by the rules of sentencex (Wikimedia).

Sentences are the units of next-sentence prediction: pairs are cut between them (Devlin et al.,
2018, section 3.1, task 2). docs/results/sentence_splitting compares the library with others and
with what is made of it here: quotation marks are hidden from its rules, and long lines are cut.
"""
# ruff: noqa: RUF001 (curly quotes are meant)

import difflib
import re
from collections.abc import Iterator

import sentencex

from bert_lamb.data.errors import DataError

# The languages that sentencex 1.0.32 has rules for. It takes any other code without a word and
# applies the rules of a relative or, mostly, of English.
# fmt: off
LANGUAGES = (
    "am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it",
    "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk",
)
# fmt: on

# Characters of a line after which it is cut at the next plain end of a sentence. Paragraphs are
# shorter (in 24 MB of Wikipedia and books the longest has 5,733 characters); in a chapter on one
# line, one list "(1) ... (2) ..." would make a single sentence of all that follows.
LONG_LINE = 10_000

_DOUBLE_QUOTES = "“”„«»"
_OPENING_QUOTES = "“„«‘"
# What belongs to the sentence before a cut: quotes that touch it, and a French one after a blank.
_CLOSED = re.compile(r"[\"“”„«»'‘’`]*(?:\s+»(?=\s))?")
_STOP_AND_BLANK = frozenset((". ", "! ", "? "))
_PLAIN_END = re.compile(r"[.!?][\"“”»'’)\]]*\s+(?![a-z])|[。！？।۔](?=\w)")
# Between an initial and its stop, a blank outside ASCII makes sentencex 1.0.32 panic. The first
# pattern is the fast one, since it looks for stops; the second finds the blank.
_WIDE_BLANK_STOP = re.compile(r"\.(?<=[^\S\x00-\x7f]\.)")
_WIDE_BLANK = re.compile(r"[^\S\x00-\x7f](?=\.)")


def check_language(code: str) -> str:
    """Returns the code, if there are rules for its language.

    Raises:
        DataError: there are none; the message names codes that are near, and the remedy.
    """
    if code in LANGUAGES:
        return code
    base = re.split("[-_]", code.lower())[0]
    near = [base] if base in LANGUAGES else difflib.get_close_matches(base, LANGUAGES)
    raise DataError(
        f"language {code!r} has no sentence rules"
        + (f"; did you mean {' or '.join(map(repr, near))}?" if near else ".")
        + f" Expected one of {' '.join(LANGUAGES)}. Take 'en' for another language: it knows the "
        "full stops of all scripts, but English abbreviations only"
    )


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Splits text into sentences; none crosses a line end, and none is blank.

    Only blanks are lost: without them, the sentences joined are the text. A document that has one
    sentence a line stays as it is unless a line holds several.

    Args:
        text: a document; line feeds divide its lines.
        language: a code that `check_language` accepts.

    Returns:
        Sentences in order, without blanks at their ends.

    Raises:
        DataError: a language without rules, or half of a surrogate pair in the text.
    """
    check_language(language)
    sentences: list[str] = []
    for line in text.split("\n"):
        if len(line) <= LONG_LINE:
            sentences += _split_line(line, language)
        else:
            for piece in _cut_long_line(line):
                sentences += _split_line(piece, language)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _cut_long_line(line: str) -> Iterator[str]:
    """Yields pieces of a line that end where a sentence most likely does, each a little too long.

    A line without such ends stays whole.
    """
    start = 0
    while len(line) - start > LONG_LINE:
        match = _PLAIN_END.search(line, start + LONG_LINE)
        if match is None:
            break
        yield line[start : match.end()]
        start = match.end()
    yield line[start:]


def _split_line(line: str, language: str) -> list[str]:
    """Returns the sentences of a line, which joined are the line.

    sentencex sees the line with blanks for quotes; its cuts are moved to where the quotes belong.
    """
    shown = _hide_quotes(line)
    try:
        parts = sentencex.segment(language, shown)
    except BaseException as error:
        parts = _split_after_failure(shown, error)
    if sum(map(len, parts)) != len(line):  # never seen; nothing may be lost if it happens
        parts = _split_plainly(shown)
    if shown == line or len(parts) == 1:
        return parts if shown == line else [line]
    sentences = []
    start = end = 0
    for part in parts[:-1]:
        end += len(part)
        cut = end
        if line[end - 2 : end] not in _STOP_AND_BLANK:
            gap = line[end - len(part) + len(part.rstrip()) : end]
            closed = _CLOSED.match(gap).end()  # type: ignore[union-attr]  # matches nothing too
            if closed and line[end].islower():
                continue  # “Who is it?” asked Alice.
            if gap.strip():
                touches_next = closed == len(gap) and gap[-1] in _OPENING_QUOTES
                cut += closed - touches_next - len(gap)
        sentences.append(line[start:cut])
        start = cut
    sentences.append(line[start:])
    return sentences


def _hide_quotes(line: str) -> str:
    """Returns the line with blanks for quotation marks, character by character.

    Within quotes sentencex never cuts: a speech of ten sentences would be one, and a mark without
    its partner would join all sentences up to the next. Single marks that are only apostrophes
    stay.
    """
    shown = line.replace('"', " ")
    if not line.isascii():
        for mark in _DOUBLE_QUOTES:
            shown = shown.replace(mark, " ")
        if "‘" in shown:
            shown = shown.replace("‘", " ").replace("’", " ")
        if _WIDE_BLANK_STOP.search(shown):
            shown = _WIDE_BLANK.sub(" ", shown)
    if "'" in shown and (" '" in shown or shown[0] == "'" or "`" in shown):
        shown = shown.replace("'", " ").replace("`", " ")
    return shown


def _split_after_failure(line: str, error: BaseException) -> list[str]:
    """Returns the sentences between plain ends if the library panicked; raises otherwise.

    One odd line of a large corpus must not end a build. The panic itself is printed by Rust.
    """
    if isinstance(error, UnicodeEncodeError):
        around = line[max(0, error.start - 20) : error.end]
        raise DataError(
            f"text {around!r} ends in half of a surrogate pair: expected Unicode text; decode it "
            "with errors='replace'"
        ) from error
    # No Exception, and a class that cannot be imported.
    if type(error).__name__ != "PanicException":
        raise error
    return _split_plainly(line)


def _split_plainly(line: str) -> list[str]:
    ends = [match.end() for match in _PLAIN_END.finditer(line)]
    return [line[i:j] for i, j in zip([0, *ends], [*ends, len(line)], strict=True)]
