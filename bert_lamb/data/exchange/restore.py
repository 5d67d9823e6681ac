"""Masked rows back to the sentence pairs they were made of."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import Example
from bert_lamb.data.exchange.rows import MaskedRows
from bert_lamb.data.tokenization import Tokenizer

_WRONG_VOCABULARY = "give the vocabulary the file was made with"
_DAMAGED = "make the file again, or leave it out"


@dataclass(frozen=True)
class Text:
    """What tells the tokens of a text from those that only rows have.

    Attributes:
        cls_id: id at the start of a row.
        sep_id: id after either segment.
        name: name of a token by its id, for messages.
        is_text: whether an id may come from text: all but special and [unusedN] tokens, and
            [UNK]. bool [V]
    """

    cls_id: int
    sep_id: int
    name: Callable[[int], str]
    is_text: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Text":
        """Looks them up in a vocabulary."""
        is_text = np.zeros(tokenizer.vocab_size, bool)
        is_text[tokenizer.ordinary_ids] = True
        is_text[tokenizer.unk_id] = True
        return cls(tokenizer.cls_id, tokenizer.sep_id, tokenizer.token, is_text)


def restore(rows: MaskedRows, text: Text) -> list[Example]:
    """Puts the predicted tokens back in their places and takes the rows apart.

    A row without second segment has no sentence label, whatever its file says.

    Raises:
        DataError: if a row is not [CLS] a [SEP] b [SEP] [PAD]... or [CLS] a [SEP] [PAD]... of
            tokens of the vocabulary, or its features contradict one another; names the file and
            the record.
    """
    lengths, lengths_a = _check_segments(rows)
    _check_ids(rows, len(text.is_text))
    tokens = _unmasked(rows, lengths)
    _check_tokens(rows, tokens, lengths, lengths_a, text)
    labels = _check_labels(rows)
    return [
        Example(row[1 : a - 1], row[a : n - 1], bool(label))
        if a < n
        else Example(row[1 : n - 1], None)
        for row, n, a, label in zip(tokens, lengths, lengths_a, labels, strict=True)
    ]


def _check_segments(rows: MaskedRows) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of each row and those of its [CLS] a [SEP]. int64 [B], int64 [B]."""
    column = np.arange(rows.input_ids.shape[1])
    lengths = (rows.input_mask != 0).sum(axis=1)
    inside = column < lengths[:, None]
    _require(
        rows.input_mask == inside,
        rows,
        lambda row: f"input_mask is not ones, then zeros; {_DAMAGED}",
    )
    lengths_a = lengths - (rows.segment_ids != 0).sum(axis=1)
    second = inside & (column >= lengths_a[:, None])
    _require(
        rows.segment_ids == second,
        rows,
        lambda row: f"segment_ids is not zeros, ones, then zeros for the padding; {_DAMAGED}",
    )
    lengths_b = lengths - lengths_a
    _require(
        (lengths_a >= 3) & (lengths_b != 1),
        rows,
        lambda row: (
            f"{lengths_a[row]} tokens of the first and {lengths_b[row]} of the second segment; "
            f"expected [CLS] a [SEP] of at least 3 and b [SEP] of at least 2, or none; {_DAMAGED}"
        ),
    )
    return lengths, lengths_a


def _check_ids(rows: MaskedRows, vocab_size: int) -> None:
    for name, ids in (("input_ids", rows.input_ids), ("masked_lm_ids", rows.masked_lm_ids)):
        wrong = (ids < 0) | (ids >= vocab_size)
        _require(
            ~wrong,
            rows,
            lambda row, name=name, ids=ids, wrong=wrong: (  # type: ignore[misc]
                f"{name} holds {ids[row][wrong[row]][0]}, expected ids from 0 to "
                f"{vocab_size - 1}; {_WRONG_VOCABULARY}"
            ),
        )


def _unmasked(rows: MaskedRows, lengths: np.ndarray) -> np.ndarray:
    """Returns the rows with the predicted tokens in their places. int64 [B, T]."""
    weights, positions = rows.masked_lm_weights, rows.masked_lm_positions
    used = weights == 1
    _require(
        used | (weights == 0),
        rows,
        lambda row: f"masked_lm_weights holds other values than 0 and 1; {_DAMAGED}",
    )
    _require(
        ~used | ((positions >= 0) & (positions < lengths[:, None])),
        rows,
        lambda row: (
            f"masked_lm_positions holds {positions[row][used[row]].tolist()}, expected positions "
            f"of the {lengths[row]} tokens of the row; {_DAMAGED}"
        ),
    )
    T, P = rows.input_ids.shape[1], positions.shape[1]
    places = np.sort(np.where(used, positions, T + np.arange(P)), axis=1)
    _require(
        np.diff(places, axis=1) > 0,
        rows,
        lambda row: (
            f"masked_lm_positions holds a position twice: {positions[row][used[row]].tolist()}; "
            f"{_DAMAGED}"
        ),
    )
    tokens = rows.input_ids.copy()
    row_of = np.broadcast_to(np.arange(len(tokens))[:, None], used.shape)
    tokens[row_of[used], positions[used]] = rows.masked_lm_ids[used]
    return tokens


def _check_tokens(
    rows: MaskedRows, tokens: np.ndarray, lengths: np.ndarray, lengths_a: np.ndarray, text: Text
) -> None:
    for token, id, where in (
        ("[CLS]", text.cls_id, np.zeros_like(lengths)),
        ("[SEP]", text.sep_id, lengths_a - 1),
        ("[SEP]", text.sep_id, lengths - 1),
    ):
        found = np.take_along_axis(tokens, where[:, None], axis=1)[:, 0]
        _require(
            found == id,
            rows,
            lambda row, token=token, id=id, where=where, found=found: (  # type: ignore[misc]
                f"id {found[row]} at position {where[row]}, where this vocabulary needs {token} = "
                f"{id}; {_WRONG_VOCABULARY}"
            ),
        )
    column = np.arange(tokens.shape[1])
    is_special = (column == 0) | (column == lengths_a[:, None] - 1)
    # Where rows of one segment cross documents, a [SEP] stands between them.
    is_special |= (lengths_a == lengths)[:, None] & (tokens == text.sep_id)
    alien = ~text.is_text[tokens] & ~is_special & (column < lengths[:, None] - 1)
    _require(
        ~alien,
        rows,
        lambda row: (
            f"id {tokens[row][alien[row]][0]} among the words, which is "
            f"{text.name(int(tokens[row][alien[row]][0]))} in this vocabulary and stands for no "
            f"text; {_WRONG_VOCABULARY}"
        ),
    )


def _check_labels(rows: MaskedRows) -> np.ndarray:
    labels = rows.next_sentence_labels[:, 0]
    _require(
        (labels == 0) | (labels == 1),
        rows,
        lambda row: f"next_sentence_labels holds {labels[row]}, expected 0 or 1; {_DAMAGED}",
    )
    return labels


def _require(good: np.ndarray, rows: MaskedRows, describe: Callable[[int], str]) -> None:
    """Raises DataError for the first row that is not all good. bool [B] or [B, n]."""
    if not good.all():
        row = int(np.argwhere(~good)[0, 0])
        raise DataError(f"{rows.place(row)}: {describe(row)}")
