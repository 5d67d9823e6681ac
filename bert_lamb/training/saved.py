"""A finished or running pretraining, opened to be used: its model, tokenizer and scores."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
from etils import epath

from bert_lamb import model
from bert_lamb.config import ConfigError, ParallelConfig, PretrainConfig, from_dict
from bert_lamb.data.batches.pipeline import Batch, eval_batches, read_token_rows
from bert_lamb.data.errors import DataError
from bert_lamb.data.records.manifest import check_records, read_manifest
from bert_lamb.data.tokenization import Tokenizer, load_tokenizer
from bert_lamb.evaluation.heldout import build_evaluator, evaluate
from bert_lamb.evaluation.unigram import score_unigram, token_counts
from bert_lamb.parallel.layout import Layout, placed
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training import preflight
from bert_lamb.training.checkpoint import Checkpoints, fingerprint
from bert_lamb.training.start import lay_out
from bert_lamb.training.state import Params


@dataclass(frozen=True)
class SavedModel:
    """The parameters of a checkpoint with what is needed to use them.

    Attributes:
        config: of the run.
        params: fp32, whole on each of this machine's devices.
        layout: of the parameters.
        tokenizer: of the run.
        step: of the checkpoint.
    """

    config: PretrainConfig
    params: Params
    layout: Layout
    tokenizer: Tokenizer
    step: int


def load_saved(workdir: epath.PathLike, step: int | None = None) -> SavedModel:
    """Opens the checkpoint of `step`, default the newest, of the run in `workdir`.

    Raises:
        ConfigError: if `workdir` holds no run.
        CheckpointError: if there is no such checkpoint, or it cannot be read.
    """
    values = preflight.read_config(workdir)
    if "phases" not in values:
        raise ConfigError(
            f"{workdir} holds a fine-tuned model; evaluate and fill-mask need that of a "
            "pretraining run"
        )
    config = from_dict(PretrainConfig, values)
    objective = model.pretraining(config.model)
    layout = lay_out(objective, make_mesh(ParallelConfig(), jax.local_devices()))
    shapes = placed(layout.shapes, layout.shardings())
    with Checkpoints(workdir, read_only=True) as checkpoints:
        params, progress = checkpoints.restore_params(shapes, step)
    return SavedModel(config, params, layout, load_tokenizer(workdir), progress.step)


def score_saved(
    workdir: epath.PathLike,
    step: int | None,
    records: str,
    train_records: str | None,
    *,
    batch: int,
    max_examples: int,
) -> dict[str, float | int | str]:
    """Scores a checkpoint on held-out records; the same checkpoint scores the same each time.

    Args:
        workdir: of the run.
        step: of the checkpoint; None takes the newest.
        records: held-out records.
        train_records: training records from which the unigram baseline takes its frequencies;
            None leaves the baseline out.
        batch: rows at once over all devices, rounded up to a multiple of their number.
        max_examples: 0 takes all.

    Returns:
        The scores with the checkpoint's step and the fingerprint of its parameters.

    Raises:
        DataError: if the records do not fit the model or its tokenizer.
    """
    if batch < 1:
        raise DataError(f"batch = {batch}: expected at least 1 row")
    saved = load_saved(workdir, step)
    manifest = read_manifest(records)
    for folder in filter(None, (records, train_records)):
        made_with = read_manifest(folder).tokenizer_hash
        if made_with != saved.tokenizer.hash:
            raise DataError(
                f"records {folder!r} were made with the vocabulary {made_with[:12]}, the model "
                f"with {saved.tokenizer.hash[:12]}; build the records with --vocab {workdir}"
            )
    phase = next(
        (p for p in saved.config.phases if p.seq_length == manifest.seq_length),
        saved.config.phases[-1],
    )
    check_records(
        manifest,
        seq_length=min(manifest.seq_length, saved.config.model.max_positions),
        vocab_size=saved.config.model.vocab_size,
        max_predictions=phase.max_predictions,
    )
    devices = saved.layout.mesh.size

    def batches() -> Iterator[Batch]:
        return eval_batches(
            records,
            seq_length=manifest.seq_length,
            max_predictions=phase.max_predictions,
            batch=-(-batch // devices) * devices,
            masking=saved.config.masking,
            seed=saved.config.seed,
            max_examples=max_examples,
        )

    score = evaluate(
        build_evaluator(saved.config.model, saved.layout),
        saved.params,
        batches(),
        manifest.seq_length,
    )
    result: dict[str, float | int | str] = {
        "step": saved.step,
        "parameters_hash": fingerprint(saved.params),
        "records": records,
        **score.to_dict(),
    }
    if train_records is None:
        return result
    counts = token_counts(read_token_rows(train_records), saved.config.model.vocab_size)
    floor = score_unigram(counts, batches())
    return result | {
        "unigram_loss": floor.loss,
        "most_frequent_token": saved.tokenizer.token(floor.token),
        "most_frequent_accuracy": floor.accuracy,
        "accuracy_ratio": score.mlm_accuracy / max(floor.accuracy, 1e-9),
    }
