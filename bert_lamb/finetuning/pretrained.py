"""Where fine-tuning starts from: a run of ours, or a folder in Hugging Face's form."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from etils import epath

from bert_lamb import interop
from bert_lamb.config import ConfigError, ModelConfig
from bert_lamb.data.tokenization import Tokenizer, load_tokenizer
from bert_lamb.finetuning.runs import objective_of, read_run, split_checkpoint
from bert_lamb.model import Objective
from bert_lamb.parallel.layout import Layout, placed
from bert_lamb.training.checkpoint import Checkpoints
from bert_lamb.training.start import lay_out
from bert_lamb.training.state import Params


@dataclass(frozen=True)
class Pretrained:
    """A model to start from.

    Attributes:
        shape: of the model.
        tokenizer: that it was trained with.
        read: from a layout of the new model's parameters to those of them that are taken over, by
            their first names and placed as it says; and a sentence that says where they are from.
    """

    shape: ModelConfig
    tokenizer: Tokenizer
    read: Callable[[Layout], tuple[Params, str]]


def open_pretrained(path: str) -> Pretrained:
    """Opens what `init_from` names.

    Args:
        path: see `FinetuneConfig`.

    Raises:
        ConfigError: if it is neither a run nor a model in Hugging Face's form.
        CheckpointError: if a run has no such checkpoint.
        DataError: if a model in Hugging Face's form has a fault.
    """
    workdir, step = split_checkpoint(path)
    file = workdir / "config.json"
    if not file.exists():
        raise ConfigError(
            f"config.init_from = {path!r}: there is no config.json in {workdir}; expected the "
            "folder of a run, WORKDIR/checkpoints/STEP of one, or a BERT in Hugging Face's form"
        )
    if _is_huggingface(file):
        return _open_huggingface(path)
    return _open_run(workdir, step)


def take_over(objective: Objective, seed: int, layout: Layout, given: Params) -> Params:
    """Returns all parameters of a model: those `given`, the others drawn from `seed`."""
    draw = jax.jit(objective.init, out_shardings=layout.shardings())
    return draw(jax.random.key(seed)) | given


def _is_huggingface(file: epath.Path) -> bool:
    try:
        return "model_type" in json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, TypeError):
        return False  # whoever reads it next says what is wrong


def _open_run(workdir: epath.Path, step: int | None) -> Pretrained:
    config = read_run(workdir)
    with Checkpoints(workdir, read_only=True) as checkpoints:
        step = checkpoints.find(step)

    def read(layout: Layout) -> tuple[Params, str]:
        old = lay_out(objective_of(config), layout.mesh)
        with Checkpoints(workdir, read_only=True) as checkpoints:
            params, _ = checkpoints.restore_params(placed(old.shapes, old.shardings()), step)
        shared = {name: params[name] for name in _shared(old.shapes, layout.shapes)}
        return shared, f"weights of {', '.join(shared)} from step {step} of {workdir}"

    return Pretrained(config.model, load_tokenizer(workdir), read)


def _shared(old: Params, new: Params) -> list[str]:
    """Names of the parts of one model that another one has, too.

    Not the classes of an earlier task, which are never those of the next, even if as many.
    """
    return [name for name in new if name in old and name != "classifier"]


def _open_huggingface(path: str) -> Pretrained:
    shape = interop.read_model_config(path)

    def read(layout: Layout) -> tuple[Params, str]:
        params, report = interop.read_encoder(path, shape)
        shared = {name: params[name] for name in _shared(params, layout.shapes)}
        shardings = {name: layout.shardings()[name] for name in shared}
        return jax.tree.map(_place, shared, shardings), f"weights from {path}: {report}"

    return Pretrained(shape, interop.read_tokenizer(path), read)


def _place(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
