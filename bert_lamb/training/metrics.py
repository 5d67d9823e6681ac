"""Where the numbers of a run go: metrics.jsonl, TensorBoard, and a terminal or a log."""

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from etils import epath
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from bert_lamb.training.mirror import Mirror

log = logging.getLogger(__name__)
METRICS = "metrics.jsonl"

Value = float | int | str | list[float] | None


class MetricsFiles:
    """Appends scalars to `metrics.jsonl` and TensorBoard files of a working directory.

    Lines of steps after `start`, left by a process that ended before its next checkpoint, are
    removed first: the restarted run writes them again, to the same digits.

    Attributes:
        last_evaluation: step of the last evaluation that the file held when it was opened, or -1.
    """

    def __init__(self, workdir: epath.PathLike | None, *, start: int, tensorboard: bool) -> None:
        """Opens the files for lines after step `start`; without a `workdir` nothing is written."""
        self._lines: TextIO | None = None
        self._events: Any = None
        self._mirror: Mirror | None = None
        self.last_evaluation = -1
        if workdir is None:
            return
        if "://" in os.fspath(workdir):
            self._mirror = Mirror(epath.Path(workdir), METRICS)
        folder = self._mirror.local if self._mirror else Path(workdir)
        kept = _keep_lines_up_to(folder / METRICS, start)
        self.last_evaluation = max((r["step"] for r in kept if r["kind"] == "eval"), default=-1)
        self._lines = (folder / METRICS).open("a", encoding="utf-8")
        if tensorboard:
            writer, purge = _event_writer(), start + 1 if start else None
            self._events = writer(str(folder / "tensorboard"), purge_step=purge)

    def write(self, kind: str, step: int, values: Mapping[str, Value]) -> None:
        """Writes one record; `kind` is "train", "eval", "phase", "trust_ratio" or "run".

        Args:
            kind: of record, the prefix of its TensorBoard tags.
            step: batches consumed so far.
            values: scalars, of which TensorBoard gets the numbers, or lists of numbers; None stands
                for "not available".
        """
        if self._lines is not None:
            self._lines.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            self._lines.flush()
        if self._events is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._events.add_scalar(f"{kind}/{name}", value, step)
        if self._mirror is not None:
            self._mirror.maybe_copy()

    def close(self) -> None:
        """Flushes and closes the files."""
        if self._lines is not None:
            self._lines.close()
        if self._events is not None:
            self._events.close()
        if self._mirror is not None:
            self._mirror.close()


def _event_writer() -> Callable[..., Any]:
    """Imports tensorboardX without PyTorch, which it would load wherever it is installed."""
    if "torch" in sys.modules:
        from tensorboardX import SummaryWriter

        return SummaryWriter
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` fail
    try:
        from tensorboardX import SummaryWriter
    finally:
        del sys.modules["torch"]
    return SummaryWriter


def _keep_lines_up_to(path: Path, step: int) -> list[dict[str, Any]]:
    """Drops records of steps after `step`, and a last line cut short; returns the others."""
    if not path.exists():
        return []
    kept, records = [], []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if line.endswith("\n") and record["step"] <= step:
            kept.append(line)
            records.append(record)
    scratch = path.with_suffix(".tmp")
    scratch.write_text("".join(kept), encoding="utf-8")
    scratch.replace(path)
    return records


class Display:
    """A progress bar on a terminal; plain log lines anywhere else."""

    def __init__(self, total_steps: int, done: int, *, silent: bool = False) -> None:
        """Shows a run of `total_steps` steps of which `done` are behind, or nothing if `silent`."""
        self._silent = silent
        self._total = total_steps
        self._done = done
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty() and not silent:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("", total=total_steps, completed=done, note="")

    def __enter__(self) -> "Display":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, step: int, phase: str) -> None:
        """Moves the bar to `step`."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, description=phase)

    def window(self, step: int, note: str, seconds_left: float | None) -> None:
        """Shows the figures of the window that ends at `step`."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, note=note)
            return
        if self._silent:
            return
        left = "" if seconds_left is None else f"  {clock(seconds_left)} left"
        log.info("step %d/%d  %s%s", step, self._total, note, left)

    def say(self, text: str) -> None:
        """Prints a line that stays above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        elif not self._silent:
            log.info("%s", text)


def clock(seconds: float) -> str:
    """Writes a duration as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
