"""A table of ids that keeps what was asked for last."""

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np

# What stands between two spaces keeps its ids. Two tables of this size hold what was seen last, in
# about 50 MB at most. Long strings (of languages without spaces) hardly come again: not kept.
_CACHED_WORDS = 1 << 17
_CACHED_LENGTH = 40


class RecentWords(dict[str, bytes]):
    """Ids of strings: those of unknown ones are computed and kept for a while.

    A full table becomes the older one, which is asked before anything is computed anew. Ids are
    kept as bytes: to join those is to copy them, where every number would be an object to visit.
    """

    def __init__(self, encode: Callable[[str], Sequence[int]]) -> None:
        self._encode = encode
        self._older: dict[str, bytes] = {}

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """Returns the ids of all words, one after the other. unsigned 32-bit integers [n]."""
        return np.frombuffer(b"".join(map(self.__getitem__, words)), np.uintc)

    def __missing__(self, word: str) -> bytes:
        ids = self._older.get(word)
        if ids is None:
            ids = array("I", self._encode(word)).tobytes()
            if len(word) > _CACHED_LENGTH:
                return ids
        if len(self) >= _CACHED_WORDS:
            self._older = dict(self)
            self.clear()
        self[word] = ids
        return ids
