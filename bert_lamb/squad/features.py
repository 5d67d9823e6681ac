"""Windows over contexts: rows of fixed length that hold a question and a part of its context.

A row is [CLS] question [SEP] part [SEP] [PAD]... A context that is too long gives several rows,
each `stride` tokens further on. Nothing of this knows of a model. A row is made when it is asked
for, so a data set takes little memory and batch t can be any rows in any order.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 4.2; google-research/bert, run_squad.py, for
    the windows and the rule of the maximal context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import Tokenizer
from bert_lamb.squad.alignment import Aligner, Tokens
from bert_lamb.squad.dataset import Dataset

_SPECIALS = 3  # [CLS], and [SEP] twice


@dataclass(frozen=True)
class FeatureOptions:
    """How windows are cut. The defaults are those of the BERT paper's code.

    Attributes:
        seq_length: tokens per row T, special tokens included.
        stride: tokens from the beginning of one window to that of the next.
        max_query: tokens of a question; the rest is cut off.
    """

    seq_length: int = 384
    stride: int = 128
    max_query: int = 64

    def __post_init__(self) -> None:
        """Checks that every token of any context gets into a window.

        Raises:
            DataError: naming the numbers that do not go together.
        """
        for key in ("seq_length", "stride", "max_query"):
            if getattr(self, key) < 1:
                raise DataError(f"{key} = {getattr(self, key)}: expected at least 1")
        room = self.seq_length - self.max_query - _SPECIALS
        if self.stride > room:
            raise DataError(
                f"stride {self.stride} > room {room} for the context in a row (seq_length "
                f"{self.seq_length} - max_query {self.max_query} - {_SPECIALS} special tokens): "
                "tokens would be in no window; use a longer row, or a smaller stride or max_query"
            )


@dataclass(frozen=True)
class Features:
    """The windows of a data set. Feature f is window number f, from 0 to N - 1.

    Attributes:
        options: how they were cut.
        contexts: tokens of each paragraph.
        queries: ids of each question, cut to max_query. int32 [questions][n]
        cut: numbers of the questions that were cut.
        question: number of the question of each feature; ascending. int32 [N]
        first: first context token in each. int32 [N]
        length: context tokens in each. int32 [N]
        paragraph: number of the paragraph of each question. int32 [questions]
        special: ids of [CLS], [SEP] and [PAD].
    """

    options: FeatureOptions
    contexts: tuple[Tokens, ...]
    queries: tuple[np.ndarray, ...]
    cut: tuple[int, ...]
    question: np.ndarray
    first: np.ndarray
    length: np.ndarray
    paragraph: np.ndarray
    special: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.question)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Question q has the features bounds[q] to bounds[q + 1] - 1. int64 [questions + 1]."""
        return np.searchsorted(self.question, np.arange(len(self.queries) + 1))

    @cached_property
    def offset(self) -> np.ndarray:
        """Position in the row of the first context token of each feature. int32 [N]."""
        sizes = np.array([len(query) for query in self.queries], np.int32)
        return sizes[self.question] + np.int32(2)

    def tokens(self, question: int) -> Tokens:
        """Returns the tokens of the context of a question."""
        return self.contexts[self.paragraph[question]]

    def rows(self, numbers: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """Makes the rows of some features.

        Args:
            numbers: of the features; -1 gives an empty row, to fill up a batch. [B]

        Returns:
            input_ids, input_mask and segment_ids int32 [B, T], and feature int32 [B], which is
            `numbers`. The mask of an empty row covers its [CLS] [SEP] [SEP].
        """
        shape = (len(numbers), self.options.seq_length)
        cls, sep, pad = self.special
        ids = np.full(shape, pad, np.int32)
        mask, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for row, f in enumerate(np.asarray(numbers, np.int64).tolist()):
            query = self.queries[self.question[f]] if f >= 0 else ()
            part = self._part(f) if f >= 0 else ()
            begin = len(query) + 2
            end = begin + len(part) + 1
            ids[row, 0] = cls
            ids[row, 1 : begin - 1] = query
            ids[row, begin : end - 1] = part
            ids[row, [begin - 1, end - 1]] = sep
            mask[row, :end] = 1
            segments[row, begin:end] = 1
        return {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": segments,
            "feature": np.asarray(numbers, np.int32),
        }

    def _part(self, feature: int) -> np.ndarray:
        first = self.first[feature]
        tokens = self.tokens(self.question[feature])
        return tokens.ids[first : first + self.length[feature]]

    def max_context(self, question: int) -> list[np.ndarray]:
        """Returns for each feature of a question which of its context tokens it sees best.

        A token in several windows belongs to the one where the smaller of its two sides is the
        largest, with a hundredth of the window's length on top; to the first among equals.

        Returns:
            For each feature of the question: bool [length].
        """
        span = slice(*self.bounds[question : question + 2])
        size = len(self.tokens(question).ids)
        score, best = np.full(size, -1.0), np.full(size, -1)
        windows = list(zip(self.first[span].tolist(), self.length[span].tolist(), strict=True))
        for w, (first, length) in enumerate(windows):
            token = np.arange(length)
            own = np.minimum(token, length - 1 - token) + 0.01 * length
            inside = slice(first, first + length)
            better = own > score[inside]
            score[inside][better], best[inside][better] = own[better], w
        return [best[first : first + length] == w for w, (first, length) in enumerate(windows)]


def make_features(
    dataset: Dataset, tokenizer: Tokenizer, options: FeatureOptions | None = None
) -> Features:
    """Cuts a data set into windows.

    A context without a token gives its questions no feature at all.

    Args:
        dataset: questions and contexts.
        tokenizer: of the model.
        options: lengths; the published ones by default.

    Raises:
        DataError: if the tokenizer cannot say where its tokens are.
    """
    options = options or FeatureOptions()
    contexts = Aligner(tokenizer).encode([p.context for p in dataset.paragraphs])
    full = tokenizer.encode_batch([q.text for q in dataset.questions])
    paragraph = np.array([q.paragraph for q in dataset.questions], np.int32)
    windows = []
    for number, ids in enumerate(full):
        room = options.seq_length - min(len(ids), options.max_query) - _SPECIALS
        size = len(contexts[paragraph[number]].ids)
        windows += [(number, *window) for window in _windows(size, room, options.stride)]
    question, first, length = np.array(windows, np.int32).reshape(-1, 3).T.copy()
    return Features(
        options,
        tuple(contexts),
        tuple(np.array(ids[: options.max_query], np.int32) for ids in full),
        tuple(number for number, ids in enumerate(full) if len(ids) > options.max_query),
        question,
        first,
        length,
        paragraph,
        (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
    )


def _windows(size: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Returns (first token, tokens) of windows that cover `size` tokens."""
    found = []
    for first in range(0, size, stride):
        found.append((first, min(room, size - first)))
        if first + room >= size:
            break
    return found
