"""Rows hold the texts between their special tokens, cut as Google's code cuts them."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import WordPiece
from bert_lamb.glue.dataset import Dataset
from bert_lamb.glue.features import FeatureOptions, fit_pairs, make_features
from bert_lamb.glue.tasks import Task, custom_task, find_task

SINGLE, PAIR = find_task("SST-2"), find_task("RTE")
SMALL = FeatureOptions(seq_length=8)


def data(
    texts: list[str], pairs: list[str] | None = None, labels: np.ndarray | None = None,
    task: Task | None = None,
) -> Dataset:  # fmt: skip
    task = task or (SINGLE if pairs is None else PAIR)
    ids = tuple(map(str, range(len(texts))))
    return Dataset("made up", task, ("a",), ids, tuple(texts), pairs and tuple(pairs), labels)


def names(tokenizer: WordPiece, row: np.ndarray) -> str:
    return " ".join(tokenizer.tokens[id] for id in row)


def cut_by_google(first: int, second: int, room: int) -> tuple[int, int]:
    """Takes tokens off one by one, as _truncate_seq_pair of run_classifier.py is described."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_one_text_stands_between_cls_and_sep(tokenizer):
    made = make_features(data(["ab c", ""], labels=np.array([1, 0], np.int32)), tokenizer, SMALL)
    rows = made.rows([1, 0, -1])
    assert [names(tokenizer, row) for row in rows["input_ids"]] == [
        "[CLS] [SEP] [PAD] [PAD] [PAD] [PAD] [PAD] [PAD]",
        "[CLS] a ##b c [SEP] [PAD] [PAD] [PAD]",
        "[CLS] [SEP] [PAD] [PAD] [PAD] [PAD] [PAD] [PAD]",
    ]
    assert rows["input_mask"].sum(1).tolist() == [2, 5, 2]
    assert not rows["segment_ids"].any()
    assert rows["label"].tolist() == [0, 1, 0]
    assert rows["weight"].tolist() == [1, 1, 0]
    assert rows["example"].tolist() == [1, 0, -1]
    assert (len(made), made.longest, made.cut.tolist()) == (2, 5, [])


def test_two_texts_stand_between_cls_sep_and_sep(tokenizer):
    made = make_features(data(["a b", ""], ["c", ""]), tokenizer, SMALL)
    rows = made.rows([0, 1, -1])
    empty = "[CLS] [SEP] [SEP] [PAD] [PAD] [PAD] [PAD] [PAD]"
    assert [names(tokenizer, row) for row in rows["input_ids"]] == [
        "[CLS] a b [SEP] c [SEP] [PAD] [PAD]", empty, empty,
    ]  # fmt: skip
    assert rows["input_mask"].tolist() == [[1] * 6 + [0] * 2, *[[1] * 3 + [0] * 5] * 2]
    assert rows["segment_ids"].tolist() == [
        [0] * 4 + [1] * 2 + [0] * 2, *[[0] * 2 + [1] + [0] * 5] * 2,
    ]  # fmt: skip
    assert rows["weight"].tolist() == [1, 1, 0]
    assert "label" not in rows  # so that nobody learns from labels that are not there


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_types_are_those_a_model_takes(tokenizer, kind):
    task = custom_task(["a"], "degree", regression=True) if kind == np.float32 else SINGLE
    labels = np.array([1, 0], kind)
    rows = make_features(data(["a", "b"], None, labels, task), tokenizer, SMALL).rows([0, -1])
    assert {key: value.dtype.type for key, value in rows.items()} == {
        "input_ids": np.int32, "input_mask": np.int32, "segment_ids": np.int32,
        "example": np.int32, "weight": np.float32, "label": kind,
    }  # fmt: skip
    assert all(value.shape == ((2, 8) if value.ndim == 2 else (2,)) for value in rows.values())
    empty = make_features(data(["a", "b"], None, labels, task), tokenizer, SMALL).rows([])
    assert empty["input_ids"].shape == (0, 8)
    assert empty["label"].shape == (0,)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 40))
def test_the_longer_of_two_texts_is_cut_token_by_token(first, second, room):
    found = fit_pairs(np.array([first]), np.array([second]), room)
    assert tuple(int(kept[0]) for kept in found) == cut_by_google(first, second, room)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
       st.integers(5, 16), st.booleans())  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_rows_hold_the_beginnings_of_the_texts_and_cuts_are_counted(
    tokenizer, sizes, length, is_pair
):
    texts = [" ".join("abcdefghi"[:a]) for a, _ in sizes]
    others = [" ".join("qrstuvwxy"[:b]) for _, b in sizes]
    made = make_features(
        data(texts, others if is_pair else None), tokenizer, FeatureOptions(length)
    )
    rows = made.rows(range(len(sizes)))
    room = length - (3 if is_pair else 2)
    for n, (a, b) in enumerate(sizes):
        kept, others_kept = cut_by_google(a, b, room) if is_pair else (min(a, room), 0)
        tokens = ["[CLS]", *texts[n].split()[:kept], "[SEP]"]
        if is_pair:
            tokens += [*others[n].split()[:others_kept], "[SEP]"]
        padded = tokens + ["[PAD]"] * (length - len(tokens))
        assert names(tokenizer, rows["input_ids"][n]) == " ".join(padded)
        assert rows["input_mask"][n].tolist() == [int(token != "[PAD]") for token in padded]
        assert rows["segment_ids"][n].sum() == (others_kept + 1 if is_pair else 0)
    totals = np.array([a + b * is_pair for a, b in sizes])
    assert made.cut.tolist() == np.flatnonzero(totals > room).tolist()
    assert made.longest == totals.max() + length - room


def test_any_rows_can_be_had_in_any_order_and_no_others(tokenizer):
    made = make_features(data(list("abcdef"), list("uvwxyz")), tokenizer, SMALL)
    order = [3, 3, -1, 0, 5]
    rows, whole = made.rows(order), made.rows(range(6))
    for place, n in enumerate(order):
        if n >= 0:
            assert (rows["input_ids"][place] == whole["input_ids"][n]).all()
    for wrong in ([6], [-2]):
        with pytest.raises(IndexError, match=r"expected -1 to 5"):
            made.rows(wrong)


def test_more_texts_than_are_encoded_at_once_stay_apart(tokenizer, monkeypatch):
    texts, others = ["ab", "", "c d e", "f", "gh"], ["v", "w x", "", "yz", "u"]
    whole = make_features(data(texts, others), tokenizer, SMALL).rows(range(5))
    monkeypatch.setattr("bert_lamb.glue.features._AT_ONCE", 2)
    parts = make_features(data(texts, others), tokenizer, SMALL).rows(range(5))
    assert all((parts[key] == whole[key]).all() for key in whole)


def test_no_example_gives_no_row(tokenizer):
    made = make_features(data([], []), tokenizer, SMALL)
    assert len(made) == 0
    assert made.rows([-1])["weight"].tolist() == [0]


def test_rows_too_short_for_a_token_of_each_text_are_refused(tokenizer):
    with pytest.raises(DataError, match="seq_length = 4: expected at least 5, for"):
        make_features(data(["a"], ["b"]), tokenizer, FeatureOptions(4))
    with pytest.raises(DataError, match="seq_length = 2: expected at least 3"):
        make_features(data(["a"]), tokenizer, FeatureOptions(2))
    made = make_features(data(["a c"], ["b d"]), tokenizer, FeatureOptions(5))
    assert names(tokenizer, made.rows([0])["input_ids"][0]) == "[CLS] a [SEP] b [SEP]"
    assert made.describe() == "1 rows of 5 tokens, 1 of them cut (100.00%); the longest needs 7"
