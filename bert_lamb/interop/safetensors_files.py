"""The tensors of a folder: one safetensors file, or several with an index."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_lamb.interop.errors import InteropError
from bert_lamb.interop.files import check_file, read_json, short

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# By the names they have in a file. safetensors finds bfloat16 once ml_dtypes is loaded.
FLOATS = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


class _Stored(NamedTuple):
    file: Path
    opened: Any  # safe_open
    dtype: str
    shape: tuple[int, ...]


class TensorFiles:
    """The tensors of one folder by name; the files are mapped, and read tensor by tensor.

    Attributes:
        folder: as given.
        files: names of the files that hold tensors.
    """

    def __init__(self, folder: Path) -> None:
        """Opens the files and reads their headers.

        Raises:
            InteropError: if there is none or more than one set of weights, if a file is damaged or
                a git-lfs pointer, or if index and files do not agree.
        """
        self.folder = folder
        placed = _placed(folder)
        self.files = sorted(set(placed.values())) if placed is not None else [SINGLE_FILE]
        self._stored: dict[str, _Stored] = {}
        held = {file: self._open(folder / file) for file in self.files}
        if placed is not None:
            _check_index(folder / INDEX_FILE, placed, held)

    def _open(self, file: Path) -> list[str]:
        """Takes the tensors of one file in, and returns their names."""
        check_file(file)
        with _reading(file):
            opened = safe_open(str(file), framework="numpy")
            names = list(opened.keys())
            for name in names:
                header = opened.get_slice(name)
                shape = tuple(header.get_shape())
                self._stored[name] = _Stored(file, opened, header.get_dtype(), shape)
        return names

    @property
    def names(self) -> list[str]:
        """Names of all tensors."""
        return sorted(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._stored[name].shape

    def dtype(self, name: str) -> str:
        """Type of a tensor's numbers as safetensors calls it: F32, BF16, I64."""
        return self._stored[name].dtype

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor whose dtype is one of `FLOATS`, as float32.

        Raises:
            InteropError: if the file cannot be read any more.
        """
        stored = self._stored[name]
        with _reading(stored.file):
            value = stored.opened.get_tensor(name)
        return value.astype(np.float32)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Says which file it was that safetensors could not read."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        size = file.stat().st_size if file.exists() else 0
        raise InteropError(
            f"{file}: not a whole safetensors file ({error}; it has {size} bytes); download or "
            "write it again"
        ) from None


def _placed(folder: Path) -> dict[str, str] | None:
    """Returns the file of each tensor by the index; None if one file holds all."""
    single, index = (folder / SINGLE_FILE).exists(), (folder / INDEX_FILE).exists()
    if single and index:
        raise InteropError(
            f"{folder}: holds both {SINGLE_FILE} and {INDEX_FILE}, expected one of them; remove "
            "the one that is not the model's"
        )
    if not single and not index:
        raise InteropError(_no_weights(folder))
    return None if single else _read_index(folder / INDEX_FILE)


def _no_weights(folder: Path) -> str:
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLED)
    if not pickled:
        return f"{folder}: holds neither {SINGLE_FILE} nor {INDEX_FILE}; add the model's weights"
    source = folder / pickled[0]
    return (
        f"{source}: pickled weights are not read, as unpickling can run any code; with PyTorch "
        'installed, convert them once: python -c "import torch; from safetensors.torch import '
        f"save_file; w = torch.load('{source}', map_location='cpu', weights_only=True); "
        f"save_file({{k: v.clone().contiguous() for k, v in w.items()}}, "
        f"'{folder / SINGLE_FILE}')\""
    )


def _read_index(file: Path) -> dict[str, str]:
    placed = read_json(file).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise InteropError(
            f"{file}: weight_map = {short(placed)}: expected the file of each tensor by its name"
        )
    for name, shard in placed.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise InteropError(
                f"{file}: weight_map[{name!r}] = {short(shard)}: expected the name of a file in "
                "the same folder"
            )
    absent = sorted({shard for shard in placed.values() if not (file.parent / shard).is_file()})
    if absent:
        raise InteropError(
            f"{file}: names {', '.join(absent)}, which the folder does not hold; download all "
            "shards of the model"
        )
    return placed


def _check_index(file: Path, placed: dict[str, str], held: dict[str, list[str]]) -> None:
    """Raises InteropError unless the index places each tensor of the files, and no others."""
    listed = {(shard, name) for name, shard in placed.items()}
    found = {(shard, name) for shard, names in held.items() for name in names}
    faults = [f"{name} is not in {shard}" for shard, name in sorted(listed - found)]
    faults += [f"{name} in {shard} is not listed" for shard, name in sorted(found - listed)]
    if faults:
        raise InteropError(
            f"{file}: does not agree with the shards: {'; '.join(faults)}; download index and "
            "shards of one version of the model"
        )
