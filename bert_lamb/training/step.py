"""One optimizer update, compiled: gradients summed over the global batch, then LAMB."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_lamb import model
from bert_lamb.model import Objective
from bert_lamb.optim.sharding import split_over, sum_over_devices
from bert_lamb.optim.skipping import judge
from bert_lamb.optim.trust_ratio import find_trust_ratios
from bert_lamb.parallel.exchange import Exchange
from bert_lamb.parallel.mesh import ROWS
from bert_lamb.training.phases import schedule_count
from bert_lamb.training.state import Params, TrainState, state_specs

Batch = dict[str, jax.Array]
Report = dict[str, Any]
Step = Callable[[TrainState, Batch], tuple[TrainState, Report]]


def build_step(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    learning_rate: optax.Schedule,
    exchange: Exchange,
    *,
    repeat_gather: bool = False,
    seed: int,
    micro_batches: int,
    window_steps: int,
    nonfinite_limit: int,
) -> Step:
    """Builds the function that takes one global batch and returns the next state.

    Each loss is a sum over the global batch divided once by its global weight, so neither the
    number of devices nor the accumulation changes it. Gradients are summed across devices once per
    update.

    An update whose gradient is not finite changes neither parameters nor moments nor the counts
    of optimizer and schedule. After `nonfinite_limit` of them in a row no update is applied any
    more; the host stops the run when it next reads `state.skipped`.

    Args:
        objective: the model and what it minimizes.
        optimizer: the present phase's, for parameters cut as `exchange.layout` says.
        learning_rate: the schedule inside `optimizer`, for the report.
        exchange: of weights and gradients between devices.
        repeat_gather: gather the weights of a layer again in the backward pass.
        seed: of dropout; the key of step t is a function of (seed, t).
        micro_batches: parts in which each device takes its rows, one after the other.
        window_steps: steps after which `state.window` starts anew.
        nonfinite_limit: non-finite updates in a row after which training stands still.

    Returns:
        A pure function (state, batch) -> (state, report), not yet compiled. The report holds
        copies of what the host reads now and then, so that the state itself can be donated.
    """
    specs = exchange.layout.local()
    names = [split_over(spec) for spec in jax.tree.leaves(specs)]
    gradients = _build_gradients(objective, exchange, micro_batches, repeat_gather)

    def on_each_device(state: TrainState, batch: Batch) -> tuple[TrainState, Report]:
        dropout_key = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, sums = gradients(state.params, batch, dropout_key)
        parts = [jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)]
        squares = jnp.stack(sum_over_devices(parts, names))
        apply, skipped = judge(squares, state.skipped, nonfinite_limit)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        keep = partial(jax.tree.map, lambda new, old: jnp.where(apply, new, old))

        sums |= {"grad_norm": jnp.sqrt(jnp.sum(squares)), "updates": jnp.float32(1)}
        restart = state.step % window_steps == 0
        window = {
            name: jnp.where(restart, 0, state.window[name]) + jnp.where(apply, value, 0)
            for name, value in sums.items()
        }
        recorded = find_trust_ratios(opt_state)
        report = {
            **window,
            "learning_rate": learning_rate(schedule_count(state.opt_state)),
            "skipped_in_row": skipped.in_row,
            "skipped_total": skipped.total,
            "skipped_tensor": skipped.tensor,
            "trust_ratios": recorded.trust_ratio if recorded else (),
        }
        return TrainState(
            step=state.step + 1,
            params=keep(params, state.params),
            opt_state=keep(opt_state, state.opt_state),
            window=window,
            skipped=skipped,
        ), report

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Report]:
        lies = state_specs(state, specs)
        return jax.shard_map(
            on_each_device,
            mesh=exchange.layout.mesh,
            in_specs=(lies, PartitionSpec(ROWS)),
            out_specs=(lies, PartitionSpec()),
            axis_names=set(ROWS),
        )(state, batch)

    return step


def _build_gradients(
    objective: Objective, exchange: Exchange, micro_batches: int, repeat_gather: bool
) -> Callable[[Params, Batch, jax.Array], tuple[Params, dict[str, jax.Array]]]:
    """Builds (params, batch, key) -> (this device's part of the mean gradient, global sums)."""
    prepare = exchange.hook()
    hook = None if prepare is None else model.LayerHook(prepare, repeat_gather)

    def loss(weights: Params, rows: Batch, key: jax.Array, divisors: dict) -> tuple:
        output = model.apply(
            objective.config, weights, rows, make=objective.make, dropout_key=key, hook=hook
        )
        sums = objective.sums(output, rows)
        return objective.loss(sums, divisors), sums

    def own(x: jax.Array) -> jax.Array:
        return jax.lax.pcast(x, ROWS, to="varying")

    def gradients(params: Params, batch: Batch, key: jax.Array) -> tuple:
        # The divisors come first: with them, micro-batches and devices only ever add.
        divisors = jax.tree.map(lambda w: jnp.maximum(w, 1), _total(objective.weights(batch)))
        weights, local_key = exchange.gather(params), own(key)

        def take(rows: Batch) -> tuple:
            grads, sums = jax.grad(loss, has_aux=True)(weights, rows, local_key, divisors)
            return exchange.clip_outside(grads), sums

        if micro_batches == 1:
            grads, sums = take(batch)
        else:
            grads, sums = _accumulate(take, batch, micro_batches, own)
        sums = {**sums, "tokens": jnp.sum(batch["input_mask"]).astype(jnp.float32)}
        return exchange.reduce(grads), _total(sums)

    return gradients


def _total(scalars: Any) -> Any:
    """Sums each scalar of a tree over all devices, in one collective."""
    leaves, structure = jax.tree.flatten(scalars)
    return jax.tree.unflatten(structure, sum_over_devices(leaves, [ROWS] * len(leaves)))


def _accumulate(take: Callable, batch: Batch, micro_batches: int, own: Callable) -> Any:
    """Adds up in float32 what `take` returns for each part of the batch."""
    parts = jax.tree.map(
        lambda x: x.reshape(micro_batches, x.shape[0] // micro_batches, *x.shape[1:]), batch
    )
    shapes = jax.eval_shape(take, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: own(jnp.zeros(x.shape, jnp.float32)), shapes)

    def add(total: Any, rows: Batch) -> tuple[Any, None]:
        return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, take(rows)), None

    return jax.lax.scan(add, zeros, parts)[0]
