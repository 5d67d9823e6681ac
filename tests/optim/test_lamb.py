"""LAMB against an independent twin, optax.lamb, and the cases handed to the project."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_lamb.optim import lamb, path_mask, warmup_polynomial_decay
from tests.trees import assert_trees_close, flat, random_like, run

START = [3.0, 4.0]


def test_equals_numpy_twin_over_bert(twin, bert_params, stacked):
    with jax.enable_x64(True):
        params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), bert_params)
        gradients = [random_like(params, seed) for seed in range(4)]
        mask = path_mask(params)
        schedule = warmup_polynomial_decay(0.01, 2, 4, power=0.5)
        optimizer = lamb(
            schedule,
            weight_decay=0.01,
            mask=mask,
            trust_ratio_mask=mask,
            stacked=stacked,
            clip_norm=1.0,
        )
        trace, _ = run(optimizer, params, gradients, jit=True)
        chosen = {path for path, keep in flat(mask).items() if keep}
        reference = twin.Lamb(
            lambda t: float(schedule(t - 1)),
            weight_decay=0.01,
            decays=chosen,
            adapts=chosen,
            stacked={path: int(path.startswith("layers/")) for path in flat(params)},
            clip_norm=1.0,
        )
        expected = flat(params)
        for gradient, actual in zip(gradients, trace, strict=True):
            expected = reference.step(expected, flat(gradient))
            assert_trees_close(flat(actual), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "arguments",
    [
        (0.01,),
        (0.01, 0.8, 0.99, 1e-5, 1e-8, 0.1),
        (optax.linear_schedule(0.1, 0.0, 5), 0.9, 0.999, 1e-6, 0.0, 0.01, path_mask),
    ],
    ids=["defaults", "positional", "schedule_and_mask"],
)
def test_equals_optax_lamb(arguments, dtype):
    with jax.enable_x64(dtype == "float64"):
        params = {
            "mlp": {"kernel": jnp.zeros([4, 2], dtype), "bias": jnp.zeros(2, dtype)},
            "norm": {"scale": jnp.ones(2, dtype)},
        }
        params["mlp"]["kernel"] = random_like(params, 9)["mlp"]["kernel"]  # the bias has norm 0
        gradients = [random_like(params, seed) for seed in range(3)]
        ours, _ = run(lamb(*arguments), params, gradients)
        theirs, _ = run(optax.lamb(*arguments), params, gradients)
        tolerance = {"float64": 1e-12, "float32": 2e-6}[dtype]
        assert_trees_close(ours[-1], theirs[-1], rtol=tolerance, atol=tolerance)


def test_positional_signature_is_that_of_optax_lamb():
    ours = list(inspect.signature(lamb).parameters.values())
    theirs = list(inspect.signature(optax.lamb).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [
        (p.name, p.default) for p in theirs
    ]
    assert all(p.kind is p.KEYWORD_ONLY for p in ours[len(theirs) :])


# Cases of the fault list.


def test_p50_schedule_counts_updates_not_micro_steps():
    """8 micro-steps with k = 4 are 2 updates, with the rates and parameters of a big batch."""
    schedule = warmup_polynomial_decay(0.02, 2, 4)
    optimizer = lamb(schedule, weight_decay=0.01, clip_norm=1.0)
    micro = [random_like(jnp.zeros(2), seed) for seed in range(8)]
    accumulated, state = run(optax.MultiSteps(optimizer, 4), jnp.array(START), micro, jit=True)
    big, _ = run(optimizer, jnp.array(START), [sum(micro[:4]) / 4, sum(micro[4:]) / 4])
    assert int(state.gradient_step) == 2
    counts = optax.tree.get_all_with_path(state.inner_opt_state, "count")
    assert [int(count) for _, count in counts] == [2, 2]
    np.testing.assert_allclose(accumulated[-1], big[-1], rtol=1e-6)


def test_p54_stacked_layers_equal_a_list_of_layers(bert_params):
    mlp, norm = bert_params["layers"]["mlp"], bert_params["layers"]["mlp_norm"]
    layers = jax.tree.map(jnp.asarray, {"up": mlp["up"], "norm": norm})
    gradient = random_like(layers, 1)

    def unstack(tree):
        leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
        return [structure.unflatten(layer) for layer in zip(*leaves, strict=True)]

    options = {"weight_decay": 0.01, "clip_norm": 1.0, "mask": path_mask}
    options["trust_ratio_mask"] = path_mask
    (scanned,), _ = run(lamb(0.01, stacked=1, **options), layers, [gradient], jit=True)
    (unrolled,), _ = run(lamb(0.01, **options), unstack(layers), [unstack(gradient)])
    assert_trees_close(unstack(scanned), unrolled, rtol=1e-6, atol=1e-6)

    (naive,), _ = run(lamb(0.01, **options), layers, [gradient], jit=True)
    with pytest.raises(AssertionError):
        assert_trees_close(unstack(naive), unrolled, rtol=1e-6, atol=1e-6)


def test_p57_every_leaf_changes_after_one_update(bert_params, stacked):
    params = jax.tree.map(jnp.asarray, bert_params)
    optimizer = lamb(
        0.01,
        weight_decay=0.01,
        mask=path_mask,
        trust_ratio_mask=path_mask,
        stacked=stacked,
        clip_norm=1.0,
    )
    (after,), _ = run(optimizer, params, [random_like(params, 1)], jit=True)
    unmoved = [
        path
        for path, before in flat(params).items()
        if np.any(np.asarray(before) == np.asarray(flat(after)[path]))
    ]
    assert unmoved == []
