"""Where a run starts: from random weights, from given ones, or from its own last checkpoint."""

from functools import partial

import jax
from jax.sharding import Mesh

import bert_lamb
from bert_lamb import model
from bert_lamb.config import RunConfig, to_dict
from bert_lamb.model import Objective
from bert_lamb.parallel.layout import Layout, placed
from bert_lamb.training.checkpoint import CheckpointError, Checkpoints, Progress
from bert_lamb.training.phases import hand_over, locate, make_optimizer
from bert_lamb.training.state import Params, TrainState, new_state, state_specs
from bert_lamb.training.task import Task


def initial_state(config: RunConfig, objective: Objective) -> TrainState:
    """Draws the state before the first step; a function of its arguments alone."""
    return _first_state(config, objective, objective.init(jax.random.key(config.seed)))


def _first_state(config: RunConfig, objective: Objective, params: Params) -> TrainState:
    optimizer = make_optimizer(config.optimizer, config.phases[0], params)
    return new_state(params, optimizer, objective.names)


def lay_out(objective: Objective, mesh: Mesh) -> Layout:
    """Returns where the parameters of a model lie on a mesh.

    Raises:
        ConfigError: if the mesh cannot cut them evenly.
    """
    shapes = parameter_shapes(objective)
    return Layout.of(mesh, model.parameter_axes(shapes), shapes)


def state_shapes(config: RunConfig, objective: Objective, layout: Layout) -> TrainState:
    """Returns the shapes of a run's state, each with its sharding."""
    shapes = jax.eval_shape(partial(initial_state, config, objective))
    return placed(shapes, layout.shardings(state_specs(shapes, layout.specs)))


def begin(
    config: RunConfig, task: Task, checkpoints: Checkpoints, layout: Layout
) -> tuple[TrainState, str]:
    """Returns the state to start from and a sentence that says where it comes from.

    Raises:
        CheckpointError: if a checkpoint cannot be read or belongs to other records.
    """
    objective = task.objective
    shapes = state_shapes(config, objective, layout)
    shardings = jax.tree.map(lambda x: x.sharding, shapes)
    restored = checkpoints.restore_newest(shapes)
    if restored is not None:
        state, found = restored
        _check_position(found, progress_at(config, task, found.step))
        if found.step == config.total_steps:
            return state, f"this run is complete: {found.step} steps"
        return state, (
            f"resuming at step {found.step} of {config.total_steps}: phase {found.phase + 1}, "
            f"batch {found.next_batch} of it"
        )
    given = task.weights(layout)
    if given is not None:
        start = partial(_first_state, config, objective)
        return jax.jit(start, out_shardings=shardings)(given[0]), given[1]
    state = jax.jit(partial(initial_state, config, objective), out_shardings=shardings)()
    count = model.count_params(objective.config, objective.make)
    return state, f"starting from random weights, {count:,} parameters"


def enter_phase(config: RunConfig, index: int, state: TrainState, layout: Layout) -> TrainState:
    """Returns the state with which phase `index`, not the first, starts: its carry-over applied."""
    phase = config.phases[index]
    optimizer = make_optimizer(config.optimizer, phase, state.params)

    def enter(state: TrainState) -> TrainState:
        fresh = new_state(state.params, optimizer, tuple(state.window))
        return TrainState(
            step=state.step,
            params=state.params,
            opt_state=hand_over(phase.carry, state.opt_state, fresh.opt_state),
            window=fresh.window,
            skipped=state.skipped,
        )

    shapes = jax.eval_shape(enter, state)
    shardings = layout.shardings(state_specs(shapes, layout.specs))
    return jax.jit(enter, out_shardings=shardings)(state)


def progress_at(config: RunConfig, task: Task, step: int) -> Progress:
    """Returns where the run stands after `step` batches."""
    phase, next_batch = locate(config.phases, step)
    return Progress(
        step=step,
        phase=phase,
        next_batch=next_batch,
        seed=config.seed,
        records=dict(task.sources),
        config=to_dict(task.config),
        version=bert_lamb.__version__,
    )


def parameter_shapes(objective: Objective) -> Params:
    """Returns the shapes and dtypes of the parameters."""
    return jax.eval_shape(lambda: objective.init(jax.random.key(0)))


def _check_position(found: Progress, expected: Progress) -> None:
    for key in ("step", "phase", "next_batch", "seed", "records"):
        if getattr(found, key) != getattr(expected, key):
            raise CheckpointError(
                f"the checkpoint of step {found.step} has {key} = {getattr(found, key)}, this run "
                f"expects {getattr(expected, key)}; resume with the records and the configuration "
                "of the run that wrote it, or give a new --workdir"
            )
