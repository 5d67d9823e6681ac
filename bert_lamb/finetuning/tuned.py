"""A fine-tuned model, opened to be used."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import jax

from bert_lamb.config import ConfigError, ParallelConfig
from bert_lamb.data.tokenization import Tokenizer, load_tokenizer
from bert_lamb.finetuning.config import FinetuneConfig, SquadConfig
from bert_lamb.finetuning.forward import Forward, build_forward
from bert_lamb.finetuning.runs import objective_of, read_run, split_checkpoint
from bert_lamb.finetuning.task import TOKENIZER
from bert_lamb.parallel.layout import Layout, placed
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training.checkpoint import Checkpoints
from bert_lamb.training.preflight import edited
from bert_lamb.training.start import lay_out
from bert_lamb.training.state import Params

Config = TypeVar("Config", bound=FinetuneConfig)


@dataclass(frozen=True)
class TunedModel(Generic[Config]):
    """The parameters of a checkpoint with what is needed to use them.

    Attributes:
        config: of the run.
        tokenizer: of the run.
        layout: of the parameters, on this machine's devices.
        params: fp32.
        forward: the model, see `build_forward`.
        step: of the checkpoint.
    """

    config: Config
    tokenizer: Tokenizer
    layout: Layout
    params: Params
    forward: Forward
    step: int


def open_tuned(path: str, kind: type[Config]) -> TunedModel[Config]:
    """Opens a run, or one of its checkpoints (WORKDIR/checkpoints/STEP), of a kind of task.

    Args:
        path: of the run.
        kind: the configuration's class, which says what the run has to be of.

    Raises:
        ConfigError: if there is no run, or one of another kind.
        CheckpointError: if there is no such checkpoint, or it cannot be read.
    """
    workdir, step = split_checkpoint(path)
    config = read_run(workdir)
    if not isinstance(config, kind):
        verb = "squad" if kind is SquadConfig else "glue"
        raise ConfigError(
            f"{workdir} holds a run of another task; fine-tune it first: `bert-lamb {verb} train "
            f"--config=FILE --workdir=NEW --config.init_from={workdir}`"
        )
    if config.features.seq_length > config.model.max_positions:
        raise ConfigError(f"{workdir}/config.json: rows are longer than model.max_positions; "
                          "put the original file back")  # fmt: skip
    objective = objective_of(config)
    layout = lay_out(objective, make_mesh(ParallelConfig(), jax.local_devices()))
    with Checkpoints(workdir, read_only=True) as checkpoints:
        shapes = placed(layout.shapes, layout.shardings())
        params, progress = checkpoints.restore_params(shapes, step)
    tokenizer = load_tokenizer(workdir)
    if tokenizer.hash != progress.records.get(TOKENIZER):
        raise ConfigError(
            f"{workdir}: the tokenizer there, {tokenizer.hash[:12]}, is not that of the "
            "checkpoint; put the original files back"
        )
    if differ := edited(progress.config, config):
        raise ConfigError(
            f"{workdir}/config.json was changed (checkpoint -> file): {'; '.join(differ[:5])}; put "
            "the original file back"
        )
    forward = build_forward(objective, layout)
    return TunedModel(config, tokenizer, layout, params, forward, progress.step)
