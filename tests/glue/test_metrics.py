"""Scores equal their published formulas, and are defined where the formulas are not."""

import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from bert_lamb.data.errors import DataError
from bert_lamb.glue.metrics import decide, evaluate
from bert_lamb.glue.tasks import custom_task, find_task

COLA, MRPC, STSB, MNLI = (find_task(name) for name in ("CoLA", "MRPC", "STS-B", "MNLI"))
FLOATS = st.floats(-100, 100, width=32).map(lambda x: round(x, 1))  # with ties


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def ranks(values: np.ndarray) -> np.ndarray:
    """Mean of the places that equal values take."""
    below = (values[None] < values[:, None]).sum(1)
    return below + ((values[None] == values[:, None]).sum(1) + 1) / 2


def f1(found: np.ndarray, right: np.ndarray) -> float:
    true = int((found & right).sum())
    return 2 * true / (int(found.sum()) + int(right.sum())) if true else 0.0


def score(task, found, right, kind=np.int32) -> dict[str, float]:
    return evaluate(task, np.array(found, kind), np.array(right, kind)).metrics


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_scores_of_two_classes_equal_their_formulas(pairs):
    found, right = np.array(pairs, np.int32).T
    of_mrpc = score(MRPC, found, right)
    assert of_mrpc["accuracy"] == pytest.approx((found == right).mean(), abs=1e-12)
    assert of_mrpc["f1"] == pytest.approx(f1(found, right), abs=1e-12)
    assert of_mrpc["mean"] == pytest.approx((of_mrpc["accuracy"] + of_mrpc["f1"]) / 2, abs=1e-12)
    # Matthews' coefficient is Pearson's of two classes.
    is_defined = len(set(found.tolist())) == 2 == len(set(right.tolist()))
    expected = pearson(found.astype(float), right.astype(float)) if is_defined else 0.0
    assert score(COLA, found, right) == {"matthews_correlation": pytest.approx(expected, abs=1e-9)}


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=30))
@settings(max_examples=50, deadline=None)
def test_correlations_equal_their_formulas(pairs):
    found, right = np.array(pairs, np.float32).astype(np.float64).T
    of_stsb = score(STSB, found, right, np.float32)
    if len(set(found)) == 1 or len(set(right)) == 1:
        assert of_stsb == {"pearson": 0.0, "spearman": 0.0, "mean": 0.0}
        return
    assert of_stsb["pearson"] == pytest.approx(pearson(found, right), abs=1e-9)
    assert of_stsb["spearman"] == pytest.approx(pearson(ranks(found), ranks(right)), abs=1e-9)
    assert of_stsb["mean"] == pytest.approx(
        (of_stsb["pearson"] + of_stsb["spearman"]) / 2, abs=1e-12
    )


def test_matthews_of_three_classes_is_that_of_gorodkin():
    task = custom_task(["a"], "gold", labels=["x", "y", "z"], metrics=["matthews_correlation"])
    found, right = np.array([0, 1, 2, 2, 1, 0, 1]), np.array([0, 1, 2, 0, 1, 2, 2])
    x, y = (np.eye(3)[values] - np.eye(3)[values].mean(0) for values in (found, right))
    expected = (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
    assert score(task, found, right)["matthews_correlation"] == pytest.approx(expected, abs=1e-12)
    assert score(MNLI, found, right) == {"accuracy": pytest.approx(4 / 7)}


def test_what_is_not_defined_is_zero_and_noted():
    same = np.array([1, 1, 1], np.int32)
    said = "matthews_correlation not defined, given as 0"
    both = "pearson and spearman not defined, given as 0"
    for task, found, right, notes in (
        (COLA, same, np.array([0, 1, 1]), (f"all predictions are 1: {said}",)),
        (COLA, np.array([0, 1, 1]), same, (f"all labels are 1: {said}",)),
        (STSB, same * 2.5, same * 1.0, (f"all predictions are 2.5: {both}",
                                        f"all labels are 1: {both}")),
        (MRPC, same, same, ()),
    ):  # fmt: skip
        made = evaluate(task, found, right)
        assert made.notes == notes
        if task is not MRPC:
            assert made.metrics[made.main] == 0.0
    assert score(MRPC, [0, 0], [0, 0]) == {"accuracy": 1.0, "f1": 0.0, "mean": 0.5}
    assert score(MRPC, [1, 1], [1, 1]) == {"accuracy": 1.0, "f1": 1.0, "mean": 1.0}


def test_numbers_that_differ_in_the_last_digit_only_are_no_constant():
    found = np.nextafter(np.float32(4), [9, 9, 0], dtype=np.float32)
    made = evaluate(STSB, found, np.array([1, 1, 0], np.float32))
    assert made.metrics["pearson"] == pytest.approx(1.0)
    assert not made.notes


def test_the_main_score_is_the_mean_where_there_are_two():
    assert evaluate(MRPC, np.array([1]), np.array([1])).main == "mean"
    assert list(score(MRPC, [1], [1])) == ["accuracy", "f1", "mean"]
    assert evaluate(COLA, np.array([1]), np.array([1])).main == "matthews_correlation"


@pytest.mark.parametrize(
    ("task", "found", "right", "message"),
    [
        (COLA, np.array([1, 0]), np.array([1]), "2 predictions for 1 labels, expected one"),
        (STSB, np.zeros(0), np.zeros(0), "0 predictions for 0 labels"),
        (COLA, np.array([0, 2]), np.array([0, 1]), "prediction 2 of example 1, expected 0 to 1"),
        (COLA, np.array([0, 1]), np.array([-1, 1]), "label -1 of example 0, expected 0 to 1"),
        (COLA, np.array([0.0, 1.0]), np.array([0, 1]), "predictions are float64 of shape"),
        (COLA, np.zeros((2, 2), int), np.array([0, 1]), r"predictions are int64 of shape \(2, 2\)"),
        (STSB, np.array([1, np.nan]), np.ones(2), "prediction nan of example 1, expected a finite"),
        (STSB, np.array([1, 1e39]), np.ones(2), "prediction inf of example 1, expected a finite"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_named(task, found, right, message):
    with pytest.raises(DataError, match=message):
        evaluate(task, found, right)


def test_an_absent_library_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(
        DataError, match=r"need scikit-learn and SciPy .*pip install 'bert-lamb\[gl"
    ):
        score(COLA, [1], [1])


def test_outputs_become_the_likeliest_label_or_the_number():
    found = decide(MNLI, np.array([[0.1, 0.3, 0.2], [1, 1, 0], [-3, -2, -1]], np.float32))
    assert (found.tolist(), found.dtype) == ([1, 0, 2], np.int32)
    numbers = decide(STSB, np.array([[2.5], [-1.0]], np.float32))
    assert (numbers.tolist(), numbers.dtype) == ([2.5, -1.0], np.float32)
    for wrong in (np.zeros((3, 2)), np.zeros(3)):
        with pytest.raises(DataError, match=r"outputs of shape .*, expected \(examples, 3\)"):
            decide(MNLI, wrong)
    with pytest.raises(
        DataError, match="outputs of 2 of 3 examples are not finite, the first that"
    ):
        decide(COLA, np.array([[0, 1], [np.nan, 0], [0, -np.inf]]))
