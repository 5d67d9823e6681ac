"""What happens to a text before it is cut into pieces: cleaning, case, accents, composition.

References:
    Google's BasicTokenizer (google-research/bert, tokenization.py). The classes of characters are
    those of the Unicode version of this Python, as they are in Google's code.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# All of categories Cc and Cf in Unicode up to 16, and a little more; what this Python's tables
# say decides. (Walking through all of Unicode would cost each process a tenth of a second.)
_CANDIDATES = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x600, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F),
    (0x890, 0x8E2), (0x180E, 0x180E), (0x200B, 0x206F), (0xFEFF, 0xFEFF), (0xFFF0, 0xFFFD),
    (0x110BD, 0x110CD), (0x13430, 0x13455), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
    (0xE0001, 0xE007F),
)  # fmt: skip
_JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner
_CJK = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_SEPARATORS = "\u2028\u2029"
_SIGN_SCRIPTS = re.compile(
    "[\u0590-\u07ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1a00-\u1aff]"
)
_LAST_BASIC = "\uffff"
_SPACE_MARK = "\u2581"  # stands for a space in SentencePiece's tokens

# A table of characters holds at most this many entries (4 MB); the rest is looked up each time.
_TABLE = 1 << 16


@dataclass(frozen=True)
class TextOptions:
    """How a text is changed before it is cut into pieces. The defaults are BERT uncased.

    Attributes:
        lowercase: lower-case by Python's rules (Unicode's, with the Greek final sigma).
        strip_accents: remove nonspacing marks after decomposing: é becomes e. None does it where
            `lowercase` does its part, as Google's code and Hugging Face's do. The vowel signs of
            Devanagari, Thai, Arabic and many other scripts are such marks: set False for them.
        nfc: compose characters (NFC) after cleaning, so that e followed by U+0301 equals é.
            Google's code does not, transformers' BertTokenizer does; without effect on nearly all
            text where accents are stripped.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    nfc: bool = False

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed: `strip_accents`, or what `lowercase` makes of None."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


CASED = TextOptions(lowercase=False)


def count_removed(text: str, keep_joiners: bool = False) -> int:
    """Counts the characters of `text` that cleaning removes, without a space in their place.

    Those are U+FFFD, lone surrogates, and the control and format characters (Cc, Cf) but for tab
    and line ends. A word divided by one of them alone becomes one: "the<U+0085>dog" is "thedog".

    Args:
        text: as read.
        keep_joiners: whether U+200C and U+200D stay, as they do for SentencePiece.
    """
    if text.isascii() and text.replace("\n", "").isprintable():  # most of English
        return 0
    removed = len(_REMOVED_BASIC.findall(text))
    if _BEYOND.search(text):
        removed += len(_REMOVED_BEYOND.findall(text))
    if keep_joiners and removed:
        removed -= sum(map(text.count, _JOINERS))
    return removed


def vowel_sign_share(tokens: Iterable[str]) -> float:
    """Returns the share of the letters that are of a script whose vowel signs are stripped.

    In such scripts (of India and South East Asia, Thai, Arabic, Hebrew) stripping "accents" takes
    vowels away.
    """
    letters = [c for token in tokens for c in token if c.isalpha()]
    return len(_SIGN_SCRIPTS.findall("".join(letters))) / max(1, len(letters))


def split_words(text: str, options: TextOptions) -> list[str]:
    """Cuts `text` into words and punctuation marks as Google's BasicTokenizer does.

    The steps are Google's, taken for the whole text at once: none of them looks across a space.
    """
    if text.isascii() and text.isprintable():
        return _ASCII_WORD.findall(text.lower() if options.lowercase else text)
    text = text.translate(_CLEAN_APART)
    if options.nfc:
        text = unicodedata.normalize("NFC", text)
    if options.lowercase:
        text = text.lower()
    if options.strips_accents:
        text = unicodedata.normalize("NFD", text).translate(_MARKS_OUT_APART)
    else:
        text = text.translate(_PUNCTUATION_APART)
    return text.split()


def normalize(text: str, options: TextOptions) -> str:
    """Returns `text` as SentencePiece gets it: clean, then as `options` say, in one piece.

    Cleaning is `count_removed`'s with joiners kept, which shape letters in Persian or Hindi;
    every kind of white space, and U+2581, becomes a space. Stripped text is composed again, since
    decomposed Hangul would be three times as long.
    """
    if text.isascii() and text.isprintable():
        return text.lower() if options.lowercase else text
    text = text.translate(_CLEAN)
    if options.nfc:
        text = unicodedata.normalize("NFC", text)
    if options.lowercase:
        text = text.lower()
    if options.strips_accents:
        text = unicodedata.normalize("NFD", text).translate(_MARKS_OUT)
        text = unicodedata.normalize("NFC", text)
    return text


def _is_removed(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf") and character not in "\t\n\r"


_REMOVED = {
    character
    for first, last in _CANDIDATES
    for character in map(chr, range(first, last + 1))
    if character == "\ufffd" or _is_removed(character)
}
# Apart, since a class of characters beyond the basic plane is looked through range by range: 2.8
# instead of 60 million characters a second.
_BEYOND = re.compile("[\U00010000-\U0010ffff]")
_REMOVED_BASIC = re.compile(
    f"[{re.escape(''.join(sorted(c for c in _REMOVED if c <= _LAST_BASIC)))}\ud800-\udfff]"
)
_REMOVED_BEYOND = re.compile(
    f"[{re.escape(''.join(sorted(c for c in _REMOVED if c > _LAST_BASIC)))}]"
)
_ASCII_WORD = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")


def _clean(character: str) -> str | None:
    if character in _REMOVED or "\ud800" <= character <= "\udfff":
        return None
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    return character


def _clean_apart(character: str) -> str | None:
    code = ord(character)
    if any(first <= code <= last for first, last in _CJK):
        return f" {character} "
    return _clean(character)


def _clean_keeping_joiners(character: str) -> str | None:
    if character in _JOINERS:
        return character
    return " " if character in _SEPARATORS + _SPACE_MARK else _clean(character)


def _punctuation_apart(character: str) -> str:
    code = ord(character)
    # Google counts all ASCII marks as punctuation, also those that Unicode calls symbols: $ + ^ `
    mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    if mark or unicodedata.category(character).startswith("P"):
        return f" {character} "
    return character


def _marks_out(character: str) -> str | None:
    return None if unicodedata.category(character) == "Mn" else character


def _marks_out_apart(character: str) -> str | None:
    return None if _marks_out(character) is None else _punctuation_apart(character)


class _Table(dict[int, str | None]):
    """A table for str.translate that asks `rule` for each character it has not seen."""

    def __init__(self, rule: Callable[[str], str | None]) -> None:
        self._rule = rule

    def __missing__(self, code: int) -> str | None:
        result = self._rule(chr(code))
        if len(self) < _TABLE:
            self[code] = result
        return result


_CLEAN = _Table(_clean_keeping_joiners)
_CLEAN_APART = _Table(_clean_apart)
_MARKS_OUT = _Table(_marks_out)
_MARKS_OUT_APART = _Table(_marks_out_apart)
_PUNCTUATION_APART = _Table(_punctuation_apart)
