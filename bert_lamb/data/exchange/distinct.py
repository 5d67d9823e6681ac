"""Which of many byte strings were there before."""

import hashlib

import numpy as np

_DIGEST_BYTES = 16
_RECENT = 1 << 18


class Distinct:
    """Tells byte strings that were added before from new ones.

    It keeps a digest of 16 bytes of each, the bulk of them sorted in one array: a set would take
    six times the memory. Two different strings share a digest with a probability of 1e-20 in
    a billion strings.
    """

    def __init__(self) -> None:
        self._sorted = np.empty(0, f"S{_DIGEST_BYTES}")
        self._recent: set[bytes] = set()

    def add(self, data: bytes) -> bool:
        """Adds `data`; returns whether it is new."""
        digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        if digest in self._recent or self._is_old(digest):
            return False
        self._recent.add(digest)
        if len(self._recent) > _RECENT:
            # A stable sort merges the sorted part with the rest in linear time.
            recent = np.array(sorted(self._recent), self._sorted.dtype)
            self._sorted = np.sort(np.concatenate([self._sorted, recent]), kind="stable")
            self._recent.clear()
        return True

    def _is_old(self, digest: bytes) -> bool:
        # NumPy strips zeros from the end of strings; of equal length, they stay distinct.
        key = np.array(digest, self._sorted.dtype)
        place = int(np.searchsorted(self._sorted, key))
        return place < len(self._sorted) and bool(self._sorted[place] == key)
