"""Tokens of a raw text with the place of each in that text.

A tokenizer changes a text before it cuts it: it removes control characters and accents, lowers
case, composes and expands characters. An answer has to be a slice of the raw context all the same.
What one character, or one letter with its marks, becomes does not depend on its neighbours but for
the form of a Greek sigma, which is one character either way. So the tokenizer's own rules, applied
piece by piece, tell which raw characters stand behind each character that was cut into tokens.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import SentencePiece, TextOptions, Tokenizer, WordPiece
from bert_lamb.data.tokenization.model_proto import SPACE_MARK
from bert_lamb.data.tokenization.text import normalize, split_words
from bert_lamb.data.tokenization.wordpiece_json import PREFIX

_KEPT = 1 << 20  # characters of text whose tokens are remembered, about 150 MB at most
_KEPT_CLUSTERS = 1 << 16
_AT_ONCE = 256
# Invisible parts of the letter or emoji before them: joiners and the letters of flags.
_JOINERS = "\u200c\u200d\U000e0020-\U000e007f"
_JOINER = re.compile(f"[{_JOINERS}]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Tokens:
    """The tokens of one text.

    Token i is made of the raw characters text[starts[i] : ends[i]]. Two tokens share a character
    where one expands to several (the ligature "ﬁ" in some models). A token that is nothing but a
    space has its start behind its end: a slice then neither begins nor ends with the space.

    Attributes:
        ids: as `Tokenizer.encode_batch` gives them. int32 [n]
        starts: first raw character of each token; never decreases. int32 [n]
        ends: behind the last raw character of each token; never decreases. int32 [n]
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def cover(self, start: int, end: int) -> tuple[int, int] | None:
        """Returns the first and the last token that hold any of the characters start to end - 1.

        None where no token does. The tokens may hold more than these characters: "1990" in "1990s"
        has no token of its own in most vocabularies.
        """
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.starts, end, side="left")) - 1
        return (first, last) if first <= last else None


class Aligner:
    """Encodes texts with one tokenizer and says where each token came from."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer.

        Raises:
            DataError: for a tokenizer that is neither WordPiece nor SentencePiece.
        """
        if isinstance(tokenizer, WordPiece):
            self._encode: Callable[[Sequence[str]], Iterable[_Spans]]
            self._encode = _WordPieceAligner(tokenizer).encode
        elif isinstance(tokenizer, SentencePiece):
            self._encode = _SentencePieceAligner(tokenizer).encode
        else:
            raise DataError(
                f"tokenizer of type {type(tokenizer).__name__}: the place of its tokens in a text "
                "is not known; use WordPiece or SentencePiece"
            )

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Returns the tokens of each text with their places."""
        result = []
        for first in range(0, len(texts), _AT_ONCE):
            some = texts[first : first + _AT_ONCE]
            result += [
                _tokens(t, *spans) for t, spans in zip(some, self._encode(some), strict=True)
            ]
        return result


def _tokens(text: str, ids: list[int], starts: list[int], ends: list[int]) -> Tokens:
    begins = np.array(starts, np.int32)
    # Marks that change places within a letter are the only ones out of order.
    begins = np.minimum.accumulate(begins[::-1])[::-1]
    stops = np.maximum.accumulate(np.array(_with_marks(text, starts, ends), np.int32))
    return Tokens(np.array(ids, np.int32), begins, stops)


_Spans = tuple[list[int], list[int], list[int]]  # ids, starts, ends


class _WordPieceAligner:
    """Aligns stretches between spaces, most of which come again and again."""

    def __init__(self, tokenizer: WordPiece) -> None:
        self._tokenizer = tokenizer
        self._origins = _Origins(lambda text: "".join(split_words(text, tokenizer.options)))
        self._known: dict[str, _Spans] = {}
        self._held = 0  # characters of the stretches in it

    def encode(self, texts: Sequence[str]) -> Iterator[_Spans]:
        self._learn({stretch for text in texts for stretch in text.split(" ")})
        return map(self._join, texts)

    def _join(self, text: str) -> _Spans:
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        at = 0
        for stretch in text.split(" "):  # no rule looks across a space
            new_ids, new_starts, new_ends = self._known[stretch]
            ids += new_ids
            starts += [at + start for start in new_starts]
            ends += [at + end for end in new_ends]
            at += len(stretch) + 1
        return ids, starts, ends

    def _learn(self, stretches: set[str]) -> None:
        if self._held > _KEPT:
            self._known, self._held = {}, 0
        new = list(stretches - self._known.keys())
        for stretch, ids in zip(new, self._tokenizer.encode_batch(new), strict=True):
            self._known[stretch] = self._align(stretch, ids)
            self._held += len(stretch)

    def _align(self, text: str, ids: list[int]) -> _Spans:
        words = split_words(text, self._tokenizer.options)
        lows, highs = self._origins.of(text, sum(map(len, words)))
        tokens, unknown = self._tokenizer.tokens, self._tokenizer.unk_id
        starts, ends = [], []
        left = iter(ids)
        place = 0
        for word in words:
            begin, end = place, place + len(word)
            while place < end:
                id = next(left)
                length = len(tokens[id]) - len(PREFIX) * (place > begin)
                stop = end if id == unknown else place + length
                starts.append(min(lows[place:stop]))
                ends.append(max(highs[place:stop]))
                place = stop
        return ids, starts, ends


class _SentencePieceAligner:
    """The library says where its tokens are in the text that it got; that text is aligned here."""

    def __init__(self, tokenizer: SentencePiece) -> None:
        self._tokenizer = tokenizer
        options = tokenizer.options
        self._origins = None if options is None else _Origins(lambda t: normalize(t, options))

    def encode(self, texts: Sequence[str]) -> Iterator[_Spans]:
        return map(self._align, texts)

    def _align(self, text: str) -> _Spans:
        if self._origins is None:  # the model has rules of its own, and knows what they did
            given = text.encode("utf-8", "replace").decode()  # a lone surrogate is one "?"
            lows, highs = list(range(len(text))), list(range(1, len(text) + 1))
        else:
            given = normalize(text, self._options)
            lows, highs = self._origins.of(text, len(given))
        ids, pieces, places = self._tokenizer.encode_with_places(given)
        places = _whole_characters(pieces, places)
        starts, ends = [], []
        for piece, (begin, end) in zip(pieces, places, strict=True):
            low, high = _without_space(given, begin, end) if SPACE_MARK in piece else (begin, end)
            starts.append(lows[low] if low < len(given) else len(text))
            ends.append(highs[high - 1] if high else 0)
        return ids, starts, ends

    @property
    def _options(self) -> TextOptions:
        assert self._tokenizer.options is not None
        return self._tokenizer.options


def _whole_characters(pieces: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Gives each token for one byte of a character the place of the character.

    The library gives the place to the last of the bytes only.
    """
    result = list(offsets)
    for i in range(len(result) - 2, -1, -1):
        begin, end = result[i]
        is_part = begin == end and _BYTE.fullmatch(pieces[i]) and _BYTE.fullmatch(pieces[i + 1])
        if is_part and result[i + 1][0] == begin:
            result[i] = result[i + 1]
    return result


