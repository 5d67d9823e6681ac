"""Phases as data: where a step lies, its learning rate, and what one phase hands to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import optax

from bert_lamb import model, optim
from bert_lamb.config import ConfigError, OptimizerConfig, PhaseConfig
from bert_lamb.optim.states import find_states
from bert_lamb.training.state import Params

# What a parameter of the model is, by the last part of its path. A new kind has to be thought
# about before it is trained: silently, it would decay and adapt.
KNOWN_KINDS = ("kernel", "embedding", "scale", "bias")


def locate(phases: Sequence[PhaseConfig], step: int) -> tuple[int, int]:
    """Returns (index of the phase, step within it) of the `step`-th batch of the run.

    The last step of one phase and the first of the next share a boundary: the step after a
    phase's last belongs to the next phase. After the last phase the answer is
    (len(phases), 0).

    Args:
        phases: of the run.
        step: batches consumed so far, 0 or more.
    """
    for index, phase in enumerate(phases):
        if step < phase.steps:
            return index, step
        step -= phase.steps
    return len(phases), 0


def first_step(phases: Sequence[PhaseConfig], index: int) -> int:
    """Returns the run's step at which phase `index` starts."""
    return sum(phase.steps for phase in phases[:index])


def schedule(phase: PhaseConfig) -> optax.Schedule:
    """Returns the phase's learning rate as a function of the updates applied in this phase."""
    return optim.warmup_polynomial_decay(
        phase.peak_lr, phase.warmup_steps, phase.steps, phase.decay_power, phase.decay_form
    )


@dataclass(frozen=True)
class LearningRates:
    """The learning rate at the first, the peak and the last update of a phase."""

    first: float
    peak: float
    last: float


def learning_rates(phase: PhaseConfig) -> LearningRates:
    """Evaluates the phase's schedule where people look first."""
    rate = schedule(phase)
    peak_update = max(phase.warmup_steps, 1) - 1
    return LearningRates(float(rate(0)), float(rate(peak_update)), float(rate(phase.steps - 1)))


def make_optimizer(
    config: OptimizerConfig, phase: PhaseConfig, params: Params, specs: Params | None = None
) -> optax.GradientTransformation:
    """Returns the phase's LAMB for BERT: biases and norms neither decay nor adapt.

    Args:
        config: of the optimizer.
        phase: whose schedule it follows.
        params: parameters or their shapes, for the masks.
        specs: inside `jax.shard_map`, how the parameters are cut there.

    Raises:
        ConfigError: if a pattern of `config.exclude` matches no parameter.
        ValueError: if a parameter is of a kind that the rules were not made for.
    """
    for path in jax.tree.leaves(optim.leaf_paths(params)):
        if path.rpartition("/")[2] not in KNOWN_KINDS:
            raise ValueError(
                f"parameter {path}: not a {', '.join(KNOWN_KINDS)}; say here whether it decays "
                "and adapts"
            )
    try:
        matrices = optim.path_mask(params, config.exclude)
    except ValueError as error:
        raise ConfigError(f"config.optimizer.exclude: {error}") from error
    return optim.lamb(
        schedule(phase),
        b1=config.b1,
        b2=config.b2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        mask=matrices,
        trust_ratio_mask=matrices,
        stacked=model.stacked_axes(params),
        clip_norm=config.clip_norm if config.clip == "global" else None,
        specs=specs,
        record=True,
    )


def hand_over(carry: str, old: optax.OptState, new: optax.OptState) -> optax.OptState:
    """Returns the next phase's optimizer state.

    Args:
        carry: "weights" starts the moments from zero; "weights_and_moments" takes them over
            together with the update count of their bias correction, without which warm moments
            would be inflated. The schedule's own count always restarts.
        old: state at the end of the phase before.
        new: fresh state of the next phase.
    """
    if carry == "weights":
        return new
    moments = find_states(old, optax.ScaleByAdamState)[0]
    return jax.tree.map(
        lambda s: moments if isinstance(s, optax.ScaleByAdamState) else s,
        new,
        is_leaf=lambda s: isinstance(s, optax.ScaleByAdamState),
    )


def schedule_count(opt_state: optax.OptState) -> Any:
    """Returns the number of updates applied in this phase, i32 []."""
    return find_states(opt_state, optax.ScaleByScheduleState)[0].count
