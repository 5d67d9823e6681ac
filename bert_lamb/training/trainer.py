"""A training run from start to end; the file to read first.

A run is a list of phases, and a task says what they train: `pretraining` is one, fine-tuning has
others. Batch t, its masks and its dropout are pure functions of (seed, t), and a checkpoint holds
everything else, so a run that is stopped anywhere and restarted computes the same numbers as one
that never stopped.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
from etils import epath
from jax.sharding import Mesh

from bert_lamb import model
from bert_lamb.config import RunConfig
from bert_lamb.optim import leaf_paths, mask_table
from bert_lamb.parallel.batches import local_rows, put_batch
from bert_lamb.parallel.hosts import everywhere
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import describe_mesh, make_mesh, row_devices
from bert_lamb.parallel.watchdog import Watchdog
from bert_lamb.training import preflight
from bert_lamb.training.checkpoint import Checkpoints
from bert_lamb.training.phases import first_step, learning_rates, locate, make_optimizer, masks
from bert_lamb.training.program import compile_step
from bert_lamb.training.recorder import Recorder, open_recorder
from bert_lamb.training.signals import StopSignals
from bert_lamb.training.start import begin, enter_phase, lay_out, progress_at
from bert_lamb.training.state import TrainState
from bert_lamb.training.step import Batch, Step
from bert_lamb.training.task import Scorer, Task
from bert_lamb.training.throughput import Stopwatch


@dataclass(frozen=True)
class Outcome:
    """How `train` ended.

    Attributes:
        state: of the training, on the devices.
        step: batches consumed.
        stopped_by: number of the signal that ended it early; None if the run is complete.
    """

    state: TrainState
    step: int
    stopped_by: int | None


@dataclass(frozen=True)
class _Run:
    """What stays the same throughout a run."""

    config: RunConfig
    task: Task
    layout: Layout
    checkpoints: Checkpoints
    recorder: Recorder
    stop: StopSignals
    watchdog: Watchdog
    score: Scorer


def train(
    task: Task, workdir: epath.PathLike, devices: Sequence[jax.Device] | None = None
) -> Outcome:
    """Trains as `task.run` says; resumes if `workdir` holds a checkpoint of this run.

    With several hosts, `bert_lamb.parallel.joining.join` comes first and all of them call this.

    Args:
        task: what is trained, and how.
        workdir: gets config.json, the tokenizer, checkpoints, metrics.jsonl, TensorBoard files;
            the same folder for all hosts, local or remote.
        devices: to train on; None takes all devices of all hosts.

    Returns:
        The state at the end of the run, or at the signal that stopped it; either is saved.

    Raises:
        ConfigError: if the configuration cannot be run, or the hosts do not all run the same
            code, configuration and records; before anything is compiled.
        CheckpointError: if `workdir` has checkpoints that cannot be resumed.
        HostsError: if a host does not answer before the first step.
        NonFiniteError: if gradients are not finite `nonfinite_limit` times in a row.
    """
    config = task.run
    mesh = make_mesh(config.parallel, devices)
    preflight.check_devices(config, row_devices(mesh))
    layout = lay_out(task.objective, mesh)
    preflight.compare_hosts(task.config, task.sources)
    preflight.claim_workdir(workdir, task.config, task.write_tokenizer)
    with (
        StopSignals() as stop,
        Watchdog(config.parallel.stall_seconds) as watchdog,
        Checkpoints(workdir, keep=config.checkpoint.keep) as checkpoints,
    ):
        state, origin = begin(config, task, checkpoints, layout)
        step, names = int(state.step), jax.tree.leaves(leaf_paths(state.params))
        with open_recorder(workdir, config, task.objective, step, names) as recorder:
            recorder.say(origin)
            scorer = task.scorer(layout)
            run = _Run(config, task, layout, checkpoints, recorder, stop, watchdog, scorer)
            if step == config.total_steps:
                _evaluate_missed(run, state, step)
            for index in range(locate(config.phases, step)[0], len(config.phases)):
                state = _run_phase(run, index, state)
                if stop.received is not None:
                    break
            step = int(state.step)
            recorder.end_run(step)
    return Outcome(state, step, stop.received if step < config.total_steps else None)


def describe_run(task: Task, devices: Sequence[jax.Device] | None = None) -> str:
    """Checks a run as `train` does and says what it would do, without doing it.

    Returns:
        A line for each phase, and a table of what decays and adapts.

    Raises:
        ConfigError: as `train`.
    """
    config = task.run
    mesh = make_mesh(config.parallel, devices)
    preflight.check_devices(config, row_devices(mesh))
    shapes = lay_out(task.objective, mesh).shapes
    make_optimizer(config.optimizer, config.phases[0], shapes)  # for its checks
    decays, adapts = masks(config.optimizer, shapes)
    table = mask_table(shapes, decays, adapts, model.stacked_axes(shapes))
    return "\n".join([*(_describe(config, i, mesh) for i in range(len(config.phases))), table])


def _run_phase(run: _Run, index: int, state: TrainState) -> TrainState:
    """Runs what is left of phase `index`; saves at its end, or at the stop that was asked for."""
    config, recorder, phase = run.config, run.recorder, run.config.phases[index]
    step, first = int(state.step), first_step(config.phases, index)
    last = first + phase.steps
    if step == first and index > 0:
        state = enter_phase(config, index, state, run.layout)
    recorder.say(_describe(config, index, run.layout.mesh))
    batches = _batches(run, index, step - first)
    batch = next(batches)
    train_step, compile_seconds = _compile(run, index, state, batch)
    _evaluate(run, index, state, step)
    recorder.start_phase(f"phase {index + 1}/{len(config.phases)}", _stopwatch(run, index), step)

    began, ends = step, False
    while not ends:
        run.watchdog.at("training", step, patient=step == began)
        state, report = train_step(state, batch)
        step += 1
        window_ends = step == last or step % config.logging.every_steps == 0
        recorder.step_done(step, report, window_ends=window_ends)
        run.checkpoints.check()
        ends = run.stop.after(step) or step == last
        if not ends:
            batch = next(batches)
        if ends or step % config.checkpoint.every_steps == 0:
            recorder.flush()
            recorder.check_finite(step, report)
            run.watchdog.at("saving", step)
            run.checkpoints.save(state, progress_at(config, run.task, step))
            recorder.resume(step)
        every = config.evaluation.every_steps
        if not ends and every and step % every == 0:
            recorder.flush()
            _evaluate(run, index, state, step)
            recorder.resume(step)

    recorder.end_phase(step, compile_seconds)
    if step == last:
        _evaluate(run, index, state, step)
    return state


def _batches(run: _Run, index: int, start: int) -> Iterator[Batch]:
    """Yields the phase's batches from `start` on, placed on the devices."""
    mesh = run.layout.mesh
    rows = local_rows(mesh, run.config.phases[index].global_batch)
    for batch in run.task.batches(index, start, rows):
        yield put_batch(batch, mesh)


