"""Sentence pairs, from documents of sentences of ids.

The procedure is that of Google's create_pretraining_data (and, for sentence order, of ALBERT's),
with four differences: a random second segment always comes from another document; a sentence longer
than a row is split rather than cut off; sentence order never needs another document; and every
token is accounted for.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 3.1, task 2, and appendix A.2.
    Lan et al., "ALBERT" (arXiv 1909.11942), section 3.1, inter-sentence coherence loss.
"""

import random
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.documents import Documents, Layout
from bert_lamb.data.examples.example import Examples, PairCounts

# A pair's row carries [CLS] a [SEP] b [SEP].
SPECIALS_PER_PAIR = 3
RANDOM_NEXT_PROB = 0.5
SWAP_PROB = 0.5

# Begin and end of the first segment, begin and end of the second, label.
_Pair = tuple[int, int, int, int, bool]


def next_sentence_pairs(
    documents: Documents,
    seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
    counts: PairCounts,
) -> Examples:
    """Makes pairs whose second segment follows the first, or comes from another document.

    Args:
        documents: the text.
        seq_length: tokens per row T, special tokens included.
        short_seq_prob: share of the documents that are cut into shorter pairs, since fine-tuning
            will meet short rows too.
        rng: source of all choices.
        counts: added to.

    Returns:
        Examples in the order of the text. Label 1: the second segment is from another document.

    Raises:
        DataError: if there is no other document to draw a random second segment from.
    """
    room = seq_length - SPECIALS_PER_PAIR
    layout = Layout.of(documents, room)
    counts.split_sentences += layout.num_split
    if not layout.num_own:
        return _fitted(documents, [], room, rng, counts, borrows=True)
    if len(set(layout.keys)) < 2:
        raise DataError(
            "1 document with text: next-sentence prediction needs at least 2; divide the text into "
            "documents by blank lines, add sources, or make examples of another kind"
        )
    lender = _Lender(layout, rng)
    pairs: list[_Pair] = []
    for (first, last), key in islice(zip(layout.spans, layout.keys, strict=True), layout.num_own):
        target = _target(room, short_seq_prob, rng)
        pairs += _cut_next_sentence(layout.bounds, first, last, target, lender, key, rng)
    return _fitted(documents, pairs, room, rng, counts, borrows=True)


def sentence_order_pairs(
    documents: Documents,
    seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
    counts: PairCounts,
) -> Examples:
    """Makes pairs of consecutive segments, half of them swapped.

    A pair takes at least two sentences. Where one is all that remains of a document, it is cut in
    two at a random place; a single token that remains is dropped and counted. (ALBERT's code pairs
    a lone sentence with a random one, which says nothing about order.)

    Args:
        documents: the text; one document is enough.
        seq_length: tokens per row T, special tokens included.
        short_seq_prob: share of the documents that are cut into shorter pairs.
        rng: source of all choices.
        counts: added to.

    Returns:
        Examples in the order of the text. Label 1: the segments are swapped.
    """
    room = seq_length - SPECIALS_PER_PAIR
    layout = Layout.of(documents, room)
    counts.split_sentences += layout.num_split
    pairs: list[_Pair] = []
    for first, last in layout.whole_documents():
        target = _target(room, short_seq_prob, rng)
        pairs += _cut_sentence_order(layout.bounds, first, last, target, rng, counts)
    return _fitted(documents, pairs, room, rng, counts, borrows=False)


def _target(room: int, short_seq_prob: float, rng: random.Random) -> int:
    """Draws how many tokens the pairs of a document are to reach."""
    return 2 + _below(room - 1, rng) if rng.random() < short_seq_prob else room


def _below(n: int, rng: random.Random) -> int:
    """Draws from 0 to n - 1 (0 if n is 0), uniform to n parts in 2**53; randrange takes longer."""
    return int(rng.random() * n)


