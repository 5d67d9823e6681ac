"""Which tensor of a Hugging Face BERT is which parameter of ours, and in what orientation.

A linear layer of PyTorch holds [outputs, inputs]. Ours holds [inputs, outputs], but for queries,
keys and values, which hold their outputs first, head by head, as PyTorch does.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from bert_lamb.config import ModelConfig

PREFIX = "bert."
# Tensors that an encoder does without: heads of tasks, and buffers that count 0, 1, 2, ...
_LEFT_OUT = re.compile(
    r"(bert\.)?embeddings\.(position_ids|token_type_ids)"
    r"|cls\.predictions\.(bias|decoder\.(weight|bias)|transform\.dense\.(weight|bias))"
    r"|cls\.predictions\.transform\.LayerNorm\.(weight|bias|gamma|beta)"
    r"|(cls\.seq_relationship|qa_outputs|classifier)\.(weight|bias)"
)
# Files converted from Google's before 2019 have its names of the two parts of a norm.
_LEGACY = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_LAYER = re.compile(r"(.*encoder\.layer\.)(\d+)(\..*)")


class Slot(NamedTuple):
    """Where one tensor of the file goes, or one of each layer.

    Attributes:
        name: in the file, less "bert."; "{}" stands for the number of the layer.
        path: keys of our nested dict.
        stored: its shape in the file.
        transposed: whether its axes change places on the way.
        shape: of one layer's parameter in our dict.
    """

    name: str
    path: tuple[str, ...]
    stored: tuple[int, ...]
    transposed: bool
    shape: tuple[int, ...]

    @property
    def stacked(self) -> bool:
        """Whether each layer has one, and our parameter a leading axis L."""
        return self.path[0] == "layers"

    @property
    def optional(self) -> bool:
        """Whether a file may be without: of the pooler, which models for some tasks lack."""
        return self.path[0] == "pooler"


def encoder_slots(config: ModelConfig) -> list[Slot]:
    """Lists the parameters of embeddings, layers and pooler."""
    return [*_embeddings(config), *_layers(config), *_pooler(config)]


def canonical(name: str, prefix: str) -> str:
    """Returns the name as `Slot` has it, if it begins with `prefix` ("bert." or nothing)."""
    name = name.removeprefix(prefix)
    for old, new in _LEGACY.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def may_be_left_out(name: str) -> bool:
    """Whether an encoder does without the tensor of this name."""
    return _LEFT_OUT.fullmatch(name) is not None


def compact(names: list[str]) -> list[str]:
    """Writes names that differ in the number of the layer alone as one: "encoder.layer.[0-5].x".

    A name that stands alone is left as it is.
    """

    def parts(name: str) -> tuple[str, int, str]:
        match = _LAYER.fullmatch(name)
        return (match[1], int(match[2]), match[3]) if match else (name, -1, "")

    def place(name: str) -> tuple[str, str]:
        start, _, end = parts(name)
        return start, end

    result = []
    for (start, end), members in groupby(sorted(names, key=place), key=place):
        group = list(members)
        numbers = sorted(parts(name)[1] for name in group)
        result.append(group[0] if len(group) == 1 else f"{start}{_ranges(numbers)}{end}")
    return result


def _ranges(numbers: list[int]) -> str:
    """Writes [0, 1, 2, 5] as "[0-2,5]"."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"[{','.join(texts)}]"


def _embeddings(config: ModelConfig) -> Iterator[Slot]:
    rows = {
        ("word_embeddings", "word"): config.vocab_size,
        ("position_embeddings", "position"): config.max_positions,
        ("token_type_embeddings", "segment"): config.type_vocab_size,
    }
    for (theirs, ours), count in rows.items():
        shape = (count, config.hidden_size)
        path = ("embeddings", ours, "embedding")
        yield Slot(f"embeddings.{theirs}.weight", path, shape, False, shape)
    yield from _norm("embeddings.LayerNorm", ("embeddings", "norm"), config)


def _layers(config: ModelConfig) -> Iterator[Slot]:
    D, F = config.hidden_size, config.intermediate_size
    layer, attention = "encoder.layer.{}", ("layers", "attention")
    for part in ("query", "key", "value"):
        yield from _heads(f"{layer}.attention.self.{part}", (*attention, part), config)
    yield from _linear(f"{layer}.attention.output.dense", (*attention, "out"), D, D)
    yield from _norm(f"{layer}.attention.output.LayerNorm", ("layers", "attention_norm"), config)
    yield from _linear(f"{layer}.intermediate.dense", ("layers", "mlp", "up"), D, F)
    yield from _linear(f"{layer}.output.dense", ("layers", "mlp", "down"), F, D)
    yield from _norm(f"{layer}.output.LayerNorm", ("layers", "mlp_norm"), config)


def _pooler(config: ModelConfig) -> Iterator[Slot]:
    return _linear("pooler.dense", ("pooler",), config.hidden_size, config.hidden_size)


def _linear(name: str, path: tuple[str, ...], inputs: int, outputs: int) -> Iterator[Slot]:
    yield Slot(f"{name}.weight", (*path, "kernel"), (outputs, inputs), True, (inputs, outputs))
    yield Slot(f"{name}.bias", (*path, "bias"), (outputs,), False, (outputs,))


def _heads(name: str, path: tuple[str, ...], config: ModelConfig) -> Iterator[Slot]:
    D, N = config.hidden_size, config.num_heads
    yield Slot(f"{name}.weight", (*path, "kernel"), (D, D), False, (D, D))
    yield Slot(f"{name}.bias", (*path, "bias"), (D,), False, (N, D // N))


def _norm(name: str, path: tuple[str, ...], config: ModelConfig) -> Iterator[Slot]:
    shape = (config.hidden_size,)
    yield Slot(f"{name}.weight", (*path, "scale"), shape, False, shape)
    yield Slot(f"{name}.bias", (*path, "bias"), shape, False, shape)
