"""The very step that the trainer runs, compiled for devices that need not be there."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bert_lamb.config import PhaseConfig, PretrainConfig
from bert_lamb.model import pretraining
from bert_lamb.parallel.mesh import make_mesh, over_rows, row_devices
from bert_lamb.planning.topology import compile_absent
from bert_lamb.training.preflight import check_devices
from bert_lamb.training.program import lower_step
from bert_lamb.training.start import lay_out, state_shapes


def compile_phase(
    config: PretrainConfig, index: int, devices: Sequence[jax.Device]
) -> jax.stages.Compiled:
    """Compiles the step of a phase from shapes alone.

    Args:
        config: of the run, with the vocabulary's size filled in.
        index: of the phase.
        devices: present ones, or those of `topology_devices`.

    Raises:
        ConfigError: if the configuration does not fit so many devices.
    """
    return compile_absent(*lower_phase(config, index, make_mesh(config.parallel, devices)))


def lower_phase(
    config: PretrainConfig, index: int, mesh: Mesh
) -> tuple[jax.stages.Lowered, dict[str, Any]]:
    """Lowers the step of a phase from shapes alone.

    Args:
        config: of the run, with the vocabulary's size filled in.
        index: of the phase.
        mesh: what `make_mesh` makes of the configuration and the devices.

    Returns:
        The step, ready to be compiled, and the compiler's options for it.

    Raises:
        ConfigError: if the configuration does not fit so many devices.
    """
    check_devices(config, row_devices(mesh))
    objective = pretraining(config.model)
    layout = lay_out(objective, mesh)
    batch = batch_shapes(config.phases[index], mesh)
    state = state_shapes(config, objective, layout)
    return lower_step(config, objective, index, layout, state, batch)


def batch_shapes(phase: PhaseConfig, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of a global batch, split over its rows, as the pipeline makes it."""
    B, T, P = phase.global_batch, phase.seq_length, phase.max_predictions
    shapes = {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), ((B, T), jnp.int32)),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), ((B, P), jnp.int32)),
        "masked_lm_weights": ((B, P), jnp.float32),
        "next_sentence_labels": ((B,), jnp.int32),
        "next_sentence_weights": ((B,), jnp.float32),
        "row": ((B,), jnp.int32),
    }
    return {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=over_rows(mesh))
        for name, (shape, dtype) in shapes.items()
    }
