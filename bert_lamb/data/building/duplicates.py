"""Equal documents and equal examples, found in bounded memory."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_BUCKETS = 64
_KEPT_HASHES = 1 << 20
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<u8")])


def repeated_documents(hashes: Iterable[np.ndarray]) -> np.ndarray:
    """Finds the documents whose text was met before.

    The hashes are dealt to files by their first bits and looked at file by file, so that memory
    holds a 64th of them at a time.

    Args:
        hashes: 128-bit hashes of all documents in order, in parts; fields "high" and "low".

    Returns:
        The numbers of the documents that repeat an earlier one, ascending. uint64 [n]
    """
    found = [np.empty(0, np.uint64)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(bucket)) for bucket in range(_BUCKETS)]
        start = 0
        for part in hashes:
            entries = np.empty(len(part), _ENTRY)
            entries["high"], entries["low"] = part["high"], part["low"]
            entries["number"] = np.arange(start, start + len(part))
            start += len(part)
            buckets = entries["high"] % np.uint64(_BUCKETS)
            for bucket in np.unique(buckets):
                with files[int(bucket)].open("ab") as out:
                    out.write(entries[buckets == bucket].tobytes())
        for file in filter(Path.exists, files):
            entries = np.frombuffer(file.read_bytes(), _ENTRY)
            entries = entries[np.lexsort((entries["number"], entries["low"], entries["high"]))]
            same = (entries["high"][1:] == entries["high"][:-1]) & (
                entries["low"][1:] == entries["low"][:-1]
            )
            found.append(entries["number"][1:][same])
    return np.sort(np.concatenate(found))


class ExampleDuplicates:
    """Counts examples that are exactly equal to an earlier one, in bounded memory.

    It keeps the 64-bit hashes below a limit. Whenever more than 2**20 distinct ones are kept
    (8 MiB), the limit is halved: from then on the count is an estimate from a known share of all
    examples, the same for equal examples. Two different examples share a hash with a probability
    of 1e-7 in a million examples.
    """

    def __init__(self) -> None:
        self._seen = np.empty(0, np.uint64)
        self._kept_bits = 64
        self._repeats = 0

    def add(self, hashes: np.ndarray) -> None:
        """Counts the examples with these hashes. uint64 [n]."""
        kept = hashes[hashes <= self._limit]
        before = len(self._seen)
        # By sorting: NumPy's own union goes by a hash table here, which takes 40 times as long.
        both = np.sort(np.concatenate([self._seen, kept]))
        self._seen = both[np.append(True, both[1:] != both[:-1])] if len(both) else both
        self._repeats += len(kept) - (len(self._seen) - before)
        while len(self._seen) > _KEPT_HASHES:
            self._kept_bits -= 1
            self._seen = self._seen[self._seen <= self._limit]
            self._repeats //= 2

    @property
    def _limit(self) -> np.uint64:
        return np.uint64(2**self._kept_bits - 1)

    @property
    def share(self) -> float:
        """Share of examples that are looked at; 1.0 while the count is exact."""
        return 2.0 ** (self._kept_bits - 64)

    @property
    def duplicates(self) -> int:
        """Examples equal to an earlier one, scaled up from the share looked at."""
        return round(self._repeats / self.share)
