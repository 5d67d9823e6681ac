"""SQuAD as a task of the trainer, and the answers of a trained model."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from etils import epath

from bert_lamb import model
from bert_lamb.config import ConfigError
from bert_lamb.data.errors import DataError
from bert_lamb.finetuning.config import SquadConfig
from bert_lamb.finetuning.forward import Forward, all_outputs
from bert_lamb.finetuning.task import TOKENIZER, Finetuning, open_start
from bert_lamb.finetuning.tuned import TunedModel
from bert_lamb.parallel.hosts import is_first
from bert_lamb.parallel.layout import Layout
from bert_lamb.squad.dataset import Dataset, Paragraph, Question
from bert_lamb.squad.evaluating import Evaluation, evaluate
from bert_lamb.squad.features import Features, make_features
from bert_lamb.squad.labels import Labels, make_labels
from bert_lamb.squad.predicting import Prediction, PredictionOptions, in_order, predict
from bert_lamb.squad.reading import read_dataset
from bert_lamb.squad.writing import write_predictions
from bert_lamb.training.state import Params
from bert_lamb.training.task import HostBatch
from bert_lamb.training.trainer import Outcome, train

DEV_FOLDER = "dev"


@dataclass(frozen=True)
class SquadScore:
    """Official scores of the questions of a development set, in percent.

    Attributes:
        evaluation: what `bert-lamb squad evaluate` prints.
    """

    evaluation: Evaluation

    def to_dict(self) -> dict[str, float | int]:
        """Returns the scores by their official names."""
        return dict(self.evaluation.metrics)

    def describe(self) -> str:
        """Returns the scores in a line."""
        found = self.evaluation.metrics
        exact = found["exact_match" if self.evaluation.version == "1.1" else "exact"]
        line = f"dev: EM {exact:.2f}, F1 {found['f1']:.2f}"
        if "best_f1" in found:
            line += f", best F1 {found['best_f1']:.2f} at threshold {found['best_f1_thresh']:.3f}"
        return line


def finetune(
    config: SquadConfig, workdir: epath.PathLike, devices: Sequence[jax.Device] | None = None
) -> Outcome:
    """Fine-tunes on SQuAD; resumes if `workdir` holds a checkpoint of this run.

    Each evaluation leaves its predictions in `workdir`/dev.

    Arguments, outcome and errors are those of `train`.

    Raises:
        ConfigError, DataError, CheckpointError: besides, if data or checkpoint cannot be used.
    """
    return train(prepare(config, workdir)[0], workdir, devices)


def prepare(config: SquadConfig, workdir: epath.PathLike) -> tuple[Finetuning, list[str]]:
    """Reads all that a run needs.

    Returns:
        The task, and lines that describe the data.
    """
    train_set = read_dataset(config.train, config.version)
    dev_set = read_dataset(config.dev, config.version) if config.dev else None
    train_set.require_labels()
    start = open_start(config)
    config = dataclasses.replace(config, model=start.model)
    features = make_features(train_set, start.tokenizer, config.features)
    labels = make_labels(train_set, features)
    examples = np.flatnonzero(labels.trainable)
    if not len(examples):
        raise DataError(f"{config.train}: no answer to learn from; {labels.describe(0)}")
    longest = config.answers.max_answer_tokens
    lines = [f"train: {config.train}", train_set.describe(), labels.describe(longest)]
    score = None
    if dev_set is not None:
        dev_set.require_labels()
        dev_set = _first_questions(dev_set, config.evaluation.max_examples)
        lines += [f"dev: {config.dev}", dev_set.describe()]
        dev_features = make_features(dev_set, start.tokenizer, config.features)
        score = _Evaluator(config, dev_set, dev_features, epath.Path(workdir) / DEV_FOLDER)
    task = Finetuning(
        config,
        config.run(config.features.seq_length, len(examples), "features.seq_length"),
        model.question_answering(config.model),
        start,
        _Rows(features, labels),
        examples,
        {config.train: _fingerprint(train_set), TOKENIZER: start.tokenizer.hash},
        score,
    )
    return task, lines


@dataclass(frozen=True)
class _Rows:
    """Rows with the answers to learn."""

    features: Features
    labels: Labels

    def __call__(self, numbers: np.ndarray) -> HostBatch:
        rows = self.features.rows(numbers)
        del rows["feature"]
        return rows | {
            "start": self.labels.start[numbers],
            "end": self.labels.end[numbers],
            "weight": np.ones(len(numbers), np.float32),
        }


@dataclass(frozen=True)
class _Evaluator:
    """Scores parameters on a development set and writes their predictions."""

    config: SquadConfig
    dataset: Dataset
    features: Features
    folder: epath.Path

    def __call__(self, forward: Forward, layout: Layout, params: Params) -> SquadScore:
        found = predict_all(
            forward, layout, params, self.dataset, self.features, self.config.answers,
            self.config.evaluation.batch,
        )  # fmt: skip
        if is_first():
            write_predictions(self.folder, found)
        return score(self.dataset, found, self.config.answers.null_threshold)


def predict_all(
    forward: Forward,
    layout: Layout,
    params: Params,
    dataset: Dataset,
    features: Features,
    options: PredictionOptions,
    batch: int,
) -> list[Prediction]:
    """Answers every question of a data set; every host gets all answers.

    Args:
        forward: the model.
        layout: of the parameters.
        params: of the model.
        dataset: the questions.
        features: their windows.
        options: how answers are chosen.
        batch: rows at once over all devices.
    """
    outputs = all_outputs(forward, params, layout, features.rows, len(features), batch)
    blocks = ((numbers, out.start_logits, out.end_logits) for numbers, out in outputs)
    return list(predict(dataset, features, *in_order(blocks, features), options))


def score(dataset: Dataset, found: Sequence[Prediction], threshold: float) -> SquadScore:
    """Scores predictions; of v2.0 with the best thresholds for exact match and F1.

    There, the best span counts where the odds of no answer are not above the threshold: the
    answers are those of the predictions, and a better threshold is found if there is one.
    """
    if dataset.version == "1.1":
        return SquadScore(evaluate(dataset, {p.id: p.text for p in found}))
    spans = {p.id: p.best_span.text if p.best_span else "" for p in found}
    odds = {p.id: p.null_odds for p in found if p.null_odds is not None}
    return SquadScore(evaluate(dataset, spans, odds, threshold))


def predict_dataset(
    tuned: TunedModel[SquadConfig], dataset: Dataset, options: PredictionOptions, batch: int
) -> list[Prediction]:
    """Answers the questions of a data set with a fine-tuned model.

    Raises:
        ConfigError: if the data are of another version than the model was trained for.
    """
    version = tuned.config.version
    if dataset.version != version:
        raise ConfigError(
            f"{dataset.name} is SQuAD v{dataset.version}, but the model was fine-tuned on "
            f"v{version}, which {'has' if version == '1.1' else 'lacks'} an answer to every "
            "question; use a model of the data's version"
        )
    features = make_features(dataset, tuned.tokenizer, tuned.config.features)
    return predict_all(tuned.forward, tuned.layout, tuned.params, dataset, features, options, batch)


def ask(
    tuned: TunedModel[SquadConfig], context: str, questions: Sequence[str], n_best: int = 20
) -> list[Prediction]:
    """Answers questions on a text.

    Args:
        tuned: the model.
        context: any text; answers are slices of it.
        questions: one or more.
        n_best: candidates of each.
    """
    made = tuple(Question(str(i), text, 0) for i, text in enumerate(questions))
    dataset = Dataset("context", tuned.config.version, (Paragraph("", context),), made)
    options = dataclasses.replace(tuned.config.answers, n_best=n_best)
    return predict_dataset(tuned, dataset, options, batch=8)


def _first_questions(dataset: Dataset, number: int) -> Dataset:
    """Returns the first questions of a data set; all for 0."""
    if not number:
        return dataset
    return dataclasses.replace(dataset, questions=dataset.questions[:number])


def _fingerprint(dataset: Dataset) -> str:
    """Returns 16 hexadecimal digits that tell one data set from another."""
    content = repr((dataset.version, dataset.paragraphs, dataset.questions))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
