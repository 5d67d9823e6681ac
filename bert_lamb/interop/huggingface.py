"""A BERT encoder in the form of Hugging Face's transformers, from a local folder, strictly.

A checkpoint that "loads fine" with a norm missing gives a model that is merely bad. So each tensor
of the files is either used, or on the list of what an encoder does without, or an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_lamb.config import ModelConfig
from bert_lamb.interop.errors import InteropError
from bert_lamb.interop.files import open_folder
from bert_lamb.interop.huggingface_config import read_model_config
from bert_lamb.interop.huggingface_names import (
    PREFIX,
    Slot,
    canonical,
    compact,
    encoder_slots,
    may_be_left_out,
)
from bert_lamb.interop.huggingface_tokenizer import read_tokenizer
from bert_lamb.interop.safetensors_files import FLOATS, TensorFiles
from bert_lamb.model import Params, padded_vocab

__all__ = ["EncoderReport", "read_encoder", "read_model_config", "read_tokenizer"]


@dataclass(frozen=True)
class EncoderReport:
    """What became of the tensors of a folder.

    Attributes:
        files: names of the files read.
        used: names of the tensors that are parameters now.
        left_out: names of the tensors that an encoder does without.
        dtypes: types that the used ones were stored in, such as "F32".
        has_pooler: whether the file holds a pooler, and so the parameters do.
    """

    files: tuple[str, ...]
    used: tuple[str, ...]
    left_out: tuple[str, ...]
    dtypes: tuple[str, ...]
    has_pooler: bool

    def __str__(self) -> str:
        """Says it in one line."""
        return (
            f"{', '.join(self.files)}: {len(self.used)} tensors read ({', '.join(self.dtypes)}), "
            f"{'with' if self.has_pooler else 'without'} pooler; left out: "
            f"{', '.join(self.left_out) or 'none'}"
        )


def read_encoder(folder: str | Path, config: ModelConfig) -> tuple[Params, EncoderReport]:
    """Reads embeddings, layers and, where it is there, the pooler.

    Args:
        folder: a local folder with model.safetensors, or model.safetensors.index.json and the
            files that it names. Tensors are float32, float16 or bfloat16, named with or without
            "bert." in front, norms with weight and bias or with gamma and beta.
        config: as `read_model_config` returns it; how it computes, and `vocab_multiple`, may be
            changed.

    Returns:
        A nested dict of float32 NumPy arrays with the keys and shapes of `bert_lamb.model.init`:
        "embeddings", "layers" (each with a leading axis L) and, if the file has it, "pooler". Rows
        of the word table from `vocab_size` on are zero. And the report.

    Raises:
        InteropError: naming every tensor that is missing, unknown, twice there, of another shape
            or dtype; and, if all are right, every one that holds NaN or infinity.
    """
    files = TensorFiles(open_folder(folder))
    _check_depth(files, config)
    matched = _match(files)
    slots = encoder_slots(config)
    if not any(slot.name in matched.names for slot in slots if slot.optional):
        slots = [slot for slot in slots if not slot.optional]
    if faults := [*matched.faults, *_misfits(files, matched, slots, config)]:
        raise InteropError(
            f"{files.folder}: the weights do not fit the model of its config: {'; '.join(faults)}. "
            "Check that both are of one model; docs/interop.md lists what may be left out"
        )
    params = _filled(files, matched.names, slots, config)
    used = tuple(sorted(matched.names.values()))
    return params, EncoderReport(
        files=tuple(files.files),
        used=used,
        left_out=tuple(matched.left_out),
        dtypes=tuple(sorted({files.dtype(name) for name in used})),
        has_pooler="pooler" in params,
    )


class _Match(NamedTuple):
    """The names of a folder's tensors.

    Attributes:
        prefix: what those of the encoder begin with, "bert." or nothing.
        names: of the files, by ours (those of `Slot.name`).
        left_out: what an encoder does without.
        faults: names that are neither.
    """

    prefix: str
    names: dict[str, str]
    left_out: list[str]
    faults: list[str]


def _check_depth(files: TensorFiles, config: ModelConfig) -> None:
    """Refuses a depth that no file of this size can have, before its names are written down."""
    if config.num_layers > len(files.names):
        raise InteropError(
            f"{files.folder}: num_layers = {config.num_layers}, but the files hold "
            f"{len(files.names)} tensors in all; correct num_hidden_layers in config.json"
        )


def _match(files: TensorFiles) -> _Match:
    prefix = PREFIX if any(name.startswith(PREFIX) for name in files.names) else ""
    match = _Match(prefix, {}, [], [])
    for name in files.names:
        ours = canonical(name, prefix)
        if may_be_left_out(name):
            match.left_out.append(name)
        elif not name.startswith(prefix):
            match.faults.append(f"unknown: {name} (the encoder's begin with {prefix!r})")
        elif ours in match.names:
            match.faults.append(f"twice: {match.names[ours]} and {name}")
        else:
            match.names[ours] = name
    return match


def _misfits(
    files: TensorFiles, match: _Match, slots: list[Slot], config: ModelConfig
) -> list[str]:
    """Lists which tensors are missing, unknown, or of another shape or dtype."""
    expected = {name: slot for slot in slots for name in _names(slot, config)}
    groups: dict[str, list[str]] = {
        "missing:": [match.prefix + ours for ours in expected if ours not in match.names],
        "unknown:": [name for ours, name in match.names.items() if ours not in expected],
    }
    for ours, name in match.names.items():
        stored, dtype = files.shape(name), files.dtype(name)
        wanted = expected[ours].stored if ours in expected else stored
        if stored != wanted:
            fault = f"of shape {list(stored)}, expected {list(wanted)}:"
            groups.setdefault(fault, []).append(name)
        if ours in expected and dtype not in FLOATS:
            fault = f"of dtype {dtype}, expected one of {', '.join(FLOATS)}:"
            groups.setdefault(fault, []).append(name)
    return [f"{fault} {', '.join(compact(found))}" for fault, found in groups.items() if found]


def _names(slot: Slot, config: ModelConfig) -> Iterator[str]:
    """Yields our names of the tensors of a slot, layer by layer."""
    for layer in range(config.num_layers if slot.stacked else 1):
        yield slot.name.format(layer)


def _filled(
    files: TensorFiles, names: dict[str, str], slots: list[Slot], config: ModelConfig
) -> Params:
    """Reads all slots into a nested dict."""
    params: dict[str, Any] = {}
    faults = []
    for slot in slots:
        parts = []
        for ours in _names(slot, config):
            value = files.read(names[ours])
            if bad := value.size - int(np.isfinite(value).sum()):
                faults.append(f"{names[ours]} ({bad} of {value.size})")
            parts.append((value.T if slot.transposed else value).reshape(slot.shape))
        _put(params, slot.path, np.stack(parts) if slot.stacked else np.ascontiguousarray(parts[0]))
    if faults:
        raise InteropError(
            f"{files.folder}: NaN or infinity in {', '.join(faults)}; such a model computes "
            "nothing: take another checkpoint of it"
        )
    table = params["embeddings"]["word"]
    padding = padded_vocab(config) - config.vocab_size
    table["embedding"] = np.pad(table["embedding"], ((0, padding), (0, 0)))
    return params


def _put(params: dict[str, Any], path: tuple[str, ...], value: np.ndarray) -> None:
    *folders, last = path
    for folder in folders:
        params = params.setdefault(folder, {})
    params[last] = value
