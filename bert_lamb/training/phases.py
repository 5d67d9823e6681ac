"""Phases as data: where a step lies, its learning rate, and what one phase hands to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_lamb import model, optim
from bert_lamb.config import ConfigError, OptimizerConfig, TrainingPhase
from bert_lamb.optim.states import find_states
from bert_lamb.training.state import Params

# What a parameter of the model is, by the last part of its path. A new kind has to be thought
# about before it is trained: silently, it would decay and adapt.
KNOWN_KINDS = ("kernel", "embedding", "scale", "bias")


def locate(phases: Sequence[TrainingPhase], step: int) -> tuple[int, int]:
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


def first_step(phases: Sequence[TrainingPhase], index: int) -> int:
    """Returns the run's step at which phase `index` starts."""
    return sum(phase.steps for phase in phases[:index])


def schedule(phase: TrainingPhase) -> optax.Schedule:
    """Returns the phase's learning rate as a function of the updates applied in this phase."""
    common = (phase.peak_lr, phase.warmup_steps)
    total, power = phase.schedule_length, phase.decay_power
    if phase.decay_form == "mlperf":
        rate = optim.mlperf_warmup_decay(*common, total, phase.warmup_start, power)
    elif phase.constant_steps:
        rate = optim.warmup_constant_decay(*common, phase.constant_steps, total, power)
    else:
        rate = optim.warmup_polynomial_decay(*common, total, power, phase.decay_form)
    if not phase.schedule_from:
        return rate
    return lambda count: rate(count + phase.schedule_from)


@dataclass(frozen=True)
class LearningRates:
    """The learning rate at the first, the peak and the last update of a phase."""

    first: float
    peak: float
    last: float


def learning_rates(phase: TrainingPhase) -> LearningRates:
    """Evaluates the phase's schedule where people look first."""
    turn = phase.warmup_steps + phase.warmup_start - phase.schedule_from
    # A rate rises until the warm-up ends and falls from there or a little later on.
    around = [min(max(turn + update, 0), phase.steps - 1) for update in (-2, -1, 0)]
    rates = schedule(phase)(jnp.array([0, *around, phase.steps - 1]))
    return LearningRates(float(rates[0]), float(jnp.max(rates)), float(rates[-1]))


def masks(config: OptimizerConfig, params: Params) -> tuple[Params, Params]:
    """Says of each parameter whether it decays and whether it adapts.

    Args:
        config: of the optimizer.
        params: parameters or their shapes.

    Returns:
        Two trees of bools like `params`.

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
    decays = config.weight_decay > 0
    adapts = {"nvlamb": lambda _: True, "apex": lambda own: own and decays}.get(
        config.variant, lambda own: own and config.name != "adamw"
    )
    return jax.tree.map(lambda own: own and decays, matrices), jax.tree.map(adapts, matrices)


def make_optimizer(
    config: OptimizerConfig, phase: TrainingPhase, params: Params, specs: Params | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns the phase's optimizer for BERT: biases and norms neither decay nor adapt.

    Args:
        config: of the optimizer.
        phase: whose schedule it follows.
        params: parameters or their shapes, for the masks.
        specs: inside `jax.shard_map`, how the parameters are cut there.

    Raises:
        ConfigError, ValueError: as `masks`.
    """
    decays, adapts = masks(config, params)
    rate = schedule(phase)
    common: dict[str, Any] = {
        "b1": config.b1,
        "weight_decay": config.weight_decay,
        "mask": decays,
        "specs": specs,
    }
    clip: dict[str, Any] = {"clip_norm": config.clip_norm if config.clip == "global" else None}
    moments: dict[str, Any] = {
        "b2": config.b2,
        "eps": config.eps,
        "moment_dtype": jnp.dtype(config.moment_dtype),
    }
    layerwise: dict[str, Any] = {
        "trust_ratio_mask": None if config.own_adaptation else adapts,
        "stacked": model.stacked_axes(params),
        "phi_bounds": config.phi_bounds,
        "record": True,
    }
    match config.name:
        case "adamw":
            correct = config.bias_correction
            return optim.adamw(rate, **common, **clip, **moments, bias_correction=correct)
        case "lars":
            return optim.lars(rate, **common, **clip, **layerwise)
        case "lans":
            return optim.lans(rate, **common, **moments, **layerwise)
    own: dict[str, Any] = {
        key: getattr(config, key)
        for key in ("variant", "nesterov", "pre_normalize", "ratio_bounds")
    }
    return optim.lamb(rate, **common, **clip, **moments, **layerwise, **own)


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
    moments = (part for part in jax.tree.leaves(old, is_leaf=_is_moments) if _is_moments(part))
    return jax.tree.map(
        lambda part: next(moments) if _is_moments(part) else part, new, is_leaf=_is_moments
    )


def _is_moments(part: Any) -> bool:
    """Whether a part of an optimizer's state is what one phase can hand to the next."""
    # The moments of LAMB, LANS and AdamW; the momentum of LARS.
    return isinstance(part, optax.ScaleByAdamState | optax.EmaState)


def schedule_count(opt_state: optax.OptState) -> Any:
    """Returns the number of updates applied in this phase, i32 []."""
    return find_states(opt_state, optax.ScaleByScheduleState)[0].count
