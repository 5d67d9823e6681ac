"""The table of tasks, and tasks of one's own."""

import subprocess
import sys

import pytest

from bert_lamb.data.errors import DataError
from bert_lamb.glue.tasks import TASKS, custom_task, find_task


def test_the_tasks_have_the_metrics_of_the_paper():
    # Table 1 of arXiv 1804.07461.
    assert {name: task.metrics for name, task in TASKS.items()} == {
        "CoLA": ("matthews_correlation",), "SST-2": ("accuracy",), "MRPC": ("accuracy", "f1"),
        "STS-B": ("pearson", "spearman"), "QQP": ("accuracy", "f1"), "MNLI": ("accuracy",),
        "QNLI": ("accuracy",), "RTE": ("accuracy",), "WNLI": ("accuracy",),
    }  # fmt: skip
    single = {name for name, task in TASKS.items() if len(task.texts) == 1}
    assert single == {"CoLA", "SST-2"}
    assert {name: task.outputs for name, task in TASKS.items()} == {
        **dict.fromkeys(TASKS, 2), "STS-B": 1, "MNLI": 3,
    }  # fmt: skip
    assert find_task("rte").labels == ("entailment", "not_entailment")
    assert find_task("CoLA").main_metric == "matthews_correlation"
    assert {name for name, task in TASKS.items() if task.main_metric == "mean"} == {
        "MRPC", "STS-B", "QQP",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"), [("sst2", "SST-2"), ("STS_B", "STS-B"), ("cola", "CoLA")]
)
def test_names_are_found_whatever_their_case_and_hyphens(name, found):
    assert find_task(name) is TASKS[found]


def test_an_unknown_task_is_answered_with_those_there_are():
    with pytest.raises(DataError, match=r"'SQuAD': expected one of CoLA, SST-2, .*WNLI; for a"):
        find_task("SQuAD")


def test_a_task_of_ones_own_is_scored_by_accuracy_or_correlations():
    classes = custom_task(["text"], "topic")
    assert (classes.labels, classes.metrics) == (None, ("accuracy",))
    with pytest.raises(DataError, match="task custom: its labels are not known yet; read"):
        classes.outputs  # noqa: B018
    assert custom_task(["text"], "topic", labels=["no", "yes", "maybe"]).outputs == 3
    numbers = custom_task(["a", "b"], "degree", regression=True)
    assert (numbers.outputs, numbers.metrics) == (1, ("pearson", "spearman"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": []}, "task t: 0 text columns, expected 1 or 2"),
        ({"texts": ["a", "b", "c"]}, "task t: 3 text columns"),
        ({"texts": ["a", "a"]}, "columns 'a', 'a', 'gold', 'index' of .* must differ"),
        ({"texts": ["gold"]}, "columns 'gold', 'gold', 'index'"),
        ({"texts": ["index"]}, "columns 'index', 'gold', 'index'"),
        ({"labels": ["x"]}, "labels 'x', expected two or more"),
        ({"labels": []}, "labels none, expected two or more"),
        ({"labels": ["x", "x"]}, "labels 'x', 'x', expected two or more, each once"),
        ({"labels": ["x", "y"], "regression": True}, "a regression has no labels"),
        ({"metrics": ["pearson"]}, "metrics pearson: expected for classes one or more of accuracy"),
        ({"metrics": ["f1"], "regression": True}, "metrics f1: expected for a regression one or"),
        ({"metrics": []}, "metrics none: expected"),
        ({"metrics": ["accuracy", "accuracy"]}, "accuracy, accuracy: expected .* each once"),
        ({"labels": ["x", "y", "z"], "metrics": ["f1"]}, "f1 is that of two labels, and there are"),
    ],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_named(arguments, message):
    with pytest.raises(DataError, match=message):
        custom_task(**{"texts": ["a"], "label": "gold", "name": "t", **arguments})


def test_the_package_loads_neither_jax_nor_the_libraries_of_the_metrics():
    code = (
        "import sys;"
        "from bert_lamb.glue import features, metrics, reading, writing;"
        "print([n for n in ('jax', 'sklearn', 'scipy', 'tensorflow') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
