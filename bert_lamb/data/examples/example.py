"""Unmasked examples and what became of the tokens on the way to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Example:
    """One unmasked example.

    Attributes:
        ids_a: ids of the first segment, without [CLS] and the [SEP] at its end.
        ids_b: ids of the second segment; None where there is only one.
        label: of a pair: the second segment comes from another document ("nsp"), or the two were
            swapped ("sop").
    """

    ids_a: Sequence[int] | np.ndarray
    ids_b: Sequence[int] | np.ndarray | None
    label: bool = False


@dataclass(frozen=True)
class Examples:
    """Many examples of one kind, each a slice or two of a common array of ids.

    Attributes:
        ids: what the slices are of. integers [n]
        spans: begin and end of the first segment, begin and end of the second. int64 [N, 4]
        labels: see Example. bool [N]
        has_pair: whether the examples have a second segment; if not, its slice is empty.
    """

    ids: np.ndarray
    spans: np.ndarray
    labels: np.ndarray
    has_pair: bool = True

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Example]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Example:
        a, a_end, b, b_end = self.spans[i]
        ids_b = self.ids[b:b_end] if self.has_pair else None
        return Example(self.ids[a:a_end], ids_b, bool(self.labels[i]))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per row with [CLS] and each [SEP]. int64 [N]."""
        a, a_end, b, b_end = self.spans.T
        return a_end - a + b_end - b + (3 if self.has_pair else 2)


@dataclass
class PairCounts:
    """What became of the tokens of the documents.

    Each token of a document is written, truncated or dropped, once. Second segments of random pairs
    are borrowed: those tokens come on top, and so do separators.

    Attributes:
        written: tokens of the documents in examples.
        truncated: tokens of the documents cut off where a pair was too long.
        dropped: tokens left over where a single token remained of a document, of which no two
            segments can be made ("sop").
        borrowed: tokens of random second segments in examples ("nsp").
        borrowed_truncated: tokens cut off random second segments.
        separators: [SEP] between documents that share a row ("single" with cross_documents).
        split_sentences: sentences split because they were longer than a row, or because one was
            all that remained of a document ("sop").
    """

    written: int = 0
    truncated: int = 0
    dropped: int = 0
    borrowed: int = 0
    borrowed_truncated: int = 0
    separators: int = 0
    split_sentences: int = 0
