"""Checkpoints: written in the background, complete or absent, restored on any mesh.

A checkpoint is a folder `checkpoints/STEP` with three items: `params`, `optimizer` (everything
else of the training state) and `progress` (a JSON record of where the run stands). STEP is the
number of batches consumed, that is, of completed steps.
"""

import hashlib
import logging
import os
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from bert_lamb.parallel.hosts import everywhere, is_first, wait_for_all
from bert_lamb.training.state import Params, TrainState

log = logging.getLogger(__name__)
ITEMS = ("params", "optimizer", "progress")


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, incomplete or of another run."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands; part of every checkpoint.

    Attributes:
        step: batches consumed over all phases, equal to the checkpoint's name.
        phase: index of the phase that consumes the next batch; the number of phases at the end.
        next_batch: index, within that phase, of the next batch. Batches are a pure function of
            (records, seed, index), so this one integer is the position in the data.
        seed: of the run.
        records: fingerprint of the records' manifest, by directory.
        config: the resolved configuration.
        version: of bert_lamb, that wrote it.
    """

    step: int
    phase: int
    next_batch: int
    seed: int
    records: dict[str, str]
    config: dict[str, Any]
    version: str

    @classmethod
    def from_json(cls, values: dict[str, Any], where: str) -> "Progress":
        """Reads what `asdict` wrote.

        Raises:
            CheckpointError: if a key is missing; nothing is ever assumed in its place.
        """
        missing = [key for key in cls.__dataclass_fields__ if key not in values]
        if missing:
            raise CheckpointError(f"{where}: progress lacks {', '.join(missing)}")
        return cls(**{key: values[key] for key in cls.__dataclass_fields__})


class Checkpoints:
    """The checkpoints of one working directory.

    Use as a context manager: leaving it waits for the save in progress.
    """

    def __init__(self, workdir: epath.PathLike, *, keep: int = 3, read_only: bool = False) -> None:
        """Opens `workdir`/checkpoints, keeping the newest `keep` steps."""
        self.directory = _absolute(workdir) / "checkpoints"
        if read_only and not self.directory.exists():
            raise CheckpointError(
                f"{self.directory}: no checkpoints here; give the folder of a run"
            )
        self._keep, self._read_only = keep, read_only
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=self._keep, read_only=self._read_only, enable_async_checkpointing=True
            ),
            item_handlers={
                "params": ocp.StandardCheckpointHandler(),
                "optimizer": ocp.StandardCheckpointHandler(),
                "progress": ocp.JsonCheckpointHandler(),
            },
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def find(self, step: int | None) -> int:
        """Returns `step`, or the newest one if it is None.

        Raises:
            CheckpointError: if there is no such checkpoint.
        """
        steps = self.steps()
        if not steps or (step is not None and step not in steps):
            wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise CheckpointError(f"{self.directory}: {wanted}; found {steps or 'none at all'}")
        return steps[-1] if step is None else step

    def save(self, state: TrainState, progress: Progress) -> None:
        """Starts saving; returns when the arrays have left the device.

        An error of the save before surfaces here.
        """
        if progress.step in self.steps():
            return
        self._manager.save(
            progress.step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(state.params),
                optimizer=ocp.args.StandardSave(_rest(state)),
                progress=ocp.args.JsonSave(asdict(progress)),
            ),
        )

    def check(self) -> None:
        """Raises what went wrong with a save in the background, if anything did."""
        self._manager.check_for_errors()

    def wait(self) -> None:
        """Returns when the last save is complete; raises what went wrong with it."""
        self._manager.wait_until_finished()

    def restore_newest(self, shapes: TrainState) -> tuple[TrainState, Progress] | None:
        """Restores the newest checkpoint that every host can read.

        A broken newer one is renamed (nothing is deleted) and a warning says so.

        Args:
            shapes: of the state, with the sharding of every array.

        Returns:
            The state and where it stands; None where there is no checkpoint.

        Raises:
            CheckpointError: if there are checkpoints and none can be read.
        """
        steps = self.steps()
        broken: dict[int, Exception] = {}
        for step in reversed(steps):
            restored, error = None, None
            try:
                restored = self._restore(step, shapes)
            except Exception as caught:  # whatever a damaged file makes the storage layer raise
                error = caught
            if not everywhere(f"checkpoint {step}", restored is not None):
                error = error or CheckpointError("another host cannot read it")
                log.warning(
                    "checkpoint %s/%d cannot be read (%s); trying the one before",
                    self.directory,
                    step,
                    _first_line(error),
                )
                broken[step] = error
                continue
            assert restored is not None
            self._set_aside(broken)
            return restored
        if broken:
            raise CheckpointError(
                f"{self.directory}: none of the checkpoints {steps} can be read; the newest "
                f"fails with: {_first_line(broken[steps[-1]])}; restore one from a copy, or give "
                "a new --workdir"
            )
        return None

    def restore_params(self, shapes: Params, step: int | None = None) -> tuple[Params, Progress]:
        """Restores the parameters alone, of `step` or of the newest checkpoint.

        Args:
            shapes: of the parameters, with the sharding of every array.
            step: of the checkpoint; None takes the newest.

        Raises:
            CheckpointError: if there is no such checkpoint or it cannot be read.
        """
        step = self.find(step)
        try:
            progress = self.progress(step)
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(params=ocp.args.StandardRestore(shapes)),
            )
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"{self.directory}/{step} cannot be read: {_first_line(error)}; "
                + self._others(step)
            ) from error
        return restored["params"], progress

    def _others(self, step: int) -> str:
        others = [other for other in self.steps() if other != step]
        if not others:
            return "there is no other one here; restore it from a copy, or train again"
        return f"others here are {others}, choose one of them"

    def progress(self, step: int) -> Progress:
        """Reads where the checkpoint of `step` stands."""
        where = f"{self.directory}/{step}"
        restored = self._manager.restore(
            step, args=ocp.args.Composite(progress=ocp.args.JsonRestore())
        )
        return Progress.from_json(restored["progress"], where)

    def _restore(self, step: int, shapes: TrainState) -> tuple[TrainState, Progress]:
        progress = self.progress(step)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(shapes.params),
                optimizer=ocp.args.StandardRestore(_rest(shapes)),
            ),
        )
        state = TrainState(params=restored["params"], **restored["optimizer"])
        if not progress.step == step == int(state.step):
            raise CheckpointError(
                f"{self.directory}/{step}: progress says step {progress.step}, "
                f"the state says {int(state.step)}"
            )
        return state, progress

    def _set_aside(self, broken: dict[int, Exception]) -> None:
        """Renames unreadable checkpoints, so that the run can save those steps again."""
        if self._read_only or not broken:
            return
        self._manager.close()
        for step in broken if is_first() else ():
            aside = self.directory / f"unreadable-{step}"
            while aside.exists():
                aside = aside.with_name(aside.name + "x")
            (self.directory / str(step)).rename(aside)
            log.warning("moved the unreadable checkpoint %d to %s", step, aside)
        wait_for_all("broken checkpoints")
        self._manager = self._open()


def describe(path: epath.PathLike) -> str:
    """Says what a checkpoint holds: its step, its tensors, whether it has optimizer state.

    Args:
        path: a checkpoint folder: of a run (`WORKDIR/checkpoints/STEP`), or one that holds
            nothing but parameters.

    Raises:
        CheckpointError: if `path` holds no checkpoint.
    """
    folder = _absolute(path)
    if not str(path) or not folder.is_dir():
        raise CheckpointError(f"{str(path)!r}: no such checkpoint folder")
    for parent in (folder, folder / "checkpoints"):
        steps = sorted(int(p.name) for p in parent.glob("*") if p.name.isdigit())
        if steps:
            raise CheckpointError(f"{path} holds several; did you mean {parent / str(steps[-1])}?")
    items = {name: folder / name for name in ITEMS if (folder / name).is_dir()}
    try:
        tree = _metadata(items.get("params", folder))
        optimizer = _metadata(items["optimizer"]) if "optimizer" in items else None
    except Exception as error:
        raise CheckpointError(f"{path}: not a readable checkpoint: {_first_line(error)}") from error
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    lines = [
        f"{jax.tree_util.keystr(key, simple=True, separator='/'):48} {leaf.dtype!s:10} "
        f"{list(leaf.shape)}"
        for key, leaf in leaves
    ]
    count = sum(int(np.prod(leaf.shape)) for _, leaf in leaves)
    state = (
        "no optimizer state"
        if optimizer is None
        else f"optimizer state: {len(jax.tree.leaves(optimizer))} tensors"
    )
    step = f"step {folder.name}" if "progress" in items else "step unknown"
    return "\n".join([*lines, f"{len(leaves)} tensors, {count:,} parameters; {state}, {step}"])


def load_weights(path: epath.PathLike, shapes: Params) -> tuple[Params, str]:
    """Reads parameters from a checkpoint folder to start another run from.

    Args:
        path: as for `describe`.
        shapes: the expected parameters' shapes, dtypes and shardings.

    Returns:
        The parameters, and a sentence that says what was not loaded.

    Raises:
        CheckpointError: if a parameter is missing, unexpected or of another shape.
    """
    summary = describe(path).splitlines()[-1]
    folder = _absolute(path)
    folder = folder / "params" if (folder / "params").is_dir() else folder
    stored, wanted = _flat(_metadata(folder)), _flat(shapes)
    faults = [f"missing {name}" for name in wanted if name not in stored]
    faults += [f"unexpected {name}" for name in stored if name not in wanted]
    faults += [
        f"{name} has shape {tuple(stored[name].shape)}, the model {tuple(leaf.shape)}"
        for name, leaf in wanted.items()
        if name in stored and tuple(stored[name].shape) != tuple(leaf.shape)
    ]
    if faults:
        raise CheckpointError(f"{path} does not fit the model: {'; '.join(faults)}")
    with ocp.StandardCheckpointer() as reader:
        params = reader.restore(folder, shapes)
    left = (
        "no optimizer state and no step are in it"
        if "no optimizer" in summary
        else ("its optimizer state, step and data position are not taken over")
    )
    return params, f"weights from {path} ({summary}); {left}"


def fingerprint(params: Params) -> str:
    """Returns 12 hexadecimal digits that tell one set of parameter values from another."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        digest.update(np.asarray(jax.device_get(leaf)).tobytes())
    return digest.hexdigest()[:12]


def _absolute(path: epath.PathLike) -> epath.Path:
    """Makes a local path absolute, as the storage layer asks for; a remote one is so already."""
    text = os.fspath(path)
    return epath.Path(text if "://" in text else os.path.abspath(text))


def _rest(state: TrainState) -> dict[str, Any]:
    return {
        "step": state.step,
        "opt_state": state.opt_state,
        "window": state.window,
        "skipped": state.skipped,
    }


def _flat(tree: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(key, simple=True, separator="/"): leaf for key, leaf in leaves}


def _metadata(folder: epath.Path) -> Any:
    with ocp.StandardCheckpointer() as reader:
        metadata = reader.metadata(folder).item_metadata
    if metadata is None:
        raise CheckpointError(f"{folder} is missing or holds no arrays")
    return metadata.tree


def _first_line(error: Exception) -> str:
    # What a storage layer says of its own state follows in brackets, and goes on for pages.
    text = str(error).strip().split("[tensorstore_spec")[0] or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0]:.200}".rstrip()
