"""Predictions as the official files: predictions.json, nbest.json and null_odds.json."""

import json
import math
import os
from collections.abc import Sequence
from typing import Any

from etils import epath

from bert_lamb.squad.predicting import Candidate, Prediction

FILES = PREDICTIONS_FILE, NBEST_FILE, NULL_ODDS_FILE = (
    "predictions.json", "nbest.json", "null_odds.json"
)  # fmt: skip


def write_predictions(
    folder: str | os.PathLike[str], predictions: Sequence[Prediction]
) -> list[epath.Path]:
    """Writes the official files into a folder, made if absent; null_odds.json for v2.0 only.

    Args:
        folder: local or remote.
        predictions: of all questions of a data set.

    Returns:
        The files.
    """
    contents: dict[str, Any] = {
        PREDICTIONS_FILE: {p.id: p.text for p in predictions},
        NBEST_FILE: {p.id: [_entry(c) for c in p.candidates] for p in predictions},
    }
    odds = {p.id: p.null_odds for p in predictions if p.null_odds is not None}
    if odds:
        contents[NULL_ODDS_FILE] = odds
    directory = epath.Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        # ASCII with escapes, as the official script writes it; holds any character of a context.
        (directory / name).write_text(json.dumps(content, indent=4) + "\n")
    return [directory / name for name in contents]


def _entry(candidate: Candidate) -> dict[str, Any]:
    return {
        "text": candidate.text,
        "probability": math.exp(candidate.log_probability),
        "log_probability": candidate.log_probability,
        "start_logit": candidate.start_logit,
        "end_logit": candidate.end_logit,
    }
