"""Turns what the steps report into lines for people and files, a window of steps at a time."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any

import jax
from etils import epath

from bert_lamb.config import RunConfig
from bert_lamb.model import Objective
from bert_lamb.parallel.hosts import is_first
from bert_lamb.training.metrics import Display, MetricsFiles, clock
from bert_lamb.training.task import Score
from bert_lamb.training.throughput import Speed, Stopwatch

Report = Mapping[str, Any]


class NonFiniteError(RuntimeError):
    """Training stands still because gradients are not finite."""


class Recorder:
    """Writes metrics one step late, so that the device never waits for the host.

    `report` keeps the last window's arrays and fetches them when the next step has been
    dispatched; `flush` fetches them at once. Nothing is read from the device in between.
    """

    def __init__(
        self,
        files: MetricsFiles,
        display: Display,
        objective: Objective,
        tensor_names: list[str],
        total_steps: int,
        nonfinite_limit: int,
        trust_ratios: bool,
    ) -> None:
        self._files, self._display, self._objective = files, display, objective
        self._names, self._total = tensor_names, total_steps
        self._limit, self._trust_ratios = nonfinite_limit, trust_ratios
        self._pending: tuple[int, Report] | None = None
        self._stopwatch: Stopwatch | None = None
        self._timed_from = 0
        self._phase = ""
        self._began = time.perf_counter()

    def __enter__(self) -> "Recorder":
        self._display.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._display.__exit__(kind, error, trace)
        self._files.close()

    def say(self, text: str) -> None:
        """Prints a line."""
        self._display.say(text)

    def start_phase(self, name: str, stopwatch: Stopwatch, step: int) -> None:
        """Begins a phase at `step`; its steps are timed by `stopwatch`."""
        self._phase, self._stopwatch = name, stopwatch
        self.resume(step)

    def resume(self, step: int) -> None:
        """Starts the clock anew at `step`, after a compile, an evaluation or a checkpoint."""
        assert self._stopwatch is not None
        self._stopwatch.start()
        self._timed_from = step

    def step_done(self, step: int, report: Report, *, window_ends: bool) -> None:
        """Takes the report of the step that was just dispatched."""
        self._display.advance(step, self._phase)
        self.flush()
        if window_ends:
            self._pending = (step, report)

    def flush(self) -> None:
        """Writes the pending window, waiting for its last step.

        Raises:
            NonFiniteError: if updates were skipped up to the limit.
        """
        if self._pending is None:
            return
        (step, report), self._pending = self._pending, None
        self.check_finite(step, report)
        fetched = dict(jax.device_get(report))
        ratios = fetched.pop("trust_ratios")
        values = {name: float(value) for name, value in fetched.items()}
        figures = {
            **self._objective.figures(values),
            "grad_norm": values["grad_norm"] / max(values["updates"], 1),
            "learning_rate": values["learning_rate"],
            "skipped_total": values["skipped_total"],
        }
        assert self._stopwatch is not None
        # The window may have begun before the clock did: count its mean tokens per step.
        steps = step - self._timed_from
        tokens = steps * values["tokens"] / max(values["updates"], 1)
        speed = self._stopwatch.stop(steps, tokens)
        self._timed_from = step
        self._files.write("train", step, {**figures, **_speed_fields(speed)})
        if self._trust_ratios and ratios:
            lists = (ratio.ravel().tolist() for ratio in jax.tree.leaves(ratios))
            self._files.write("trust_ratio", step, dict(zip(self._names, lists, strict=True)))
        left = None if speed is None else speed.seconds_per_step * (self._total - step)
        self._display.window(step, _note(figures, self._objective.shown, speed), left)

    def was_evaluated(self, step: int) -> bool:
        """Whether an earlier process has recorded an evaluation at `step`, for all that is known.

        Hosts that keep no records say yes.
        """
        return not is_first() or self._files.last_evaluation == step

    def evaluation(self, step: int, score: Score) -> None:
        """Writes the scores of an evaluation."""
        self._files.write("eval", step, score.to_dict())
        self.say(f"step {step}: {score.describe()}")

    def end_phase(self, step: int, compile_seconds: float) -> None:
        """Writes the phase's rates: whole steps only, compile and evaluation apart."""
        assert self._stopwatch is not None
        speed = self._stopwatch.total()
        figures = {"compile_seconds": compile_seconds, **_speed_fields(speed)}
        self._files.write("phase", step, figures)
        if speed is not None:
            share = "n/a" if speed.peak_share is None else f"{speed.peak_share:.1%}"
            self.say(
                f"{self._phase}: {speed.tokens:,.0f} tokens/s, {speed.sequences:,.1f} sequences/s, "
                f"{speed.padding:.1%} padding, {speed.model_flops / 1e9:,.1f} model GFLOP/s, share "
                f"of peak {share}; compiled in {compile_seconds:.1f} s"
            )

    def end_run(self, step: int) -> None:
        """Writes how long this process trained."""
        seconds = time.perf_counter() - self._began
        self._files.write("run", step, {"wall_seconds": seconds})
        self.say(f"trained up to step {step} in {clock(seconds)}")

    def check_finite(self, step: int, report: Report) -> None:
        """Waits for `step` and looks whether training stands still.

        Raises:
            NonFiniteError: if updates were skipped up to the limit.
        """
        if int(report["skipped_in_row"]) < self._limit:
            return
        self._files.write("run", step, {"skipped_total": int(report["skipped_total"])})
        raise NonFiniteError(
            f"step {step}: gradients were not finite in {self._limit} updates in a row, first in "
            f"tensor {self._names[int(report['skipped_tensor'])]}; the parameters were not changed "
            "by them. Lower phases[].peak_lr or lengthen its warmup_steps, and restart from the "
            "last checkpoint."
        )


def open_recorder(
    workdir: epath.PathLike,
    config: RunConfig,
    objective: Objective,
    step: int,
    tensor_names: list[str],
) -> Recorder:
    """Returns the recorder of a run that starts at `step`; host 0 alone shows and writes."""
    first = is_first()
    files = MetricsFiles(
        workdir if first else None, start=step, tensorboard=config.logging.tensorboard
    )
    return Recorder(
        files,
        Display(config.total_steps, step, silent=not first),
        objective,
        tensor_names,
        config.total_steps,
        config.nonfinite_limit,
        config.logging.trust_ratios,
    )


def _speed_fields(speed: Speed | None) -> dict[str, float | None]:
    return {} if speed is None else asdict(speed)


def _note(figures: Mapping[str, float], shown: tuple[str, str], speed: Speed | None) -> str:
    rate = "" if speed is None else f"  {speed.tokens:,.0f} tokens/s"
    return f"loss {figures['loss']:.3f}  {shown[0].format(figures[shown[1]])}{rate}"
