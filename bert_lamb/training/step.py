"""One optimizer update, compiled: gradients summed over the global batch, then LAMB."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, PartitionSpec

from bert_lamb import model
from bert_lamb.config import ModelConfig
from bert_lamb.optim.skipping import judge
from bert_lamb.optim.trust_ratio import find_trust_ratios
from bert_lamb.parallel.mesh import DATA
from bert_lamb.training.phases import schedule_count
from bert_lamb.training.state import Params, TrainState

Batch = dict[str, jax.Array]
Report = dict[str, Any]
Step = Callable[[TrainState, Batch], tuple[TrainState, Report]]


def build_step(
    config: ModelConfig,
    optimizer: optax.GradientTransformation,
    learning_rate: optax.Schedule,
    mesh: Mesh,
    *,
    seed: int,
    micro_batches: int,
    window_steps: int,
    nonfinite_limit: int,
) -> Step:
    """Builds the function that takes one global batch and returns the next state.

    The loss is the masked-language-model loss plus the next-sentence loss, each a sum over the
    global batch divided once by its global weight, so neither the number of devices nor the
    accumulation changes it. Gradients are reduced across devices once per update.

    An update whose gradient is not finite changes neither parameters nor moments nor the counts
    of optimizer and schedule. After `nonfinite_limit` of them in a row no update is applied any
    more; the host stops the run when it next reads `state.skipped`.

    Args:
        config: of the model.
        optimizer: the present phase's.
        learning_rate: the schedule inside `optimizer`, for the report.
        mesh: with a data axis over which rows are split.
        seed: of dropout; the key of step t is a function of (seed, t).
        micro_batches: parts in which each device takes its rows, one after the other.
        window_steps: steps after which `state.window` starts anew.
        nonfinite_limit: non-finite updates in a row after which training stands still.

    Returns:
        A pure function (state, batch) -> (state, report), not yet compiled. The report holds
        copies of what the host reads now and then, so that the state itself can be donated.
    """
    gradients = _build_gradients(config, mesh, micro_batches)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Report]:
        dropout_key = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, sums = gradients(state.params, batch, dropout_key)
        squares = jnp.stack([jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)])
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

    return step


def _build_gradients(
    config: ModelConfig, mesh: Mesh, micro_batches: int
) -> Callable[[Params, Batch, jax.Array], tuple[Params, dict[str, jax.Array]]]:
    """Builds (params, batch, key) -> (mean gradient, sums), both whole on every device."""

    def loss(params: Params, rows: Batch, key: jax.Array, weights: tuple) -> tuple:
        sums = model.pretraining_sums(model.apply(config, params, rows, dropout_key=key), rows)
        mlm_weight, nsp_weight = weights
        return sums.mlm_loss / mlm_weight + sums.nsp_loss / nsp_weight, sums._asdict()

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(DATA), PartitionSpec()),
        out_specs=PartitionSpec(),
    )
    def gradients(params: Params, batch: Batch, key: jax.Array) -> tuple:
        # The divisors come first: with them, micro-batches and devices only ever add.
        weights = jax.lax.psum(
            (jnp.sum(batch["masked_lm_weights"]), jnp.sum(batch["next_sentence_weights"])), DATA
        )
        weights = jax.tree.map(lambda w: jnp.maximum(w, 1), weights)
        # Without this cast, differentiation would reduce across devices in every micro-batch.
        local, local_key = jax.tree.map(
            lambda x: jax.lax.pcast(x, (DATA,), to="varying"), (params, key)
        )
        take = partial(jax.grad(loss, has_aux=True), local)

        if micro_batches == 1:
            grads, sums = take(batch, local_key, weights)
        else:
            parts = jax.tree.map(
                lambda x: x.reshape(micro_batches, x.shape[0] // micro_batches, *x.shape[1:]),
                batch,
            )
            shapes = jax.eval_shape(
                lambda rows: take(jax.tree.map(lambda x: x[0], rows), local_key, weights), parts
            )
            zeros = jax.tree.map(
                lambda x: jax.lax.pcast(jnp.zeros(x.shape, x.dtype), (DATA,), to="varying"), shapes
            )
            (grads, sums), _ = jax.lax.scan(
                lambda total, rows: (
                    jax.tree.map(jnp.add, total, take(rows, local_key, weights)),
                    None,
                ),
                zeros,
                parts,
            )
        sums = {**sums, "tokens": jnp.sum(batch["input_mask"]).astype(jnp.float32)}
        return jax.lax.psum((grads, sums), DATA)

    return gradients
