"""WordPiece with Google's rules, id for id.

Of Hugging Face's Rust library only the step from a word to its pieces is used. Its step from a text
to words removes unassigned and private characters, which Google's keeps, knows no final sigma and
has Unicode tables of its own. Encoding each distinct word once makes up for Python's slowness.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 3; Google's BasicTokenizer and
    WordpieceTokenizer (google-research/bert, tokenization.py).
"""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from etils import epath
from tokenizers import models

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization.recent import RecentWords
from bert_lamb.data.tokenization.text import TextOptions, count_removed, split_words
from bert_lamb.data.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bert_lamb.data.tokenization.wordpiece_json import PREFIX, canonical_json, to_json

WORD_LIMIT = 100  # characters; a longer word is [UNK]

# Where a text is cut before its parts are looked up: at the most frequent marks, so that "dog,"
# and "dog" are one entry. Most closing marks have a space behind them already. Any other mark is
# cut off when a part is met first.
_CUTS = [(mark, f" {mark}") for mark in ",.;:)"] + [("(", "( ")]
_CUTS += [(mark, f" {mark} ") for mark in "'\"-"]
_WIDE_MARKS = "\u201c\u201d\u2019\u2018\u2014\u2013\u2026"  # quotes, dashes, ellipsis
_SPACE_BEFORE_MARK = re.compile(r" ([.,;:!?])")


class WordPiece(Tokenizer):
    """Text to WordPiece ids and back.

    Attributes:
        options: what is done to a text first.
    """

    def __init__(
        self, tokens: Sequence[str], options: TextOptions | None = None, origin: str = "vocabulary"
    ) -> None:
        """Checks and takes the tokens.

        Args:
            tokens: in the order of their ids; word-inner ones begin with "##".
            options: what is done to a text first; BERT uncased by default.
            origin: what to call the vocabulary in messages.

        Raises:
            DataError: for a special token that is missing, and for tokens that are empty,
                repeated, or have white space around them.
        """
        ids = check_tokens(tokens, origin)
        super().__init__(tokens, [ids[token] for token in SPECIAL_TOKENS])
        self.options = options or TextOptions()
        # Only this part of the library follows Google's code; see the module's docstring.
        self._model = models.WordPiece(
            ids,
            unk_token="[UNK]",
            max_input_chars_per_word=WORD_LIMIT,
            continuing_subword_prefix=PREFIX,
        )
        self._ids = tuple(ids.values())  # one object for each id: less memory, fewer cache misses
        self._known = RecentWords(self._encode)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens but [UNK]."""
        ids_of = self._known.__getitem__
        return [list(chain.from_iterable(map(ids_of, self._cut(text)))) for text in texts]

    def count_removed(self, text: str) -> int:
        """Counts the characters of `text` that leave no trace in its ids."""
        return count_removed(text)

    def save(self, directory: str | Path) -> None:
        """Writes tokenizer.json and vocab.txt into `directory`, made if absent."""
        folder = epath.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_bytes(to_json(self.tokens, self.options))
        (folder / "vocab.txt").write_bytes("".join(f"{t}\n" for t in self.tokens).encode())

    @cached_property
    def continues(self) -> np.ndarray:
        """Whether a token is word-inner ("##ing"). bool [V]."""
        return np.array([token.startswith(PREFIX) for token in self.tokens])

    @property
    def _content(self) -> object:
        return canonical_json(self.tokens, self.options)

    def _join(self, ids: list[int]) -> str:
        text = " ".join(self.tokens[id] for id in ids).replace(f" {PREFIX}", "")
        return _SPACE_BEFORE_MARK.sub(r"\1", text)

    def _cut(self, text: str) -> list[str]:
        """Cuts a text where no rule looks across, so that the parts can be encoded apart."""
        if not text.isascii():
            # What a capital sigma becomes depends on what follows, and so does NFC.
            if self.options.nfc or "\u03a3" in text:
                return text.split(" ")
            for mark in _WIDE_MARKS:
                text = text.replace(mark, f" {mark} ")
        if self.options.lowercase:
            text = text.lower()
        for mark, apart in _CUTS:
            text = text.replace(mark, apart)
        return text.split(" ")

    def _encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text that has not been seen lately."""
        if text.isascii() and text.isalnum():  # most of them: one word as it is
            return tuple(self._pieces(text.lower() if self.options.lowercase else text))
        words = split_words(text, self.options)
        return tuple(chain.from_iterable(map(self._pieces, words)))

    def _pieces(self, word: str) -> list[int]:
        """Cuts a word into the longest tokens from the left; [UNK] if one is lacking."""
        shared = self._ids
        return [shared[piece.id] for piece in self._model.tokenize(word)]


def check_tokens(tokens: Sequence[str], origin: str) -> dict[str, int]:
    """Returns the ids of `tokens`; see `WordPiece` for what is refused."""
    ids: dict[str, int] = {}
    for id, token in enumerate(tokens):
        if not token:
            raise DataError(f"{origin}: token {id} is empty (line {id + 1}); delete the empty line")
        if token != token.strip(" \t\r\n\0") or "\n" in token:
            raise DataError(
                f"{origin}: token {id} is {token!r}, with white space in it; delete the space"
            )
        if any("\ud800" <= character <= "\udfff" for character in token):
            raise DataError(f"{origin}: token {id} is {token!r}, which is not Unicode; delete it")
        if ids.setdefault(token, id) != id:
            raise DataError(
                f"{origin}: token {token!r} stands on several lines ({ids[token] + 1} and "
                f"{id + 1}); keep one of them"
            )
    missing = [token for token in SPECIAL_TOKENS if token not in ids]
    if missing:
        raise DataError(
            f"{origin}: the special tokens {' '.join(missing)} are missing; add each on a line "
            "of its own, or train a vocabulary with `bert-lamb data vocab`"
        )
    return ids
