"""Predictions are written as GLUE takes them, and come back as they were."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bert_lamb.data.errors import DataError
from bert_lamb.glue.dataset import Dataset
from bert_lamb.glue.reading import read_dataset, read_predictions
from bert_lamb.glue.tasks import custom_task, find_task
from bert_lamb.glue.writing import write_predictions

RTE, STSB = find_task("RTE"), find_task("STS-B")


def made(task, *ids: str) -> Dataset:
    texts = ("x",) * len(ids)
    return Dataset("made up", task, ("a",), ids, texts, texts, None)


def test_predictions_are_an_index_and_the_name_of_a_label(write, tmp_path):
    path = write("index\tsentence1\tsentence2", "0\ta\tb", "1\tc\td", "2\te\tf")
    data = read_dataset(path, RTE)
    file = write_predictions(tmp_path / "out" / "RTE.tsv", data, np.array([1, 0, 1]))
    assert file.read_bytes() == (
        b"index\tprediction\n0\tnot_entailment\n1\tentailment\n2\tnot_entailment\n"
    )
    assert read_predictions(str(file), data).tolist() == [1, 0, 1]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_of_a_regression_come_back_bit_by_bit(tmp_path, values):
    values = [2.5, -0.125, float(np.finfo(np.float32).max), *values]
    data = made(STSB, *map(str, range(len(values))))
    file = write_predictions(tmp_path / "STS-B.tsv", data, np.array(values))
    assert file.read_text().splitlines()[:3] == ["index\tprediction", "0\t2.5", "1\t-0.125"]
    found = read_predictions(str(file), data)
    assert found.tobytes() == np.array(values, np.float32).tobytes()


def test_predictions_may_come_in_any_order_but_all_of_them_once(write):
    data = made(RTE, "a", "b", "c")
    lines = ["c\tentailment", "a\tnot_entailment", "b\tentailment"]
    assert read_predictions(write("index\tprediction", *lines), data).tolist() == [1, 0, 0]
    for some, message in (
        (lines[:2], r"1 indices not predicted: 'b'; expected one prediction for each of the 3"),
        ([*lines, "d\tentailment"], "1 indices not in made up: 'd'"),
        ([*lines, lines[0]], "1 indices predicted twice: 'c'"),
        ([*lines[:2], "b\tmaybe"], "line 4: label 'maybe', expected one of 'entailment', 'not_en"),
    ):
        with pytest.raises(DataError, match=message):
            read_predictions(write("index\tprediction", *some), data)
    with pytest.raises(
        DataError, match="no column 'index', expected a header of predictions for R"
    ):
        read_predictions(write("id\tprediction", *lines), data)
    with pytest.raises(DataError, match="no column 'prediction'"):
        read_predictions(write("index\tlabel", *lines), data)


def test_what_cannot_be_filed_is_named(tmp_path):
    with pytest.raises(DataError, match=r"RTE\.tsv: predictions of shape \(1,\) for the 2 example"):
        write_predictions(tmp_path / "RTE.tsv", made(RTE, "a", "b"), np.array([0]))
    with pytest.raises(DataError, match="made up: id 'b' is that of several examples"):
        write_predictions(tmp_path / "RTE.tsv", made(RTE, "a", "b", "b"), np.array([0, 1, 0]))
    unknown = custom_task(["a", "b"], "gold")
    with pytest.raises(DataError, match="its labels are not known yet"):
        write_predictions(tmp_path / "x.tsv", made(unknown, "a"), np.array([0]))
    with pytest.raises(DataError, match="prediction 2 of example 1, expected 0 to 1"):
        write_predictions(tmp_path / "RTE.tsv", made(RTE, "a", "b"), np.array([0, 2]))
    assert not list(tmp_path.iterdir())
