"""Rows of fixed length that hold one text or two.

A row is [CLS] text [SEP] [PAD]... or [CLS] text [SEP] other text [SEP] [PAD]... A row is made when
it is asked for, so batch t can be any rows in any order. Nothing of this knows of a model.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 4.1; google-research/bert, run_classifier.py,
    for how two texts share a row that is too short.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import Tokenizer
from bert_lamb.glue.dataset import Dataset

_AT_ONCE = 4096  # texts; so many are encoded together


@dataclass(frozen=True)
class FeatureOptions:
    """How rows are made.

    Attributes:
        seq_length: tokens per row T, special tokens included. 128 is the published one.
    """

    seq_length: int = 128


@dataclass(frozen=True, eq=False)
class Texts:
    """Tokens of many texts, cut to what fits into their rows.

    Attributes:
        ids: of all texts before they are cut, one after the other. int32 [n]
        starts: where each text starts in them. int64 [N]
        lengths: tokens of each that are kept. int32 [N]
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def __getitem__(self, number: int) -> np.ndarray:
        """Returns the ids of a text that are kept. int32 [length]."""
        start = self.starts[number]
        return self.ids[start : start + self.lengths[number]]


@dataclass(frozen=True, eq=False)
class Features:
    """The rows of a data set. Row n is that of example n, from 0 to N - 1.

    Attributes:
        options: how they are made.
        texts: first or only text of each.
        pairs: second text of each, None where there is one only.
        labels: of each, int32 or float32, None where the data set is not labelled. [N]
        cut: numbers of the rows whose texts were cut. int64 [cut rows]
        longest: tokens that the longest row would have without a cut, special tokens included.
        special: ids of [CLS], [SEP] and [PAD].
    """

    options: FeatureOptions
    texts: Texts
    pairs: Texts | None
    labels: np.ndarray | None
    cut: np.ndarray
    longest: int
    special: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.texts.lengths)

    def describe(self) -> str:
        """Returns a line that says how many rows were cut."""
        return (
            f"{len(self):,} rows of {self.options.seq_length} tokens, {len(self.cut):,} of them "
            f"cut ({len(self.cut) / max(1, len(self)):.2%}); the longest needs {self.longest:,}"
        )

    def rows(self, numbers: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """Makes some rows.

        Args:
            numbers: of the examples; -1 gives an empty row, to fill up a batch. [B]

        Returns:
            input_ids, input_mask and segment_ids int32 [B, T]; example int32 [B], which is
            `numbers`; weight float32 [B], 0 for an empty row and 1 for all others; and, of a data
            set with labels, label int32 or float32 [B], 0 for an empty row. An empty row is that of
            empty texts, so that no row is without a token that can be attended to.

        Raises:
            IndexError: for a number that is neither -1 nor that of an example.
        """
        wanted = np.asarray(numbers, np.int64)
        if wanted.size and (wanted.min() < -1 or wanted.max() >= len(self)):
            raise IndexError(
                f"rows {wanted.min()} to {wanted.max()}: expected -1 to {len(self) - 1}"
            )
        made = self._texts_of(wanted)
        made["example"] = wanted.astype(np.int32)
        made["weight"] = (wanted >= 0).astype(np.float32)
        if self.labels is not None:
            made["label"] = np.where(wanted >= 0, self.labels[wanted], self.labels.dtype.type(0))
        return made

    def _texts_of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        shape = (len(numbers), self.options.seq_length)
        cls, sep, pad = self.special
        ids = np.full(shape, pad, np.int32)
        mask, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for row, n in enumerate(numbers.tolist()):
            ids[row, 0] = cls
            end = 1
            for segment, texts in enumerate((self.texts, self.pairs)):
                if texts is None:
                    continue
                text = texts[n] if n >= 0 else ()
                start, end = end, end + len(text) + 1
                ids[row, start : end - 1] = text
                ids[row, end - 1] = sep
                segments[row, start:end] = segment
            mask[row, :end] = 1
        return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def make_features(
    dataset: Dataset, tokenizer: Tokenizer, options: FeatureOptions | None = None
) -> Features:
    """Encodes a data set.

    Texts that do not fit lose their ends: of two, the longer one is cut token by token until they
    fit together, the second one first where both are as long.

    Args:
        dataset: with texts and, if there are any, labels.
        tokenizer: of the model.
        options: length of the rows; the published one by default.

    Raises:
        DataError: if a row is too short to hold a token of each text.
    """
    options = options or FeatureOptions()
    number = 1 if dataset.pairs is None else 2
    room = _room(options.seq_length, number)
    ids, starts, lengths = _encode(dataset.texts, tokenizer)
    if dataset.pairs is None:
        total, pairs = lengths, None
        texts = Texts(ids, starts, np.minimum(lengths, room))
    else:
        others = _encode(dataset.pairs, tokenizer)
        total = lengths + others[2]
        kept, others_kept = fit_pairs(lengths, others[2], room)
        texts, pairs = Texts(ids, starts, kept), Texts(*others[:2], others_kept)
    return Features(
        options,
        texts,
        pairs,
        dataset.labels,
        np.flatnonzero(total > room),
        int(total.max(initial=0)) + 1 + number,
        (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
    )


def _room(seq_length: int, number: int) -> int:
    """Returns how many tokens of `number` texts fit into a row; DataError if not one of each."""
    room = seq_length - 1 - number
    if room < number:
        raise DataError(
            f"seq_length = {seq_length}: expected at least {2 * number + 1}, for [CLS] and "
            f"{number} x a token and [SEP]"
        )
    return room


def fit_pairs(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts the longer of two texts, token by token, until both fit; the second of equal ones.

    Each keeps half of the room, or what the other one leaves of it if that is more.

    Args:
        first: tokens of the first texts. int [N]
        second: tokens of the second. int [N]
        room: for both.

    Returns:
        Tokens of each that are kept. int32 [N] and int32 [N]
    """
    first_half, second_half = room - room // 2, room // 2
    return (
        np.minimum(first, np.maximum(first_half, room - second)).astype(np.int32),
        np.minimum(second, np.maximum(second_half, room - first)).astype(np.int32),
    )


def _encode(
    texts: Sequence[str], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (ids of all, where each text starts in them, tokens of each)."""
    parts, counts = [], []
    for begin in range(0, max(1, len(texts)), _AT_ONCE):
        ids, ends, _ = tokenizer.encode_flat(texts[begin : begin + _AT_ONCE])
        parts.append(ids.astype(np.int32))
        counts.append(np.diff(ends, prepend=0))
    lengths = np.concatenate(counts).astype(np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.concatenate(parts), ends - lengths, lengths
