"""Configurations of fine-tuning runs; files under configs/ are read into them.

The shape of the model comes from the checkpoint that a run starts from. What the section `model`
says of dropout, dtype, remat and the like is this run's own.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from bert_lamb.config import (
    CheckpointConfig,
    ConfigError,
    EvaluationConfig,
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    TrainingPhase,
)
from bert_lamb.config.checks import require
from bert_lamb.config.sections import check_run
from bert_lamb.glue.features import FeatureOptions as RowOptions
from bert_lamb.squad.features import FeatureOptions
from bert_lamb.squad.predicting import PredictionOptions

# What a checkpoint decides: parameters of another shape would not fit, and of other numerics they
# would mean something else.
SHAPE = (
    "vocab_size", "num_layers", "hidden_size", "num_heads", "intermediate_size", "max_positions",
    "type_vocab_size", "activation", "layer_norm_eps", "vocab_multiple",
)  # fmt: skip


@dataclass(frozen=True)
class FinetuneConfig:
    """What every fine-tuning run has.

    Attributes:
        init_from: folder of a run or of one of its checkpoints, or of a BERT in Hugging Face's
            form (config.json, model.safetensors and the tokenizer); "" draws random weights.
        vocab: tokenizer, as `--vocab` of `bert-lamb data build`; only with random weights, since
            checkpoints have their own.
        cased: whether a vocab.txt named by `vocab` is a cased one.
        model: see the module.
        epochs: passes over the training data; parts of one are fine.
        global_batch: rows per update over all devices.
        max_rows_per_device: see `PhaseConfig`.
        peak_lr: learning rate at the end of the warm-up.
        warmup_share: share of the updates with a rising rate.
        decay_power: see `PhaseConfig`.
        seed: of the head, the order of the data and dropout.
        nonfinite_limit: see `RunConfig`.
    """

    init_from: str = ""
    vocab: str = ""
    cased: bool = False
    model: ModelConfig = field(default_factory=ModelConfig)
    epochs: float = 2.0
    global_batch: int = 32
    max_rows_per_device: int = 0
    peak_lr: float = 3e-5
    warmup_share: float = 0.1
    decay_power: float = 1.0
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(name="adamw", bias_correction=False)
    )
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    seed: int = 0
    nonfinite_limit: int = 1

    def __post_init__(self) -> None:
        require(self.epochs > 0, "epochs", self.epochs, "more than 0")
        require(0 <= self.warmup_share <= 1, "warmup_share", self.warmup_share, "a share in [0, 1]")
        check_run(self.seed, self.nonfinite_limit)
        named = bool(self.vocab)
        if self.init_from:
            require(not named, "vocab", self.vocab, "'', since init_from has a tokenizer")
            require(not self.cased, "cased", self.cased, "False, since init_from has a tokenizer")
        else:
            require(named, "vocab", self.vocab, "a tokenizer, since init_from is ''")
        self.phase(seq_length=128, examples=1)  # for its checks

    def phase(self, seq_length: int, examples: int) -> TrainingPhase:
        """Returns the one phase of the run."""
        updates = self.epochs * examples / max(self.global_batch, 1)
        require(
            updates < 2**31, "epochs", self.epochs, f"fewer than 2**31 updates, not {updates:g}"
        )
        steps = math.ceil(updates)
        return TrainingPhase(
            seq_length=seq_length,
            global_batch=self.global_batch,
            steps=steps,
            peak_lr=self.peak_lr,
            warmup_steps=round(self.warmup_share * steps),
            decay_power=self.decay_power,
            max_rows_per_device=self.max_rows_per_device,
        )

    def run(self, seq_length: int, examples: int, key: str) -> RunConfig:
        """Returns what the trainer is told.

        Args:
            seq_length: tokens per row.
            examples: rows to train on.
            key: of the row's length, for messages.

        Raises:
            ConfigError: if the rows are longer than the model's positions.
        """
        longest = self.model.max_positions
        if seq_length > longest:
            raise ConfigError(
                f"config.{key} = {seq_length}: expected at most {longest}, the positions of the "
                "model"
            )
        try:
            return RunConfig(
                model=self.model,
                optimizer=self.optimizer,
                phases=(self.phase(seq_length, examples),),
                parallel=self.parallel,
                checkpoint=self.checkpoint,
                evaluation=self.evaluation,
                logging=self.logging,
                seed=self.seed,
                nonfinite_limit=self.nonfinite_limit,
                init_from=self.init_from,
            )
        except ConfigError as error:
            raise ConfigError(f"config.{error}") from None


def with_shape(model: ModelConfig, shape: ModelConfig, origin: str) -> ModelConfig:
    """Returns `model` with the shape of a checkpoint.

    Args:
        model: of the configuration.
        shape: of the checkpoint.
        origin: name of the checkpoint.

    Raises:
        ConfigError: if the configuration asks for another shape.
    """
    for key in SHAPE:
        own, theirs = getattr(model, key), getattr(shape, key)
        if own not in (theirs, getattr(ModelConfig, key)):
            raise ConfigError(
                f"config.model.{key} = {own!r}: expected {theirs!r}, that of {origin}; leave it out"
            )
    return dataclasses.replace(model, **{key: getattr(shape, key) for key in SHAPE})


@dataclass(frozen=True)
class SquadConfig(FinetuneConfig):
    """A fine-tuning run on SQuAD.

    Attributes:
        train: SQuAD file, local or remote, or tfds:squad/v1.1@train.
        dev: the same, scored at the end and every `evaluation.every_steps`; "" for none.
        version: "1.1" or "2.0"; data of the other version are refused.
        features: rows and windows.
        answers: how answers are chosen from the logits.
    """

    train: str = ""
    dev: str = ""
    version: Literal["1.1", "2.0"] = "1.1"
    features: FeatureOptions = field(default_factory=FeatureOptions)
    answers: PredictionOptions = field(default_factory=PredictionOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.train), "train", self.train, "a SQuAD file to learn from")


@dataclass(frozen=True)
class GlueConfig(FinetuneConfig):
    """A fine-tuning run on a task of GLUE, or on a table of one's own.

    Attributes:
        task: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI; any other name for a table of
            one's own, whose columns are then named.
        train: TSV file of the form of GLUE's.
        dev: the same, scored at the end and every `evaluation.every_steps`; "" for none.
        text_columns: one or two header names, for a table of one's own.
        label_column: header name, likewise.
        labels: names of the classes, likewise; none takes those of the training file.
        metrics: likewise; none takes accuracy, or both correlations for a regression.
        regression: labels are numbers, likewise.
        features: rows.
    """

    task: str = ""
    train: str = ""
    dev: str = ""
    text_columns: tuple[str, ...] = ()
    label_column: str = ""
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    regression: bool = False
    features: RowOptions = field(default_factory=RowOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.task), "task", self.task, "the name of a task, such as 'MRPC'")
        require(bool(self.train), "train", self.train, "a TSV file to learn from")
        own = bool(self.text_columns)
        for key in ("label_column", "labels", "metrics", "regression"):
            value = getattr(self, key)
            require(own or not value, key, value, "left out, since text_columns is")
        require(
            own == bool(self.label_column),
            "label_column",
            self.label_column,
            "the header name of the labels, since text_columns names those of the texts",
        )
