"""Scores of anyone's predictions, as the official evaluation gives them.

References:
    evaluate-v1.1.py and evaluate-v2.0.py of the SQuAD explorer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.squad.curves import Curve, precision_recall
from bert_lamb.squad.dataset import Dataset, Version, shown
from bert_lamb.squad.reading import read_json
from bert_lamb.squad.scoring import score_answer
from bert_lamb.squad.thresholds import tune_threshold

OFFICIAL_THRESHOLD = 1.0  # evaluate-v2.0.py's --na-prob-thresh


@dataclass(frozen=True)
class Evaluation:
    """Scores of a file of predictions.

    Attributes:
        version: of the data set.
        metrics: by their official names and in their order; percent, counts and thresholds.
        missing: ids of questions without a prediction; each scores 0.
        unknown: ids of predictions without a question; without effect.
        notes: what to know about the numbers.
        curves: precision against recall by name, where null odds were given.
    """

    version: Version
    metrics: dict[str, float | int]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()
    curves: dict[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class _Scored:
    """Scores before a threshold is applied, in the order of the data set. All [questions].

    Attributes:
        exact, f1: 0 to 1.
        has_answer: whether there is an answer.
        predicted: whether there is a prediction.
        says_null: whether it is "".
        odds: of "no answer".
        order: numbers of the questions by their odds, equal ones as in the file of null odds.
    """

    exact: np.ndarray
    f1: np.ndarray
    has_answer: np.ndarray
    predicted: np.ndarray
    says_null: np.ndarray
    odds: np.ndarray | None
    order: np.ndarray


def read_predictions(path: str) -> dict[str, str]:
    """Reads a file of predictions: an object of question ids and texts.

    Raises:
        DataError: if it is anything else; names the id.
    """
    return _read_object(path, str, "a text", "predictions")


def read_null_odds(path: str) -> dict[str, float]:
    """Reads a file of null odds: an object of question ids and numbers.

    Raises:
        DataError: if it is anything else; names the id.
    """
    odds = _read_object(path, (int, float), "a number", "null odds")
    for id, value in odds.items():
        if not _is_finite(value):
            raise DataError(f"{path}: question {id!r}: {value!r:.40}, expected a finite number")
    return {id: float(value) for id, value in odds.items()}


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _read_object(path: str, kind: Any, expected: str, what: str) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: {content!r:.60}, expected an object of question ids and {what} "
            '({"ID": ..., ...})'
        )
    for id, value in content.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(f"{path}: question {id!r}: {value!r:.60}, expected {expected}")
    return content


def evaluate(
    dataset: Dataset,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = OFFICIAL_THRESHOLD,
) -> Evaluation:
    """Scores predictions as evaluate-v1.1.py and evaluate-v2.0.py do.

    Questions without a prediction score 0 in both versions; the official script for v2.0 does not
    finish there.

    Args:
        dataset: with answers; its version decides about the rules.
        predictions: text by question id; "" for no answer.
        null_odds: by question id, of v2.0: scores or probabilities of "no answer". Where they are
            above `null_threshold`, the answer is taken for none. With them come best thresholds and
            precision against recall.
        null_threshold: the official default is 1.

    Raises:
        DataError: if the data set is not labelled or of no question that was predicted, null odds
            are given for v1.1 or missing for a question, or the threshold is not a number.
    """
    dataset.require_labels()
    if math.isnan(null_threshold):
        raise DataError(f"null_threshold = {null_threshold}: expected a number")
    ids = [question.id for question in dataset.questions]
    missing = tuple(id for id in ids if id not in predictions)
    unknown = tuple(predictions.keys() - set(ids))
    if len(missing) == len(ids):
        raise DataError(
            f"{dataset.name}: none of its {len(ids):,} questions is predicted; the predictions are "
            f"for {shown(sorted(unknown)) or 'no question at all'}"
        )
    scored = _scored(dataset, predictions, null_odds)
    if dataset.version == "1.1":
        metrics = {
            "exact_match": _percent(scored.exact),
            "f1": _percent(scored.f1),
            "total": len(ids),
        }
        return Evaluation("1.1", metrics, missing, tuple(sorted(unknown)))
    metrics = _metrics(scored, null_threshold)
    notes: tuple[str, ...] = ()
    curves: dict[str, Curve] = {}
    if scored.odds is not None:
        curves = _curves(scored)
        notes = _add_best(metrics, scored)
        metrics |= {f"pr_{name}_ap": curve.average_precision for name, curve in curves.items()}
    return Evaluation("2.0", metrics, missing, tuple(sorted(unknown)), notes, curves)


def _scored(
    dataset: Dataset, predictions: Mapping[str, str], null_odds: Mapping[str, float] | None
) -> _Scored:
    questions = dataset.questions
    pairs = []
    for question in questions:
        text = predictions.get(question.id)
        pairs.append((0.0, 0.0) if text is None else score_answer(text, question, dataset.version))
    exact, f1 = np.array(pairs, np.float64).T
    has_answer = np.array([question.has_answer for question in questions])
    predicted = np.array([question.id in predictions for question in questions])
    says_null = np.array([predictions.get(question.id) == "" for question in questions])
    odds, order = None, np.arange(len(questions))
    if null_odds is not None:
        _check_odds(dataset, null_odds)
        odds = np.array([null_odds[question.id] for question in questions], np.float64)
        places = {id: place for place, id in enumerate(null_odds)}
        order = np.lexsort((np.array([places[question.id] for question in questions]), odds))
    return _Scored(exact, f1, has_answer, predicted, says_null, odds, order)


def _check_odds(dataset: Dataset, null_odds: Mapping[str, float]) -> None:
    if dataset.version == "1.1":
        raise DataError(
            f"{dataset.name}: of SQuAD v1.1, where every question has an answer; null odds go with "
            "v2.0, leave them out"
        )
    missing = [question.id for question in dataset.questions if question.id not in null_odds]
    if missing:
        raise DataError(
            f"null odds: {len(missing):,} questions are missing ({shown(missing)}); give all of "
            "them, or leave the null odds out"
        )


def _percent(scores: np.ndarray) -> float:
    return float(100.0 * scores.sum() / len(scores))


def _metrics(scored: _Scored, threshold: float) -> dict[str, float | int]:
    exact, f1 = scored.exact, scored.f1
    if scored.odds is not None:
        is_null = (scored.odds > threshold) & scored.predicted
        exact = np.where(is_null, ~scored.has_answer, exact)
        f1 = np.where(is_null, ~scored.has_answer, f1)
    metrics: dict[str, float | int] = {}
    for prefix, part in (
        ("", np.ones_like(scored.has_answer)),
        ("HasAns_", scored.has_answer),
        ("NoAns_", ~scored.has_answer),
    ):
        if part.any():
            metrics[f"{prefix}exact"] = _percent(exact[part])
            metrics[f"{prefix}f1"] = _percent(f1[part])
            metrics[f"{prefix}total"] = int(part.sum())
    return metrics


def _curves(scored: _Scored) -> dict[str, Curve]:
    """Returns the curves of the official script; none where no question has an answer."""
    if scored.odds is None or not scored.has_answer.any():
        return {}
    kinds = {"exact": scored.exact, "f1": scored.f1, "oracle": scored.has_answer.astype(float)}
    return {
        name: precision_recall(scored.odds, scores, scored.has_answer)
        for name, scores in kinds.items()
    }


def _add_best(metrics: dict[str, float | int], scored: _Scored) -> tuple[str, ...]:
    """Adds the official best thresholds; returns a note for each that cannot be had."""
    assert scored.odds is not None
    notes = []
    for name, scores in (("exact", scored.exact), ("f1", scored.f1)):
        score, value = _official_best(scored, scores)
        metrics[f"best_{name}"], metrics[f"best_{name}_thresh"] = score, value
        attained = tune_threshold(scored.odds, scores, scored.has_answer)
        if not np.isclose(score, attained.score, rtol=0, atol=1e-9):
            notes.append(
                f"best_{name}: the official rule gives {score:.4f}, but no threshold scores more "
                f"than {attained.score:.4f} (at {attained.value:.6g})"
            )
    return tuple(notes)


def _official_best(scored: _Scored, scores: np.ndarray) -> tuple[float, float]:
    """Returns (best score in percent, its threshold) by the rule of evaluate-v2.0.py.

    It takes questions one by one, also those of equal odds, calls the threshold 0 where nothing
    beats "no answer" to all, and takes any text but "" for wrong where there is no answer.
    """
    assert scored.odds is not None
    gain = np.where(scored.has_answer, scores, np.where(scored.says_null, 0.0, -1.0))[scored.order]
    totals = np.cumsum(np.append(float((~scored.has_answer).sum()), gain))
    best = int(totals.argmax())
    value = float(scored.odds[scored.order][best - 1]) if best else 0.0
    return float(100.0 * totals[best] / len(scores)), value