def _without_space(text: str, begin: int, end: int) -> tuple[int, int]:
    """Leaves the space out that a token begins with; a token of nothing else ends before it."""
    token = text[begin:end]
    return end - len(token.lstrip()), begin + len(token.rstrip())


class _Origins:
    """Which raw characters stand behind each character of a changed text."""

    def __init__(self, change: Callable[[str], str]) -> None:
        """Takes the change, which must act on each letter with its marks apart."""
        self._change = change
        self._known: dict[str, tuple[str, list[int], list[int]]] = {}

    def of(self, text: str, length: int) -> tuple[list[int], list[int]]:
        """Returns (first raw character, behind the last one) for each changed character.

        Args:
            text: the raw text.
            length: of the changed text.
        """
        if length == len(text) and text.isascii():
            return list(range(length)), list(range(1, length + 1))
        lows: list[int] = []
        highs: list[int] = []
        at = 0
        for cluster in _clusters(text):
            _, new_lows, new_highs = self._cluster(cluster)
            lows += [at + low for low in new_lows]
            highs += [at + high for high in new_highs]
            at += len(cluster)
        if len(lows) != length:
            raise DataError(
                f"text {text[:60]!r}: its tokens cannot be traced back to its characters "
                f"({len(lows)} of them instead of {length}); please report this text"
            )
        return lows, highs

    def _cluster(self, text: str) -> tuple[str, list[int], list[int]]:
        known = self._known.get(text)
        if known is None:
            known = self._trace(text)
            if len(self._known) >= _KEPT_CLUSTERS:
                self._known.clear()
            self._known[text] = known
        return known

    def _trace(self, text: str) -> tuple[str, list[int], list[int]]:
        changed = self._change(text)
        if len(text) > 1:
            single = [self._cluster(character) for character in text]
            if "".join(part for part, _, _ in single) == changed:
                lows = [i for i, (part, _, _) in enumerate(single) for _ in part]
                return changed, lows, [low + 1 for low in lows]
        return changed, [0] * len(changed), [len(text)] * len(changed)


def _clusters(text: str) -> list[str]:
    """Cuts a text before each character that cannot change what is left of it."""
    if text.isascii():
        return list(text)
    found: list[str] = []
    begin = 0
    for i, character in enumerate(text):
        if i > begin and not _may_join(character):
            found.append(text[begin:i])
            begin = i
    return [*found, text[begin:]]


def _may_join(character: str) -> bool:
    """Whether a character may become one with those before it.

    Marks and the vowels and final consonants of Hangul; characters that are removed may stand in
    between.
    """
    if character.isascii():
        return not character.isprintable() and character not in "\t\n\r"
    category = unicodedata.category(character)
    is_jamo = "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    return category[0] == "M" or category in ("Cc", "Cf", "Cs") or character == "\ufffd" or is_jamo


def _with_marks(text: str, starts: list[int], ends: list[int]) -> list[int]:
    """Lets tokens end behind the accents and joiners that were removed after their last letter."""
    if text.isascii() or not ends:
        return ends
    result = []
    for end, following in zip(ends, [*starts[1:], len(text)], strict=True):
        stop = end
        while 0 < stop < following and _belongs_to_last(text[stop]):
            stop += 1
        result.append(stop)
    return result


def _belongs_to_last(character: str) -> bool:
    if character.isascii():
        return False
    return unicodedata.category(character)[0] == "M" or bool(_JOINER.match(character))