def _cut_next_sentence(
    bounds: list[int],
    first: int,
    last: int,
    target: int,
    lender: "_Lender",
    key: int,
    rng: random.Random,
) -> Iterator[_Pair]:
    i = first
    while i < last:
        begin = bounds[i]
        end = bisect_left(bounds, begin + target, i + 1, last)
        a_end = i + 1 + _below(end - i - 1, rng)
        if end - i == 1 or rng.random() < RANDOM_NEXT_PROB:
            wanted = target - (bounds[a_end] - begin)
            yield begin, bounds[a_end], *lender.borrow(key, wanted), True
            i = a_end  # what follows the first segment is put back
        else:
            yield begin, bounds[a_end], bounds[a_end], bounds[end], False
            i = end


def _cut_sentence_order(
    bounds: list[int], first: int, last: int, target: int, rng: random.Random, counts: PairCounts
) -> Iterator[_Pair]:
    i = first
    while i < last:
        begin = bounds[i]
        end = min(max(bisect_left(bounds, begin + target, i + 1, last), i + 2), last)
        if end - i >= 2:
            middle = bounds[i + 1 + _below(end - i - 1, rng)]
        elif bounds[end] - begin >= 2:
            middle = begin + 1 + _below(bounds[end] - begin - 1, rng)
            counts.split_sentences += 1
        else:
            counts.dropped += 1
            return
        if rng.random() < SWAP_PROB:
            yield middle, bounds[end], begin, middle, True
        else:
            yield begin, middle, middle, bounds[end], False
        i = end


class _Lender:
    """Lends random second segments, from any document of another key alike."""

    def __init__(self, layout: Layout, rng: random.Random) -> None:
        self._bounds, self._rng = layout.bounds, rng
        # With equal keys side by side, those to stay clear of are one run, and no draw is in vain.
        order = sorted(range(len(layout.keys)), key=layout.keys.__getitem__)
        self._spans = [layout.spans[i] for i in order]
        self._runs: dict[int, tuple[int, int]] = {}
        for place, i in enumerate(order):
            begin, _ = self._runs.get(layout.keys[i], (place, place))
            self._runs[layout.keys[i]] = begin, place + 1

    def borrow(self, key: int, length: int) -> tuple[int, int]:
        """Returns begin and end of whole sentences, from a random one of a random document on.

        They hold at least one sentence, and `length` tokens if the document goes on for so long.
        """
        begin, end = self._runs[key]
        chosen = _below(len(self._spans) - (end - begin), self._rng)
        first, last = self._spans[chosen if chosen < begin else chosen + end - begin]
        start = first + _below(last - first, self._rng)
        offset = self._bounds[start]
        return offset, self._bounds[bisect_left(self._bounds, offset + length, start + 1, last)]


def _fitted(
    documents: Documents,
    pairs: list[_Pair],
    room: int,
    rng: random.Random,
    counts: PairCounts,
    *,
    borrows: bool,
) -> Examples:
    """Cuts pairs down to `room` tokens and counts what became of them.

    Google's code takes one token after the other off the longer segment (the second if they are
    equally long), each from the front or the back by a throw of a coin. How many a segment loses is
    therefore fixed, and how many of those at its front is binomial: the ones among as many random
    bits.
    """
    table = np.array(pairs, np.int64).reshape(-1, 5)
    spans, labels = table[:, :4].copy(), table[:, 4].astype(bool)
    before_a, before_b = spans[:, 1] - spans[:, 0], spans[:, 3] - spans[:, 2]
    after_a = np.minimum(before_a, np.maximum(room - before_b, (room + 1) // 2))
    after_b = np.minimum(before_b, room - after_a)
    for column, lost in ((0, before_a - after_a), (2, before_b - after_b)):
        front = np.zeros(len(lost), np.int64)
        cut = np.flatnonzero(lost)
        front[cut] = [rng.getrandbits(bits).bit_count() for bits in lost[cut].tolist()]
        spans[:, column] += front
        spans[:, column + 1] -= lost - front

    lent = labels if borrows else np.zeros_like(labels)
    counts.written += int(after_a.sum() + after_b[~lent].sum())
    counts.truncated += int((before_a - after_a).sum() + (before_b - after_b)[~lent].sum())
    counts.borrowed += int(after_b[lent].sum())
    counts.borrowed_truncated += int((before_b - after_b)[lent].sum())
    return Examples(documents.ids, spans, labels)
