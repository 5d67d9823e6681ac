"""The published scores of predictions, by scikit-learn and SciPy.

Both are loaded when they are needed; `check_libraries` says early whether they are there. Scores
are fractions, as the libraries give them: papers print 100 times as much.

References:
    Wang et al., "GLUE" (arXiv 1804.07461), section 3, for which task is scored by what.
"""

import warnings
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.glue.tasks import ACCURACY, F1, MATTHEWS, MEAN, PEARSON, Task


@dataclass(frozen=True)
class Evaluation:
    """Scores of predictions.

    Attributes:
        metrics: by name in the order of the task, and "mean" behind them where there are several.
        main: name of the one to compare models by.
        notes: what to know about the numbers.
    """

    metrics: dict[str, float]
    main: str
    notes: tuple[str, ...] = ()


def check_libraries() -> None:
    """Checks that scores can be computed, for the time before a model is trained.

    Raises:
        DataError: if a library is absent; says how to install it.
    """
    try:
        import scipy.stats  # noqa: F401
        import sklearn.metrics  # noqa: F401
    except ImportError as error:
        raise DataError(
            f"scores of GLUE need scikit-learn and SciPy ({error}); run "
            "`pip install 'bert-lamb[glue]'`"
        ) from error


def decide(task: Task, outputs: np.ndarray) -> np.ndarray:
    """Turns a model's outputs into predictions.

    Args:
        task: with its labels.
        outputs: logits, or the numbers of a regression. floating [N, C]

    Returns:
        Number of the label with the highest logit, the first among equals, int32; or the numbers
        themselves, float32. [N]

    Raises:
        DataError: if there are not C outputs for the task, or one is not a finite number.
    """
    found = np.asarray(outputs)
    if found.ndim != 2 or found.shape[1] != task.outputs:
        raise DataError(
            f"task {task.name}: outputs of shape {found.shape}, expected (examples, {task.outputs})"
        )
    bad = np.flatnonzero(~np.isfinite(found).all(1))
    if len(bad):
        raise DataError(
            f"task {task.name}: outputs of {len(bad):,} of {len(found):,} examples are not finite, "
            f"the first that of example {bad[0]}; the model has diverged"
        )
    if task.regression:
        return found[:, 0].astype(np.float32)
    return found.argmax(1).astype(np.int32)


def evaluate(task: Task, predictions: np.ndarray, labels: np.ndarray) -> Evaluation:
    """Scores predictions by the metrics of a task.

    A correlation is not defined where all predictions or all labels are equal. It is given as 0
    with a note, as Matthews' is by convention (it is Pearson's of two classes): a model that says
    the same of every text has learned nothing, and one such run must neither stop a series of runs
    nor make their mean "not a number".

    Args:
        task: with its labels and metrics. F1 is that of the second label.
        predictions: numbers of labels, or numbers of a regression. [N]
        labels: the right ones. [N]

    Returns:
        Scores as fractions: accuracy and f1 from 0 to 1, correlations from -1 to 1.

    Raises:
        DataError: for no example, lengths that differ, something that is no label or no finite
            number, or a library that is absent.
    """
    check_libraries()
    found, right = _checked(task, predictions, "prediction"), _checked(task, labels, "label")
    if len(found) != len(right) or not len(right):
        raise DataError(
            f"task {task.name}: {len(found):,} predictions for {len(right):,} labels, expected one "
            "for each, and one at least"
        )
    scores = {name: _score(name, found, right) for name in task.metrics}
    if len(scores) > 1:
        scores[MEAN] = float(np.mean(list(scores.values())))
    return Evaluation(scores, task.main_metric, tuple(_notes(task, found, right)))


def _checked(task: Task, values: np.ndarray, what: str) -> np.ndarray:
    given = np.asarray(values)
    if given.ndim != 1 or given.dtype.kind not in ("iuf" if task.regression else "iu"):
        raise DataError(
            f"task {task.name}: {what}s are {given.dtype} of shape {given.shape}, expected "
            f"{'numbers' if task.regression else 'whole numbers'} of shape (examples,)"
        )
    if task.regression:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            given = given.astype(np.float32).astype(np.float64)
        wrong, expected = ~np.isfinite(given), "a finite number"
    else:
        wrong = (given < 0) | (given >= task.outputs)
        expected = f"0 to {task.outputs - 1}"
    if wrong.any():
        place = int(wrong.argmax())
        raise DataError(
            f"task {task.name}: {what} {given[place]} of example {place}, expected {expected}"
        )
    return given


def _score(name: str, found: np.ndarray, right: np.ndarray) -> float:
    from scipy import stats
    from sklearn import metrics

    if name == ACCURACY:
        return float(metrics.accuracy_score(right, found))
    if name == F1:
        return float(metrics.f1_score(right, found, pos_label=1, zero_division=0.0))
    if _is_constant(found) or _is_constant(right):
        return 0.0
    if name == MATTHEWS:
        return float(metrics.matthews_corrcoef(right, found))
    correlation = stats.pearsonr if name == PEARSON else stats.spearmanr
    with warnings.catch_warnings():
        # Numbers that differ in their last digits only; the result is no less defined for it.
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return float(correlation(found, right).statistic)


def _is_constant(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())


def _notes(task: Task, found: np.ndarray, right: np.ndarray) -> list[str]:
    correlations = [name for name in task.metrics if name not in (ACCURACY, F1)]
    names = None if task.regression else task.known_labels
    notes = []
    for what, values in (("predictions", found), ("labels", right)):
        if correlations and _is_constant(values):
            value = f"{values[0]:g}" if names is None else names[values[0]]
            notes.append(
                f"all {what} are {value}: {' and '.join(correlations)} not defined, given as 0"
            )
    return notes
