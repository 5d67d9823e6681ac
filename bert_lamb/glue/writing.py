"""Predictions as the files that GLUE's server takes."""

import os
from collections import Counter

import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.glue.dataset import Dataset
from bert_lamb.glue.tasks import Task


def write_predictions(
    path: str | os.PathLike[str], dataset: Dataset, predictions: np.ndarray
) -> epath.Path:
    """Writes a table with the columns index and prediction, in the order of the data set.

    The server wants each task's file under its name: CoLA.tsv, MNLI-m.tsv, MNLI-mm.tsv and so on.

    Args:
        path: of the file, local or remote; its folder is made if absent.
        dataset: whose examples are predicted; its ids are the index.
        predictions: numbers of labels, which are written as their names, or numbers of a
            regression, written with as many digits as float32 holds. [N]

    Returns:
        The file.

    Raises:
        DataError: if there is not one prediction for each example, one is no label, or two
            examples have the same id.
    """
    file = epath.Path(path)
    if np.shape(predictions) != (len(dataset),):
        raise DataError(
            f"{file}: predictions of shape {np.shape(predictions)} for the {len(dataset):,} "
            f"examples of {dataset.name}"
        )
    twice = next((id for id, count in Counter(dataset.ids).items() if count > 1), None)
    if twice is not None:
        raise DataError(
            f"{dataset.name}: id {twice!r} is that of several examples; ids have to differ, since "
            "predictions are filed by them"
        )
    texts = _texts(dataset.task, np.asarray(predictions))
    lines = [f"{id}\t{text}\n" for id, text in zip(dataset.ids, texts, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(["index\tprediction\n", *lines]))
    return file


def _texts(task: Task, numbers: np.ndarray) -> list[str]:
    if task.regression:
        return [np.format_float_positional(n, trim="-") for n in numbers.astype(np.float32)]
    labels = task.known_labels
    for place, number in enumerate(numbers.tolist()):
        if number not in range(len(labels)):
            raise DataError(
                f"task {task.name}: prediction {number} of example {place}, expected 0 to "
                f"{len(labels) - 1}"
            )
    return [labels[int(number)] for number in numbers]
