"""GLUE as a task of the trainer, and the predictions of a trained model."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from etils import epath

from bert_lamb.finetuning.config import GlueConfig
from bert_lamb.finetuning.forward import Forward, all_outputs
from bert_lamb.finetuning.runs import objective_of, task_of
from bert_lamb.finetuning.task import TOKENIZER, Finetuning, open_start
from bert_lamb.finetuning.tuned import TunedModel
from bert_lamb.glue.dataset import Dataset
from bert_lamb.glue.features import Features, make_features
from bert_lamb.glue.metrics import Evaluation, check_libraries, decide, evaluate
from bert_lamb.glue.reading import read_dataset
from bert_lamb.glue.tasks import Task
from bert_lamb.parallel.layout import Layout
from bert_lamb.training.state import Params
from bert_lamb.training.task import HostBatch
from bert_lamb.training.trainer import Outcome, train


@dataclass(frozen=True)
class GlueScore:
    """Published metrics on a development set.

    Attributes:
        evaluation: metrics by name, 0 to 1, or -1 to 1 for correlations.
    """

    evaluation: Evaluation

    def to_dict(self) -> dict[str, float]:
        """Returns the metrics by name."""
        return dict(self.evaluation.metrics)

    def describe(self) -> str:
        """Returns the metrics in a line."""
        found = self.evaluation
        figures = ", ".join(f"{name} {value:.4f}" for name, value in found.metrics.items())
        return f"dev: {figures}" + "".join(f" (note: {note})" for note in found.notes)


def finetune(
    config: GlueConfig, workdir: epath.PathLike, devices: Sequence[jax.Device] | None = None
) -> Outcome:
    """Fine-tunes on a task of GLUE; resumes if `workdir` holds a checkpoint of this run.

    Arguments, outcome and errors are those of `train`.

    Raises:
        ConfigError, DataError, CheckpointError: besides, if data or checkpoint cannot be used.
    """
    return train(prepare(config)[0], workdir, devices)


def prepare(config: GlueConfig) -> tuple[Finetuning, list[str]]:
    """Reads all that a run needs.

    Returns:
        The task, and lines that describe the data.
    """
    if config.dev:
        check_libraries()
    train_set = read_dataset(config.train, task_of(config))
    train_set.require_labels()
    task = train_set.task  # knows the labels now
    dev_set = read_dataset(config.dev, task) if config.dev else None
    if dev_set is not None:
        train_set = _apart(train_set, dev_set)
        dev_set = dev_set.first(config.evaluation.max_examples)
    start = open_start(config)
    labels = task.known_labels if config.text_columns and not task.regression else ()
    config = dataclasses.replace(config, model=start.model, labels=labels)
    features = make_features(train_set, start.tokenizer, config.features)
    lines = [f"train: {config.train}", train_set.describe(), features.describe()]
    evaluator = None
    if dev_set is not None:
        dev_set.require_labels()
        dev_features = make_features(dev_set, start.tokenizer, config.features)
        lines += [f"dev: {config.dev}", dev_set.describe(), dev_features.describe()]
        evaluator = _Evaluator(task, dev_features, config.evaluation.batch)
    return Finetuning(
        config,
        config.run(config.features.seq_length, len(features), "features.seq_length"),
        objective_of(config),
        start,
        _Rows(features),
        np.arange(len(features)),
        {config.train: _fingerprint(train_set), TOKENIZER: start.tokenizer.hash},
        evaluator,
    ), lines


def _apart(train_set: Dataset, dev_set: Dataset) -> Dataset:
    """Takes a development set out of a training file that holds all of it, as MRPC's does.

    Single examples that are in both, as a few of CoLA are, stay: published scores have them.
    """
    rest = train_set.without(dev_set)
    return rest if len(train_set) - len(rest) >= len(dev_set) else train_set


@dataclass(frozen=True)
class _Rows:
    """Rows with their labels."""

    features: Features

    def __call__(self, numbers: np.ndarray) -> HostBatch:
        rows = self.features.rows(numbers)
        del rows["example"]
        return rows


@dataclass(frozen=True)
class _Evaluator:
    """Scores parameters on a development set."""

    task: Task
    features: Features
    batch: int

    def __call__(self, forward: Forward, layout: Layout, params: Params) -> GlueScore:
        outputs = outputs_of(forward, layout, params, self.features, self.batch)
        assert self.features.labels is not None  # as prepare has seen to
        return GlueScore(evaluate(self.task, decide(self.task, outputs), self.features.labels))


def outputs_of(
    forward: Forward, layout: Layout, params: Params, features: Features, batch: int
) -> np.ndarray:
    """Returns the model's outputs for all rows, float32 [N, C]; every host gets all."""
    blocks = all_outputs(forward, params, layout, features.rows, len(features), batch)
    return np.concatenate([np.asarray(outputs)[numbers >= 0] for numbers, outputs in blocks])


def predict_dataset(tuned: TunedModel[GlueConfig], dataset: Dataset, batch: int) -> np.ndarray:
    """Returns what a fine-tuned model says of each example: numbers of classes, or numbers. [N]."""
    features = make_features(dataset, tuned.tokenizer, tuned.config.features)
    outputs = outputs_of(tuned.forward, tuned.layout, tuned.params, features, batch)
    return decide(dataset.task, outputs)


def _fingerprint(dataset: Dataset) -> str:
    """Returns 16 hexadecimal digits that tell one data set from another."""
    digest = hashlib.sha256(repr((dataset.texts, dataset.pairs)).encode("utf-8", "surrogatepass"))
    digest.update(b"" if dataset.labels is None else dataset.labels.tobytes())
    return digest.hexdigest()[:16]
