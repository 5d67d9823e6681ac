"""What a training step reads and writes."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_lamb import optim
from bert_lamb.optim.skipping import Skipped, none_skipped

Params = dict[str, Any]
# Sums that every task has beside its own.
SUMS = ("tokens", "grad_norm", "updates")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["step", "params", "opt_state", "window", "skipped"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class TrainState:
    """The whole state of a run on the devices; every random choice follows from (seed, step).

    Attributes:
        step: i32 [], batches consumed over all phases: the position in the data.
        params: fp32 parameters, nested dict.
        opt_state: optax state of the present phase's optimizer.
        window: f32 [] each, sums since the last line of metrics.
        skipped: the record of non-finite updates.
    """

    step: jax.Array
    params: Params
    opt_state: optax.OptState
    window: dict[str, jax.Array]
    skipped: Skipped


def new_state(
    params: Params, optimizer: optax.GradientTransformation, names: Sequence[str]
) -> TrainState:
    """Returns the state before the first step of a task whose sums have `names`."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        window={name: jnp.zeros((), jnp.float32) for name in (*names, *SUMS)},
        skipped=none_skipped(),
    )


def state_specs(state: TrainState, specs: Params) -> TrainState:
    """Says how each array of a state is cut.

    Args:
        state: arrays or their shapes.
        specs: PartitionSpecs of the parameters.

    Returns:
        PartitionSpecs in the shape of `state`: moments are cut like their parameters, everything
        else is whole.
    """
    whole = jax.tree.map(lambda _: PartitionSpec(), state)
    return dataclasses.replace(
        whole,
        params=specs,
        opt_state=optim.state_specs(state.opt_state, state.params, specs),
    )
