"""The threshold above which "no answer" is chosen, tuned on questions whose answers are known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError


@dataclass(frozen=True)
class Threshold:
    """The best threshold.

    Attributes:
        value: "no answer" is chosen where the null odds are above it.
        score: mean score with it, in percent.
    """

    value: float
    score: float


def tune_threshold(
    null_odds: Sequence[float] | np.ndarray,
    scores: Sequence[float] | np.ndarray,
    has_answer: Sequence[bool] | np.ndarray,
) -> Threshold:
    """Returns the threshold with the best mean score; the lowest one among equals.

    Every choice that a threshold can make is compared: questions of equal odds go together, and one
    choice is "no answer" to all of them.

    Args:
        null_odds: of each question. floating [n]
        scores: exact match or F1, 0 to 1, of the best answer that is not "no answer". floating [n]
        has_answer: whether the question has an answer; "no answer" scores 1 where not. bool [n]

    Raises:
        DataError: for no question, or odds that are not numbers.
    """
    odds = np.asarray(null_odds, np.float64)
    if not len(odds) or not np.isfinite(odds).all():
        raise DataError("null odds: expected a number for each question, and one at least")
    order = np.argsort(odds, kind="stable")
    right_if_null = ~np.asarray(has_answer, bool)
    gain = (np.asarray(scores, np.float64) - right_if_null)[order]
    totals = right_if_null.sum() + np.concatenate([[0.0], np.cumsum(gain)])
    ordered = odds[order]
    # A threshold stands at the last of equal odds, or below all of them.
    stands = np.append(True, np.append(ordered[1:] != ordered[:-1], True))
    values = np.concatenate([[np.nextafter(ordered[0], -np.inf)], ordered])
    best = int(np.argmax(np.where(stands, totals, -np.inf)))
    return Threshold(float(values[best]), float(100.0 * totals[best] / len(odds)))
