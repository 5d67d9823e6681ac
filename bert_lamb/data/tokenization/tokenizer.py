"""What the rest of the package knows of a tokenizer."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_lamb.data.errors import DataError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNUSED = re.compile(r"\[unused\d+\]")


class Encoded(NamedTuple):
    """Ids of several texts.

    Attributes:
        ids: of all texts, one after the other. uint32 [n]
        ends: where each text ends in them. int64 [texts]
        removed: characters that left no trace in them; see Tokenizer.count_removed.
    """

    ids: np.ndarray
    ends: np.ndarray
    removed: int


def interleave(which: np.ndarray, first: Encoded, second: Encoded) -> Encoded:
    """Puts texts together that were encoded in two groups.

    Args:
        which: for each text, whether it is the next one of `first` (or of `second`). bool [texts]
        first: one group.
        second: the other.
    """
    if not len(first.ends) or not len(second.ends):
        ids, ends, _ = first if len(first.ends) else second
        return Encoded(ids, ends, first.removed + second.removed)
    lengths = np.empty(len(which), np.int64)
    lengths[which] = np.diff(first.ends, prepend=0)
    lengths[~which] = np.diff(second.ends, prepend=0)
    of_first = np.repeat(which, lengths)
    ids = np.empty(len(of_first), first.ids.dtype)
    ids[of_first], ids[~of_first] = first.ids, second.ids
    return Encoded(ids, np.cumsum(lengths), first.removed + second.removed)


class Tokenizer(ABC):
    """Text to ids and back.

    Ids never come from the letters of a special token: "[MASK]" in a corpus is a bracket, a word
    and a bracket. Only `encode_with_masks` reads it as the mask.

    Attributes:
        tokens: all tokens in the order of their ids.
        special_tokens: ids of [PAD], [UNK], [CLS], [SEP] and [MASK] by these names.
        pad_id, unk_id, cls_id, sep_id, mask_id: the same ids.
    """

    def __init__(self, tokens: Sequence[str], special_ids: Sequence[int]) -> None:
        self.tokens = tuple(tokens)
        self.special_tokens = dict(zip(SPECIAL_TOKENS, special_ids, strict=True))
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special_ids
        self._special_ids = frozenset(special_ids)

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens but [UNK]."""

    def encode_flat(self, texts: Sequence[str]) -> Encoded:
        """Returns the ids of all texts in one array, without special tokens but [UNK]."""
        lists = self.encode_batch(texts)
        return Encoded(
            np.fromiter(chain.from_iterable(lists), np.uint32),
            np.cumsum(list(map(len, lists)), dtype=np.int64),
            sum(map(self.count_removed, texts)),
        )

    @abstractmethod
    def count_removed(self, text: str) -> int:
        """Counts the characters of `text` that leave no trace in its ids; 0 where unknown."""

    @abstractmethod
    def save(self, directory: str | Path) -> None:
        """Writes the tokenizer into `directory`, made if absent; `load` gives it back."""

    @property
    @abstractmethod
    def continues(self) -> np.ndarray:
        """Whether a token continues the word of the token before it. bool [V].

        For masking whole words. False for the special tokens.
        """

    @property
    @abstractmethod
    def _content(self) -> object:
        """All that decides which ids a text gets, as JSON."""

    @abstractmethod
    def _join(self, ids: list[int]) -> str:
        """Text of ids that are valid and not special."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that decides which ids a text gets, as hex digits."""
        return hashlib.sha256(json.dumps(self._content, sort_keys=True).encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return len(self.tokens)

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Ids of all tokens but the special and [unusedN] ones; int32, ascending."""
        ids = (
            id
            for id, token in enumerate(self.tokens)
            if id not in self._special_ids and not _UNUSED.fullmatch(token)
        )
        return np.fromiter(ids, np.int32)

    def token(self, id: int) -> str:
        """Returns the token of `id`; raises DataError for an id outside of the vocabulary."""
        if not 0 <= id < self.vocab_size:
            raise DataError(f"token id {id}: expected 0 to {self.vocab_size - 1}")
        return self.tokens[id]

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of `text`, reading each literal "[MASK]" as the mask; no other special.

        For asking a trained model to fill in a blank.
        """
        first, *others = self.encode_batch(text.split("[MASK]"))
        ids = list(first)
        for piece in others:
            ids += [self.mask_id, *piece]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Joins the tokens of `ids` to text, leaving out special ones, [UNK] too.

        Raises:
            DataError: for an id outside of the vocabulary.
        """
        for id in ids:
            self.token(id)
        return self._join([int(id) for id in ids if id not in self._special_ids])
