"""Sentence pairs for next-sentence prediction, from documents of sentences of ids.

The procedure is that of Google's create_pretraining_data, with three differences: a pair labelled
random always takes its second half from another document; a sentence longer than a row is split
rather than cut off; and every token is accounted for.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 3.1, task 2, and appendix A.2.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bert_lamb.data.errors import DataError

Sentences = list[list[int]]

# A pair of rows carries [CLS] a [SEP] b [SEP].
SPECIALS_PER_ROW = 3
MIN_SEQ_LENGTH = 8
SHORT_SEQ_PROB = 0.1
RANDOM_NEXT_PROB = 0.5


@dataclass(frozen=True)
class Example:
    """An unmasked sentence pair.

    Attributes:
        ids_a: ids of the first segment, at least one, without special tokens.
        ids_b: ids of the second segment, at least one.
        is_random: the second segment comes from another document.
    """

    ids_a: list[int]
    ids_b: list[int]
    is_random: bool


@dataclass
class PairCounts:
    """What became of the tokens of the documents.

    Each token of a document is written or truncated, once. Second segments of random pairs are
    borrowed: those tokens come on top.

    Attributes:
        written: tokens of the documents in examples.
        truncated: tokens of the documents cut off where a pair was too long.
        borrowed: tokens of random second segments in examples.
        borrowed_truncated: tokens cut off random second segments.
        split_sentences: sentences split because they were longer than a row.
    """

    written: int = 0
    truncated: int = 0
    borrowed: int = 0
    borrowed_truncated: int = 0
    split_sentences: int = 0


@dataclass(frozen=True)
class PairMaker:
    """Makes the pairs of a group of documents.

    Attributes:
        seq_length: tokens per row T, special tokens included.
        rng: source of all choices.
        counts: filled while pairs are made.

    Raises:
        DataError: if `seq_length` is below 8.
    """

    seq_length: int
    rng: random.Random
    counts: PairCounts = field(default_factory=PairCounts)

    def __post_init__(self) -> None:
        check_seq_length(self.seq_length)

    def pairs(
        self,
        documents: Sequence[Sentences],
        keys: Sequence[int],
        donors: Sequence[Sentences] = (),
    ) -> Iterator[Example]:
        """Yields the pairs of `documents`, in order.

        Args:
            documents: sentences of ids; documents and sentences are not empty.
            keys: for each document, what it is a part of; a random second segment never comes
                from a document with an equal key.
            donors: further documents, of other keys, from which random second segments may come.

        Raises:
            DataError: if there is no other document to draw a random second segment from.
        """
        others = len(set(keys)) + len(donors)
        if others < 2:
            raise DataError(
                f"{others} document with text: next-sentence prediction needs at least 2; divide "
                "the text into documents by blank lines, or add sources"
            )
        documents = [self._fit(document) for document in documents]
        pool = documents + [self._fit(document) for document in donors]
        pool_keys: list[int | None] = [*keys, *(None for _ in donors)]
        for document, key in zip(documents, keys, strict=True):
            yield from self._document(document, key, pool, pool_keys)

    def _fit(self, document: Sentences) -> Sentences:
        """Splits sentences longer than a row into quarters of a row.

        Quarters, since the whole row would leave nothing of the document for the second segment;
        four of them in a row add up to its length exactly (give or take a token).
        """
        room = self.seq_length - SPECIALS_PER_ROW
        fitted: Sentences = []
        for sentence in document:
            if len(sentence) <= room:
                fitted.append(sentence)
                continue
            self.counts.split_sentences += 1
            quarters = 4 * len(sentence) // room + 1
            ends = [min(i * room // 4, len(sentence)) for i in range(quarters + 2)]
            fitted += [sentence[i:j] for i, j in pairwise(ends) if i < j]
        return fitted

    def _document(
        self,
        document: Sentences,
        key: int,
        pool: Sequence[Sentences],
        pool_keys: Sequence[int | None],
    ) -> Iterator[Example]:
        rng, room = self.rng, self.seq_length - SPECIALS_PER_ROW
        # Some documents are cut into shorter pairs, since fine-tuning will meet short rows too.
        target = rng.randint(2, room) if rng.random() < SHORT_SEQ_PROB else room
        i = 0
        while i < len(document):
            start, length = i, 0
            while i < len(document) and length < target:
                length += len(document[i])
                i += 1
            a_end = start + 1 if i - start == 1 else rng.randint(start + 1, i - 1)
            ids_a = [id for sentence in document[start:a_end] for id in sentence]
            is_random = i - start == 1 or rng.random() < RANDOM_NEXT_PROB
            if is_random:
                ids_b = self._borrow(key, pool, pool_keys, target - len(ids_a))
                i = a_end  # what follows the first segment is put back
            else:
                ids_b = [id for sentence in document[a_end:i] for id in sentence]
            yield self._truncated(ids_a, ids_b, is_random)

    def _borrow(
        self,
        key: int,
        pool: Sequence[Sentences],
        pool_keys: Sequence[int | None],
        length: int,
    ) -> list[int]:
        """Returns at least `length` ids (and one sentence) from a random place elsewhere."""
        rng = self.rng
        while pool_keys[chosen := rng.randrange(len(pool))] == key:
            pass
        other = pool[chosen]
        ids: list[int] = []
        for sentence in other[rng.randrange(len(other)) :]:
            ids += sentence
            if len(ids) >= length:
                break
        return ids

    def _truncated(self, ids_a: list[int], ids_b: list[int], is_random: bool) -> Example:
        """Cuts tokens off the longer segment, from its front or back at random, until they fit."""
        spans = [[0, len(ids_a)], [0, len(ids_b)]]
        room = self.seq_length - SPECIALS_PER_ROW
        for _ in range(len(ids_a) + len(ids_b) - room):
            longer = spans[spans[0][1] - spans[0][0] <= spans[1][1] - spans[1][0]]
            if self.rng.random() < 0.5:
                longer[0] += 1
            else:
                longer[1] -= 1
        a, b = (ids[i:j] for ids, (i, j) in zip((ids_a, ids_b), spans, strict=True))
        self._count(len(a), len(ids_a) - len(a), borrowed=False)
        self._count(len(b), len(ids_b) - len(b), borrowed=is_random)
        return Example(a, b, is_random)

    def _count(self, written: int, truncated: int, *, borrowed: bool) -> None:
        if borrowed:
            self.counts.borrowed += written
            self.counts.borrowed_truncated += truncated
        else:
            self.counts.written += written
            self.counts.truncated += truncated


def check_seq_length(seq_length: int) -> None:
    """Raises DataError if a row of `seq_length` tokens cannot hold a pair."""
    if not MIN_SEQ_LENGTH <= seq_length < 2**16:
        raise DataError(
            f"seq_length = {seq_length}: expected {MIN_SEQ_LENGTH} to {2**16 - 1} tokens (3 are "
            "taken by [CLS] and two [SEP])"
        )
