"""Rows of one segment without sentence prediction, as RoBERTa's.

References:
    Liu et al., "RoBERTa" (arXiv 1907.11692), section 4.2: DOC-SENTENCES, and FULL-SENTENCES where
    rows cross documents.
"""

import random
from bisect import bisect_left, bisect_right

import numpy as np

from bert_lamb.data.examples.documents import Documents, Layout
from bert_lamb.data.examples.example import Examples, PairCounts

# A row carries [CLS] a [SEP].
SPECIALS_PER_SINGLE = 2


def single_segments(
    documents: Documents,
    seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
    counts: PairCounts,
    *,
    cross_documents: bool,
    sep_id: int,
) -> Examples:
    """Fills rows with consecutive whole sentences.

    Args:
        documents: the text; one document is enough.
        seq_length: tokens per row T, special tokens included.
        short_seq_prob: share of the rows that end once they reach a random length.
        rng: source of all choices; not used if `short_seq_prob` is 0.
        counts: added to.
        cross_documents: a row that is not full goes on with the next document behind a [SEP];
            otherwise it ends where its document does.
        sep_id: id of [SEP].

    Returns:
        Examples in the order of the text, without second segments and labels.
    """
    room = seq_length - SPECIALS_PER_SINGLE
    layout = Layout.of(documents, room)
    counts.split_sentences += layout.num_split
    runs = layout.whole_documents()
    ids, bounds = documents.ids, layout.bounds
    heads: set[int] = set()  # sentences that begin with a [SEP], to be left out in front of a row
    if cross_documents and runs:
        heads = {first for first, _ in runs[1:]}
        ids, bounds = _separated(ids, bounds, runs, sep_id)
        runs = [(0, runs[-1][1])]
    spans: list[tuple[int, int]] = []
    for i, last in runs:
        while i < last:
            begin = bounds[i] + (i in heads)
            end = bisect_right(bounds, begin + room, i + 1, last + 1) - 1
            if short_seq_prob and rng.random() < short_seq_prob:
                target = 2 + int(rng.random() * (room - 1))
                end = min(end, bisect_left(bounds, begin + target, i + 1, last))
            spans.append((begin, bounds[end]))
            i = end
    table = np.zeros((len(spans), 4), np.int64)
    table[:, :2] = np.array(spans, np.int64).reshape(-1, 2)
    own = documents.num_own_tokens
    counts.written += own
    counts.separators += int((table[:, 1] - table[:, 0]).sum()) - own
    return Examples(ids, table, np.zeros(len(spans), bool), has_pair=False)


def _separated(
    ids: np.ndarray, bounds: list[int], runs: list[tuple[int, int]], sep_id: int
) -> tuple[np.ndarray, list[int]]:
    """Puts a [SEP] in front of each document but the first, as part of its first sentence."""
    inner = np.array([first for first, _ in runs[1:]], np.int64)
    old = np.array(bounds[: runs[-1][1] + 1], np.int64)
    before = np.searchsorted(inner, np.arange(len(old)), side="left")  # [SEP] in earlier sentences
    return np.insert(ids[: old[-1]], old[inner], sep_id), (old + before).tolist()
