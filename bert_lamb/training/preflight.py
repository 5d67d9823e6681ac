"""Everything that can be found wrong with a run before the first compile."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_lamb.config import (
    ConfigError,
    PhaseConfig,
    PretrainConfig,
    differences,
    from_dict,
    to_dict,
)
from bert_lamb.data.batches.source import RecordSource
from bert_lamb.data.errors import DataError
from bert_lamb.data.records.manifest import Manifest, check_records, read_manifest
from bert_lamb.data.tokenization import TOKENIZER_FILES

# Sections that a resumed run may differ in: none changes a parameter while the records are whole.
FREE_SECTIONS = ("data", "checkpoint", "evaluation", "logging")
_RESTORE = "put the file back (each checkpoint's progress holds a copy), or give a new --workdir"


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


def micro_batches(phase: PhaseConfig, devices: int) -> int:
    """Returns into how many parts each device cuts its rows of a batch.

    The fewest for which a part has at most `max_rows_per_device` rows.

    Raises:
        ConfigError: if the rows cannot be split evenly over the devices.
    """
    if phase.global_batch % devices:
        raise ConfigError(
            f"global_batch = {phase.global_batch}: expected a multiple of the {devices} devices"
        )
    rows = phase.global_batch // devices
    limit = phase.max_rows_per_device or rows
    return next(
        parts for parts in range(1, rows + 1) if rows % parts == 0 and rows // parts <= limit
    )


def check_devices(config: PretrainConfig, devices: int) -> None:
    """Checks that every batch can be split over the devices.

    Raises:
        ConfigError: naming the key and both numbers.
    """
    for i, phase in enumerate(config.phases):
        try:
            micro_batches(phase, devices)
        except ConfigError as error:
            raise ConfigError(f"config.phases[{i}].{error}") from None
    if config.evaluation.batch % devices:
        raise ConfigError(
            f"config.evaluation.batch = {config.evaluation.batch}: expected a multiple of the "
            f"{devices} devices"
        )


def claim_workdir(workdir: Path, config: PretrainConfig) -> None:
    """Makes the working directory this run's: writes config.json and the tokenizer into it.

    A run that has saved nothing yet may still change its configuration.

    Raises:
        ConfigError: if the directory belongs to a run with another configuration; the message
            lists the differences.
    """
    path = workdir / "config.json"
    resolved = to_dict(config)
    if path.exists():
        differ = differences(_bound(_with_defaults(read_config(workdir))), _bound(resolved))
        if differ and any((workdir / "checkpoints").glob("[0-9]*")):
            raise ConfigError(
                f"{workdir} holds a run with another configuration (there -> here):\n  "
                + "\n  ".join(differ)
                + "\nResume with the same configuration, or give a new --workdir."
            )
    workdir.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (file := Path(config.phases[0].records) / name).exists():
            shutil.copyfile(file, workdir / name)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(resolved, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_config(workdir: Path) -> dict[str, Any]:
    """Reads the resolved configuration of a run.

    Raises:
        ConfigError: if `workdir` holds no run.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise ConfigError(f"{path} does not exist; give the --workdir of a pretraining run")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error}); {_RESTORE}") from error
    if not isinstance(values, dict) or "phases" not in values:
        raise ConfigError(f"{path}: not the configuration of a run; {_RESTORE}")
    return values


def _with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Fills in the keys that an older version did not know, so that it does not seem to differ."""
    try:
        return to_dict(from_dict(PretrainConfig, config))
    except ConfigError:
        return config  # the comparison names what is wrong with it


def _bound(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in FREE_SECTIONS}
