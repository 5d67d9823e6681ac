"""Documents of sentences of ids, flat: what examples are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from bert_lamb.data.errors import DataError


@dataclass(frozen=True)
class Documents:
    """Documents one after the other in one array, with the places where they end.

    A slice of an array costs the same whatever its length, and so does the search for the sentence
    that fills a row; with lists of lists each token and each sentence is handled by itself.

    Empty sentences and documents do no harm. The end of a document is the end of a sentence whether
    `sentence_ends` says so or not.

    Attributes:
        ids: tokens of all documents. integers [n]
        sentence_ends: for each sentence, the offset in `ids` behind its last token, ascending.
            integers [s]
        document_ends: the same for each document; the last one is n. integers [d]
        keys: what each document is a part of; a random second segment never comes from a document
            with an equal key. Neighbours of one key are one document in several parts. integers [d]
        num_donors: so many documents at the end are not made into examples; random second segments
            may come from them.

    Raises:
        DataError: if the offsets do not fit together.
    """

    ids: np.ndarray
    sentence_ends: np.ndarray
    document_ends: np.ndarray
    keys: np.ndarray
    num_donors: int = 0

    def __post_init__(self) -> None:
        n, documents = len(self.ids), len(self.document_ends)
        for name in ("sentence_ends", "document_ends"):
            ends = getattr(self, name)
            if len(ends) and (ends[0] < 0 or ends[-1] > n or (np.diff(ends) < 0).any()):
                raise DataError(f"{name}: expected ascending offsets of {n} tokens")
        if (int(self.document_ends[-1]) if documents else 0) != n:
            raise DataError(f"document_ends: expected the last one to be {n}, the number of tokens")
        if len(self.keys) != documents:
            raise DataError(f"keys: {len(self.keys)} for {documents} documents; give one for each")
        if not 0 <= self.num_donors <= documents:
            raise DataError(f"num_donors = {self.num_donors}: expected 0 to {documents}")

    @classmethod
    def from_lists(
        cls,
        documents: Iterable[Sequence[Sequence[int]]],
        keys: Iterable[int],
        num_donors: int = 0,
        dtype: np.dtype | type[np.generic] = np.uint32,
    ) -> "Documents":
        """Flattens documents given as lists of sentences.

        Args:
            documents: for each document its sentences, each a list of ids; donors come last.
            keys: see Documents.
            num_donors: see Documents.
            dtype: of `ids`; that of the records saves a conversion.
        """
        documents = list(documents)
        sentences = list(chain.from_iterable(documents))
        sentence_ends = np.cumsum([0, *map(len, sentences)])
        return cls(
            np.fromiter(chain.from_iterable(sentences), dtype, count=int(sentence_ends[-1])),
            sentence_ends[1:],
            sentence_ends[np.cumsum(list(map(len, documents)), dtype=np.int64)],
            np.fromiter(keys, np.int64),
            num_donors,
        )

    def choose(self, chosen: np.ndarray) -> "Documents":
        """Returns the documents, none of them a donor, for which `chosen` is true. bool [d]."""
        lengths = np.diff(self.document_ends, prepend=0)
        keep = np.repeat(chosen, lengths)
        kept = np.concatenate([[0], np.cumsum(keep)])
        inside = np.repeat(chosen, np.diff(
            np.searchsorted(self.sentence_ends, self.document_ends, side="right"), prepend=0
        ))  # fmt: skip
        return Documents(
            self.ids[keep],
            kept[self.sentence_ends[: len(inside)][inside]],
            np.cumsum(lengths[chosen]),
            self.keys[chosen],
        )

    def lend(self, donors: "Documents") -> "Documents":
        """Returns these documents with `donors` behind them."""
        return Documents(
            np.concatenate([self.ids, donors.ids]),
            np.concatenate([self.sentence_ends, len(self.ids) + donors.sentence_ends]),
            np.concatenate([self.document_ends, len(self.ids) + donors.document_ends]),
            np.concatenate([self.keys, donors.keys]),
            num_donors=len(donors.keys),
        )

    @property
    def num_own_tokens(self) -> int:
        """Tokens of the documents that are made into examples, donors not counted."""
        own = len(self.document_ends) - self.num_donors
        return int(self.document_ends[own - 1]) if own else 0


@dataclass(frozen=True)
class Layout:
    """Where sentences and documents begin, once neither is empty and no sentence is too long.

    Attributes:
        bounds: sentence i is ids[bounds[i] : bounds[i + 1]].
        spans: each document's first sentence and the one behind its last.
        keys: of each document, as in Documents.
        num_own: documents that are not donors; they come first.
        num_split: sentences, of those documents, that were split.
    """

    bounds: list[int]
    spans: list[tuple[int, int]]
    keys: list[int]
    num_own: int
    num_split: int

    @classmethod
    def of(cls, documents: Documents, room: int) -> "Layout":
        """Splits sentences of more than `room` tokens into quarters of `room`.

        Quarters, since a piece as long as the row would leave nothing of the document for the
        second segment; four of them in a row add up to its length exactly (give or take a token).
        """
        # Each end once: that leaves out empty sentences and documents.
        ends = np.unique(np.concatenate([[0], documents.sentence_ends, documents.document_ends]))
        ends = ends.astype(np.int64)
        long = np.flatnonzero(np.diff(ends) > room)
        long_begins = ends[long]
        pieces = [ends]
        for begin, end in zip(long_begins.tolist(), ends[long + 1].tolist(), strict=True):
            # The last multiple may be the sentence's own end.
            quarters = np.arange(1, 4 * (end - begin) // room + 1)
            pieces.append(begin + quarters * room // 4)
        ends = np.unique(np.concatenate(pieces))

        document_ends = np.asarray(documents.document_ends, np.int64)
        filled = np.diff(document_ends, prepend=0) > 0
        last = np.searchsorted(ends, document_ends[filled])
        first = np.concatenate([[0], last[:-1]]) if len(last) else last
        own = len(filled) - documents.num_donors
        return cls(
            bounds=ends.tolist(),
            spans=list(zip(first.tolist(), last.tolist(), strict=True)),
            keys=np.asarray(documents.keys)[filled].tolist(),
            num_own=int(filled[:own].sum()),
            num_split=int((long_begins < documents.num_own_tokens).sum()),
        )

    def whole_documents(self) -> list[tuple[int, int]]:
        """Returns the spans of the documents that are not donors, the parts of each joined."""
        joined: list[tuple[int, int]] = []
        for i in range(self.num_own):
            first, last = self.spans[i]
            if i and self.keys[i] == self.keys[i - 1]:
                first = joined.pop()[0]
            joined.append((first, last))
        return joined