def _compile(run: _Run, index: int, state: TrainState, batch: Batch) -> tuple[Step, float]:
    """Compiles the phase's step, once; returns it with the seconds that took."""
    run.watchdog.at("compiling", int(state.step), patient=True)
    run.recorder.say("compiling the step (seconds on idle cores, minutes for a large model)")
    began = time.perf_counter()
    compiled = compile_step(run.config, run.task.objective, index, run.layout, state, batch)
    return compiled, time.perf_counter() - began


def _evaluate(run: _Run, index: int, state: TrainState, step: int) -> None:
    """Scores the phase's evaluation data, if it has any."""
    run.watchdog.at("evaluating", step, patient=True)
    score = run.score(index, state.params)
    if score is not None:
        run.recorder.evaluation(step, score)


def _evaluate_missed(run: _Run, state: TrainState, step: int) -> None:
    """Scores a complete run whose process ended between the last checkpoint and the scores."""
    if not everywhere("evaluated", run.recorder.was_evaluated(step)):
        _evaluate(run, len(run.config.phases) - 1, state, step)


def _stopwatch(run: _Run, index: int) -> Stopwatch:
    phase = run.config.phases[index]
    return Stopwatch(
        rows=phase.global_batch,
        seq_length=phase.seq_length,
        flops_per_row=run.task.flops_per_row(index),
        device_kind=run.layout.mesh.devices.flat[0].device_kind,
        devices=run.layout.mesh.size,
    )


def _describe(config: RunConfig, index: int, mesh: Mesh) -> str:
    """Says in one line what a phase does."""
    phase, rates = config.phases[index], learning_rates(config.phases[index])
    parts = preflight.micro_batches(phase, row_devices(mesh))
    rows = phase.global_batch // row_devices(mesh) // parts
    carried = f", carries over {phase.carry.replace('_', ' ')}" if index else ""
    return (
        f"phase {index + 1}/{len(config.phases)}: {phase.steps} steps of {phase.global_batch} x "
        f"{phase.seq_length} on {describe_mesh(mesh)}, {parts} micro-batch"
        f"{'es' * (parts > 1)} of {rows} rows each; learning rate first {rates.first:.4g}, peak "
        f"{rates.peak:.4g}, last {rates.last:.4g}{carried}"
    )
