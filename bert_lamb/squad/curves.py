"""Precision and recall as ever more questions are answered; the data and the picture."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError


@dataclass(frozen=True)
class Curve:
    """Precision against recall.

    Attributes:
        precision: of the questions answered so far. float64 [points]
        recall: the same sum over all questions that have an answer. float64 [points]
        average_precision: area under the curve, in percent.
    """

    precision: np.ndarray
    recall: np.ndarray
    average_precision: float


def precision_recall(null_odds: np.ndarray, scores: np.ndarray, has_answer: np.ndarray) -> Curve:
    """Follows precision and recall from the surest question to the least sure one.

    The rules are those of evaluate-v2.0.py: a question without an answer adds nothing to the true
    ones, and questions with equal odds come together.

    Args:
        null_odds: of each question; the surest has the smallest. floating [n]
        scores: of each answer, 0 to 1. floating [n]
        has_answer: whether the question has an answer; one must. bool [n]
    """
    order = np.argsort(null_odds, kind="stable")
    true = np.cumsum(np.where(has_answer, scores, 0.0)[order])
    precision = true / np.arange(1, len(order) + 1)
    recall = true / np.count_nonzero(has_answer)
    ordered = np.asarray(null_odds)[order]
    stands = np.append(ordered[1:] != ordered[:-1], True)
    precision = np.append(1.0, precision[stands])
    recall = np.append(0.0, recall[stands])
    area = float(np.sum(precision[1:] * np.diff(recall)))
    return Curve(precision, recall, 100.0 * area)


def plot_curves(curves: Mapping[str, Curve], file: str | os.PathLike[str]) -> None:
    """Draws curves into a picture.

    Args:
        curves: by name.
        file: its ending says which kind (.png, .svg, .pdf); local or remote.

    Raises:
        DataError: if matplotlib is absent or does not know the ending.
    """
    path = epath.Path(file)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError(
            f"{path}: a picture needs matplotlib ({error}); run `pip install matplotlib`"
        ) from error
    figure = Figure(figsize=(6, 5), layout="constrained")
    kinds = FigureCanvasAgg(figure).get_supported_filetypes()
    kind = path.suffix.lower().removeprefix(".")
    if kind not in kinds:
        raise DataError(f"{path}: not a kind of picture; end it in .png, .svg or .pdf")
    axes = figure.subplots()
    for name, curve in curves.items():
        label = f"{name}, average precision {curve.average_precision:.1f} %"
        axes.step(curve.recall, curve.precision, where="pre", label=label)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    with path.open("wb") as out:
        figure.savefig(out, format=kind, dpi=150)
