"""Losses as sums with weights, against NumPy in float64, and their degenerate cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.model import PretrainingOutput, pretraining_sums
from bert_lamb.model.losses import cross_entropy
from tests.quick import jit

B, P, V = 5, 8, 11


def case(n):
    """Logits and a batch in which n of the B * P predictions have weight 1."""
    rng = np.random.default_rng(n)
    weights = (rng.permutation(B * P) < n).reshape(B, P)
    batch = {
        "masked_lm_ids": np.where(weights, rng.integers(0, V, (B, P)), 0).astype(np.int32),
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, B).astype(np.int32),
        "next_sentence_weights": np.asarray((n and [1, 1, 0, 1, 1]) or [0] * B, np.float32),
    }
    mlm, nsp = rng.normal(size=(B, P, V)), rng.normal(size=(B, 2))
    output = PretrainingOutput(jnp.asarray(mlm, jnp.float32), jnp.asarray(nsp, jnp.float32))
    return output, jax.tree.map(jnp.asarray, batch)


def reference(logits, labels, weights):
    logits = np.asarray(logits, np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -np.take_along_axis(log_probabilities, np.asarray(labels)[..., None], -1)[..., 0]
    return (weights * loss).sum(), (weights * (logits.argmax(-1) == labels)).sum()


@pytest.mark.parametrize("n", [0, 37])
def test_p64_no_prediction_and_many(n):
    output, batch = case(n)

    def mlm_loss(output):
        sums = pretraining_sums(output, batch)
        return sums.mlm_loss, sums

    gradients, actual = jit(jax.grad(mlm_loss, has_aux=True))(output)
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    loss, correct = reference(output.mlm_logits, labels, weights)
    np.testing.assert_allclose(actual.mlm_loss, loss, rtol=1e-6)
    assert (actual.mlm_correct, actual.mlm_weight) == (correct, n)
    labels, weights = batch["next_sentence_labels"], batch["next_sentence_weights"]
    loss, correct = reference(output.nsp_logits, labels, weights)
    np.testing.assert_allclose(actual.nsp_loss, loss, rtol=1e-6)
    assert (actual.nsp_correct, actual.nsp_weight) == (correct, 4 if n else 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert not gradients.mlm_logits[batch["masked_lm_weights"] == 0].any()
    assert {leaf.dtype for leaf in actual} == {jnp.dtype("float32")}


def test_p26_sums_of_parts_are_the_sum_of_the_whole():
    output, batch = case(37)
    sums = jit(pretraining_sums)
    whole = sums(output, batch)
    parts = [
        sums(PretrainingOutput(*(x[rows] for x in output)), {k: v[rows] for k, v in batch.items()})
        for rows in (slice(0, 2), slice(2, 3), slice(3, 5))
    ]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-6)


def test_gradient_is_softmax_minus_label_even_where_logits_are_extreme():
    logits = jnp.asarray([[0.0, 1.0, 2.0], [1e4, -1e4, 0.0], [-1e9, 3.0, -1e9]])
    labels = jnp.asarray([2, 1, 1])
    value, gradient = jax.value_and_grad(lambda x: cross_entropy(x, labels).sum())(logits)
    assert np.isfinite(value)
    expected = jax.nn.softmax(logits) - jax.nn.one_hot(labels, 3)
    np.testing.assert_allclose(gradient, expected, atol=1e-7)
    assert np.isfinite(cross_entropy(logits, jnp.asarray([7, -1, 3]))).all()
