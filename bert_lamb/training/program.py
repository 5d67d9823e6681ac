"""The program of a phase: its step, with all that the configuration decides about it."""

import logging
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_lamb import model
from bert_lamb.config import OptimizerConfig, RunConfig
from bert_lamb.model import Objective
from bert_lamb.optim import clip_by_global_norm
from bert_lamb.parallel.exchange import Clip, Exchange
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import replicated, row_devices
from bert_lamb.parallel.overlap import overlap_options
from bert_lamb.training.phases import make_optimizer, schedule
from bert_lamb.training.preflight import micro_batches
from bert_lamb.training.state import TrainState, state_specs
from bert_lamb.training.step import Step, build_step

log = logging.getLogger(__name__)


def compile_step(
    config: RunConfig,
    objective: Objective,
    index: int,
    layout: Layout,
    state: TrainState,
    batch: Mapping[str, Any],
) -> jax.stages.Compiled:
    """Compiles the step of phase `index`; arguments as those of `lower_step`."""
    lowered, options = lower_step(config, objective, index, layout, state, batch)
    try:
        return lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        log.warning("%s; compiling without options for overlap (parallel.overlap)", error)
        return lowered.compile()


def lower_step(
    config: RunConfig,
    objective: Objective,
    index: int,
    layout: Layout,
    state: TrainState,
    batch: Mapping[str, Any],
) -> tuple[jax.stages.Lowered, dict[str, Any]]:
    """Lowers the step of phase `index` for the devices of `layout`.

    Args:
        config: of the run.
        objective: of the run.
        index: of the phase.
        layout: of the parameters.
        state: of the training; arrays, or shapes with shardings.
        batch: the same.

    Returns:
        The step, ready to be compiled, and the compiler's options for it.
    """
    device = layout.mesh.devices.flat[0]
    # Donation halves the state's memory, which accelerators lack. On CPU, where it was measured to
    # make the step of a small model 14 % slower, memory is plenty.
    donated = () if device.platform == "cpu" else (0,)
    lies = layout.shardings(state_specs(state, layout.specs)), replicated(layout.mesh)
    step = jax.jit(
        phase_step(config, objective, index, layout), donate_argnums=donated, out_shardings=lies
    )
    options = overlap_options(config.parallel, device.device_kind, device.platform)
    return step.lower(state, batch), options


def phase_step(config: RunConfig, objective: Objective, index: int, layout: Layout) -> Step:
    """Builds the step of phase `index` for parameters that lie as `layout` says."""
    phase, shapes = config.phases[index], layout.shapes
    parts = micro_batches(phase, row_devices(layout.mesh))
    return build_step(
        objective,
        make_optimizer(config.optimizer, phase, shapes, layout.local()),
        schedule(phase),
        _plan_exchange(config, layout, parts),
        repeat_gather=config.parallel.gather == "layer",
        seed=config.seed,
        micro_batches=parts,
        window_steps=config.logging.every_steps,
        nonfinite_limit=config.nonfinite_limit,
    )


def _plan_exchange(config: RunConfig, layout: Layout, micro_batches: int) -> Exchange:
    parallel = config.parallel
    reduce_by_layer = parallel.reduce == "layer" and micro_batches == 1
    shares = row_devices(layout.mesh) * micro_batches
    clip = _bucket_clip(config.optimizer, config.model.num_layers + 1, shares)
    return Exchange(
        layout,
        model.weight_dtypes(config.model, layout.shapes),
        reduce_dtype=jnp.dtype(parallel.reduce_dtype),
        by_layer=parallel.gather == "layer" or reduce_by_layer or clip is not None,
        reduce_by_layer=reduce_by_layer,
        clip=clip,
    )


def _bucket_clip(config: OptimizerConfig, buckets: int, shares: int) -> Clip | None:
    """Returns the clipping of one bucket on one device; None where the whole is clipped.

    A bucket is a layer, or all outside of the layers.

    Args:
        config: of the optimizer.
        buckets: number of buckets.
        shares: number of micro-batches of all devices. The gradient of one is a share of the mean
            gradient, not an estimate of the whole of it, so the limit is shared out likewise.

    References:
        Kim et al., "Breaking MLPerf Training", https://arxiv.org/abs/2402.02447.
    """
    if config.clip == "global" or config.clip_norm is None:
        return None
    transform = clip_by_global_norm(config.clip_norm / math.sqrt(buckets) / shares)
    return lambda grads: transform.update(grads, optax.EmptyState())[0]
