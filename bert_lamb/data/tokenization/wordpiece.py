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
from bert_lamb.data.tokenization.tokenizer import (
    SPECIAL_TOKENS,
    Encoded,
    Tokenizer,
    interleave,
)
from bert_lamb.data.tokenization.wordpiece_json import PREFIX, canonical_json, to_json

WORD_LIMIT = 100  # characters; a longer word is [UNK]

# Where a text is cut before its parts are looked up: at the most frequent marks, so that "dog,"
# and "dog" are one entry. Most closing marks have a space behind them already. Any other mark is
# cut off when a part is met first.
_JOINT = "\n"
_CUTS = [(mark, f" {mark}") for mark in ",.;:)"] + [("(", "( ")]
_CUTS += [(mark, f" {mark} ") for mark in ("'", '"', "-", _JOINT)]
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
        # Beyond the vocabulary, between the ids while they are gathered: the end of a text, and
        # behind it the mark of a removed character.
        self._joint_id = len(tokens)
        self._known = RecentWords(self._encode)

    def encode_flat(self, texts: Sequence[str]) -> Encoded:
        """Returns the ids of all texts in one array, without special tokens but [UNK]."""
        # ASCII texts apart from the others: Python handles such strings several times as fast, but
        # one other character in a string makes all of it slow.
        is_ascii = np.array([text.isascii() for text in texts], bool)
        plain = self._encode_joined([text for text in texts if text.isascii()])
        other = self._encode_joined([text for text in texts if not text.isascii()])
        return interleave(is_ascii, plain, other)

    def _encode_joined(self, texts: Sequence[str]) -> Encoded:
        if not texts:
            return Encoded(np.empty(0, np.uint32), np.empty(0, np.int64), 0)
        # All texts at once, divided by line feeds: a step for each of them would cost more than
        # its words. To the rules a line feed inside of a text is a space.
        joined = _JOINT.join([text.replace(_JOINT, " ") for text in texts])
        if self.options.nfc or "\u03a3" in joined:
            # What a capital sigma becomes depends on what follows, and so does NFC.
            parts = joined.replace(_JOINT, f" {_JOINT} ").split(" ")
        else:
            parts = self._cut(joined)
        ids = self._known.ids(parts)
        removed = 0
        if ids.max(initial=0) > self._joint_id:
            is_trace = ids > self._joint_id
            removed, ids = int(is_trace.sum()), ids[~is_trace]
        is_joint = ids == self._joint_id
        ends = np.flatnonzero(is_joint)
        ends = np.append(ends - np.arange(len(ends)), len(ids) - len(ends))
        return Encoded(ids[~is_joint], ends, removed)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens but [UNK]."""
        ids, ends, _ = self.encode_flat(texts)
        return [part.tolist() for part in np.split(ids, ends)[: len(texts)]]

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
            for mark in _WIDE_MARKS:
                text = text.replace(mark, f" {mark} ")
        if self.options.lowercase:
            text = text.lower()
        for mark, apart in _CUTS:
            text = text.replace(mark, apart)
        return text.split(" ")

    def _encode(self, text: str) -> list[int]:
        """Ids of a text that has not been seen lately, with a mark for each removed character."""
        if text == _JOINT:
            return [self._joint_id]
        if text.isascii() and text.isalnum():  # most of them: one word as it is
            return self._pieces(text.lower() if self.options.lowercase else text)
        marks = [self._joint_id + 1] * count_removed(text)
        return [*marks, *chain.from_iterable(map(self._pieces, split_words(text, self.options)))]

    def _pieces(self, word: str) -> list[int]:
        """Cuts a word into the longest tokens from the left; [UNK] if one is lacking."""
        return [piece.id for piece in self._model.tokenize(word)]


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
