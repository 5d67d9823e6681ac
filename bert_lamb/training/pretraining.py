"""Pretraining as a task of the trainer: records, masks, and scores on held-out records."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property

import jax
import numpy as np
from etils import epath

from bert_lamb import model
from bert_lamb.config import ConfigError, PretrainConfig
from bert_lamb.data.batches.pipeline import eval_batches, train_batches
from bert_lamb.data.batches.source import RecordSource
from bert_lamb.data.errors import DataError
from bert_lamb.data.records.manifest import Manifest, check_records, read_manifest
from bert_lamb.data.tokenization import TOKENIZER_FILES
from bert_lamb.evaluation.heldout import HeldoutScore, build_evaluator, evaluate
from bert_lamb.model import Objective
from bert_lamb.parallel.batches import local_rows
from bert_lamb.parallel.layout import Layout, placed
from bert_lamb.training.checkpoint import load_weights
from bert_lamb.training.state import Params
from bert_lamb.training.task import HostBatch, Scorer
from bert_lamb.training.trainer import Outcome, train


def pretrain(
    config: PretrainConfig, workdir: epath.PathLike, devices: Sequence[jax.Device] | None = None
) -> Outcome:
    """Pretrains BERT as `config` says; resumes if `workdir` holds a checkpoint of this run.

    Arguments, outcome and errors are those of `train`.

    Raises:
        ConfigError, DataError: besides, if records are missing or do not fit the configuration;
            before anything is compiled.
    """
    return train(Pretraining.of(config), workdir, devices)


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """The task of a `PretrainConfig`.

    Attributes:
        config: with the vocabulary's size filled in.
        manifests: of the records, by directory.
    """

    config: PretrainConfig
    manifests: dict[str, Manifest]

    @classmethod
    def of(cls, config: PretrainConfig) -> "Pretraining":
        """Reads what `config` names; errors are those of `resolve`."""
        return cls(*resolve(config))

    @property
    def run(self) -> PretrainConfig:
        """The configuration itself."""
        return self.config

    @cached_property
    def objective(self) -> Objective:
        """Masked language model and next sentence prediction."""
        return model.pretraining(self.config.model)

    @cached_property
    def sources(self) -> dict[str, str]:
        """Fingerprints of the records."""
        return {folder: fingerprint(manifest) for folder, manifest in self.manifests.items()}

    def weights(self, layout: Layout) -> tuple[Params, str] | None:
        """Reads the weights of `init_from`, if it names any."""
        if not self.config.init_from:
            return None
        return load_weights(self.config.init_from, placed(layout.shapes, layout.shardings()))

    def batches(self, index: int, start: int, rows: np.ndarray) -> Iterator[HostBatch]:
        """Yields masked batches."""
        phase = self.config.phases[index]
        return train_batches(
            phase.records,
            seq_length=phase.seq_length,
            max_predictions=phase.max_predictions,
            global_batch=phase.global_batch,
            masking=self.config.masking,
            # Another seed for each phase: over the same records they see another order of them.
            seed=self.config.seed + index,
            start=start,
            rows=rows,
            on_damage=self.config.data.on_damage,
        )

    def scorer(self, layout: Layout) -> Scorer:
        """Returns what scores the held-out records of a phase, if it has any."""
        evaluator = build_evaluator(self.config.model, layout)
        options = self.config.evaluation

        def score(index: int, params: Params) -> HeldoutScore | None:
            phase = self.config.phases[index]
            if not phase.heldout:
                return None
            batches = eval_batches(
                phase.heldout,
                seq_length=phase.seq_length,
                max_predictions=phase.max_predictions,
                batch=options.batch,
                masking=self.config.masking,
                seed=self.config.seed,
                max_examples=options.max_examples,
                rows=local_rows(layout.mesh, options.batch),
            )
            return evaluate(evaluator, params, batches, phase.seq_length)

        return score

    def flops_per_row(self, index: int) -> int:
        """Counts the operations of a row."""
        phase = self.config.phases[index]
        return model.flops_per_row(self.config.model, phase.seq_length, phase.max_predictions)

    def write_tokenizer(self, workdir: epath.Path) -> None:
        """Copies the tokenizer of the records."""
        for name in TOKENIZER_FILES:
            if (file := epath.Path(self.config.phases[0].records) / name).exists():
                (workdir / name).write_bytes(file.read_bytes())


def resolve(config: PretrainConfig) -> tuple[PretrainConfig, dict[str, Manifest]]:
    """Compares the configuration with its records and fills in the vocabulary's size.

    Returns:
        The configuration with `model.vocab_size` set, and the manifests by directory.

    Raises:
        ConfigError: if a phase names no records, or its records do not share one vocabulary.
        bert_lamb.data.DataError: if records are missing or do not fit the configuration.
    """
    manifests: dict[str, Manifest] = {}
    for i, phase in enumerate(config.phases):
        if not phase.records:
            raise ConfigError(
                f"config.phases[{i}].records = '': expected a folder of records; make one with "
                f"`bert-lamb data build`, then pass --config.phases[{i}].records=FOLDER"
            )
        for folder in filter(None, (phase.records, phase.heldout)):
            manifests[folder] = read_manifest(folder)
            if config.data.on_damage == "stop":
                RecordSource(folder, manifests[folder])  # for its checks
    vocabularies = {manifest.tokenizer_hash: folder for folder, manifest in manifests.items()}
    if len(vocabularies) > 1:
        raise ConfigError(
            "config.phases: the records were made with different vocabularies: "
            + ", ".join(f"{folder} ({name[:12]})" for name, folder in vocabularies.items())
            + "; build them all with one tokenizer"
        )
    vocab_size = config.model.vocab_size or next(iter(manifests.values())).vocab_size
    for i, phase in enumerate(config.phases):
        for folder in filter(None, (phase.records, phase.heldout)):
            try:
                check_records(
                    manifests[folder],
                    seq_length=phase.seq_length,
                    vocab_size=vocab_size,
                    max_predictions=phase.max_predictions,
                )
            except DataError as error:
                raise DataError(f"config.phases[{i}] with records {folder}: {error}") from None
    model = dataclasses.replace(config.model, vocab_size=vocab_size)
    return dataclasses.replace(config, model=model), manifests


def fingerprint(manifest: Manifest) -> str:
    """Returns 16 hexadecimal digits that tell one record set from another."""
    text = json.dumps(dataclasses.asdict(manifest), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
