"""Heads of fine-tuning against Hugging Face's in PyTorch, and what they share with pretraining."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.config import PRESETS, ModelConfig
from bert_lamb.model import (
    BertForQuestionAnswering,
    apply,
    classification,
    count_params,
    init,
    parameter_axes,
    question_answering,
    regression,
    sequence_classifier,
    stacked_axes,
)
from tests.quick import jit

CONFIG = ModelConfig(vocab_size=300, scan_layers=True, **PRESETS["tiny"])
B, T = 4, 48


@pytest.fixture
def rows(make_batch):
    made = make_batch(CONFIG, B=B, T=T, P=3)
    rng = np.random.default_rng(5)
    return {name: made[name] for name in ("input_ids", "input_mask", "segment_ids", "row")} | {
        "start": jnp.asarray(rng.integers(0, 20, B), jnp.int32),
        "end": jnp.asarray(rng.integers(0, 20, B), jnp.int32),
        "weight": jnp.ones(B, jnp.float32),
    }


def mean_loss(objective, params, batch):
    sums = objective.sums(apply(objective.config, params, batch, make=objective.make), batch)
    weights = jax.tree.map(lambda w: jnp.maximum(w, 1), objective.weights(batch))
    return objective.loss(sums, weights)


def heads():
    span = ("BertForQuestionAnswering", {}, question_answering(CONFIG), ("start", "end"))
    three = ("BertForSequenceClassification", {"num_labels": 3}, classification(CONFIG, 3), "label")
    score = ("BertForSequenceClassification", {"num_labels": 1}, regression(CONFIG), "label")
    return [span, three, score]


@pytest.mark.parametrize("head", heads(), ids=["span", "classes", "regression"])
def test_losses_and_gradients_equal_the_reference(rows, head):
    torch = pytest.importorskip("torch", reason="the reference: [parity] extra")
    pytest.importorskip("transformers", reason="the reference: [parity] extra")
    from tests.reference import hf_bert_weights

    kind, more, objective, labels = head
    model = hf_bert_weights.reference_model(CONFIG, 3, kind, **more)
    as_tree = lambda tensors: hf_bert_weights.as_params(  # noqa: E731
        {name: tensor.detach().numpy() for name, tensor in tensors}, CONFIG
    )
    params = as_tree(model.named_parameters())
    batch, given = dict(rows), {}
    if labels == "label":
        values = np.array([0.5, 2.0, 4.5, 1.0], np.float32) if more["num_labels"] == 1 else (
            np.array([0, 2, 1, 1], np.int32))  # fmt: skip
        batch["label"] = jnp.asarray(values)
        given = {"labels": torch.tensor(values) if values.dtype == np.float32
                 else torch.tensor(values).long()}  # fmt: skip
    else:
        given = {f"{name}_positions": torch.tensor(np.array(rows[name])).long() for name in labels}
    expected = model(
        input_ids=torch.tensor(np.array(rows["input_ids"])).long(),
        attention_mask=torch.tensor(np.array(rows["input_mask"])),
        token_type_ids=torch.tensor(np.array(rows["segment_ids"])).long(),
        **given,
    ).loss
    expected.backward()
    expected_gradients = as_tree((n, p.grad) for n, p in model.named_parameters())
    with jax.default_matmul_precision("highest"):
        loss, gradients = jax.jit(jax.value_and_grad(lambda p: mean_loss(objective, p, batch)))(
            params
        )
    # PyTorch holds the row of [PAD] still. With a loss over all positions, it would learn, too.
    table = gradients["embeddings"]["word"]
    table["embedding"] = table["embedding"].at[0].set(0)
    assert abs(float(loss) - float(expected.detach())) <= 1e-5
    leaves = jax.tree_util.tree_leaves_with_path(gradients)
    for (path, ours), theirs in zip(leaves, jax.tree.leaves(expected_gradients), strict=True):
        error, scale = np.max(np.abs(np.asarray(ours) - theirs)), np.max(np.abs(theirs))
        assert error <= 1e-4 * scale + 1e-7, f"{jax.tree_util.keystr(path)}: {error} of {scale}"


def test_rows_of_weight_0_change_neither_loss_nor_gradient(rows):
    small = dataclasses.replace(CONFIG, num_layers=1, hidden_size=16, num_heads=2)
    for objective in (question_answering(small), classification(small, 3)):
        params = objective.init(jax.random.key(0))
        batch = rows | {"label": jnp.arange(B, dtype=jnp.int32) % 3}
        few = {name: value[: B - 1] for name, value in batch.items()}
        batch["weight"] = batch["weight"].at[-1].set(0)
        full = jit(jax.value_and_grad(lambda p, o=objective, b=batch: mean_loss(o, p, b)))
        less = jit(jax.value_and_grad(lambda p, o=objective, b=few: mean_loss(o, p, b)))
        for a, b in zip(jax.tree.leaves(full(params)), jax.tree.leaves(less(params)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_exact_spans_count_rows_whose_both_ends_are_right():
    objective = question_answering(CONFIG)
    logits = jnp.zeros((3, 8)).at[:, 2].set(5)
    output = type("Output", (), {"start_logits": logits, "end_logits": logits})
    batch = {
        "start": jnp.array([2, 2, 1]), "end": jnp.array([2, 3, 2]), "weight": jnp.ones(3)
    }  # fmt: skip
    sums = {name: float(value) for name, value in objective.sums(output, batch).items()}
    assert objective.figures(sums)["exact_spans"] == pytest.approx(1 / 3)


def test_the_encoder_is_drawn_alike_under_every_head():
    pretraining = init(CONFIG, jax.random.key(1))
    for make in (BertForQuestionAnswering, sequence_classifier(4)):
        tuned = init(CONFIG, jax.random.key(1), make)
        for part in ("embeddings", "layers"):
            jax.tree.map(np.testing.assert_array_equal, tuned[part], pretraining[part])
        assert jax.tree.structure(parameter_axes(tuned), is_leaf=lambda x: isinstance(x, tuple))
        assert set(jax.tree.leaves(stacked_axes(tuned)["layers"])) == {1}


def test_parameters_of_heads_are_counted():
    encoder = count_params(CONFIG, BertForQuestionAnswering) - (128 * 2 + 2)
    pooler = 128 * 128 + 128
    assert count_params(CONFIG, sequence_classifier(3)) == encoder + pooler + 128 * 3 + 3
    assert count_params(CONFIG) == encoder + pooler + (128 * 128 + 3 * 128 + 300) + 128 * 2 + 2
