"""A table of results that keeps what was asked for last."""

from collections.abc import Callable

# What stands between two spaces keeps its ids. Two tables of this size hold what was seen last, in
# about 50 MB at most. Long strings (of languages without spaces) hardly come again: not kept.
_CACHED_WORDS = 1 << 17
_CACHED_LENGTH = 40


class RecentWords(dict[str, tuple[int, ...]]):
    """Ids of strings by `table[string]`: those of unknown ones are computed and kept for a while.

    A full table becomes the older one, which is asked before anything is computed anew.
    """

    def __init__(self, encode: Callable[[str], tuple[int, ...]]) -> None:
        self._encode = encode
        self._older: dict[str, tuple[int, ...]] = {}

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._older.get(word)
        if ids is None:
            ids = self._encode(word)
            if len(word) > _CACHED_LENGTH:
                return ids
        if len(self) >= _CACHED_WORDS:
            self._older = dict(self)
            self.clear()
        self[word] = ids
        return ids
