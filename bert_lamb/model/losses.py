"""Losses and accuracies as sums with their weights, never as means.

Sums add over micro-batches, devices and hosts; the mean is taken once, over the global weight.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_lamb.model.heads import PretrainingOutput, SpanOutput


class PretrainingSums(NamedTuple):
    """Sums over a batch, float32 scalars; each is additive over batches.

    Attributes:
        mlm_loss: weighted cross entropy of the masked language model, in nats.
        mlm_weight: weight of its predictions (their number, for weights 0 and 1).
        nsp_loss: weighted cross entropy of next sentence prediction, in nats.
        nsp_weight: weight of the rows.
        mlm_correct: weight of predictions whose largest logit is that of the label.
        nsp_correct: weight of rows classified right.
    """

    mlm_loss: jax.Array
    mlm_weight: jax.Array
    nsp_loss: jax.Array
    nsp_weight: jax.Array
    mlm_correct: jax.Array
    nsp_correct: jax.Array


def pretraining_sums(output: PretrainingOutput, batch: Mapping[str, jax.Array]) -> PretrainingSums:
    """Sums the losses of both tasks over a batch.

    Args:
        output: logits of the model.
        batch: masked_lm_ids int32 [B, P], masked_lm_weights float32 [B, P],
            next_sentence_labels int32 [B], next_sentence_weights float32 [B]. Entries of weight 0
            add nothing, whatever their id.

    Returns:
        `PretrainingSums`; all zero if all weights are, so divide by max(weight, 1).

    References:
        Devlin et al., https://arxiv.org/abs/1810.04805, section 3.1.
    """
    mlm = _weighted_sums(output.mlm_logits, batch["masked_lm_ids"], batch["masked_lm_weights"])
    nsp = _weighted_sums(
        output.nsp_logits, batch["next_sentence_labels"], batch["next_sentence_weights"]
    )
    return PretrainingSums(mlm[0], mlm[1], nsp[0], nsp[1], mlm[2], nsp[2])


class RowSums(NamedTuple):
    """Sums over the rows of a batch, float32 scalars.

    Attributes:
        loss: weighted cross entropy in nats.
        weight: of the rows.
        correct: weight of the rows that are right.
    """

    loss: jax.Array
    weight: jax.Array
    correct: jax.Array


def span_sums(output: SpanOutput, batch: Mapping[str, jax.Array]) -> RowSums:
    """Sums the mean of the cross entropies of an answer's first and last token.

    Args:
        output: logits of the model.
        batch: start and end int32 [B], weight float32 [B]. Rows of weight 0 add nothing.

    Returns:
        `RowSums`; a row is right if both tokens are.

    References:
        Devlin et al., https://arxiv.org/abs/1810.04805, section 4.2.
    """
    weight = batch["weight"]
    pairs = ((output.start_logits, batch["start"]), (output.end_logits, batch["end"]))
    loss = sum(cross_entropy(logits, labels) for logits, labels in pairs) / 2
    right = [_label_logits(x, labels) >= jnp.max(x, axis=-1) for x, labels in pairs]
    correct = jnp.sum(weight * (right[0] & right[1]))
    return RowSums(jnp.sum(weight * loss), jnp.sum(weight), correct)


def class_sums(logits: jax.Array, batch: Mapping[str, jax.Array]) -> RowSums:
    """Sums the cross entropy of classes.

    Args:
        logits: float32 [B, C].
        batch: label int32 [B], weight float32 [B].
    """
    return RowSums(*_weighted_sums(logits, batch["label"], batch["weight"]))


class ScoreSums(NamedTuple):
    """Sums over the rows of a regression, float32 scalars: squared and absolute errors."""

    loss: jax.Array
    weight: jax.Array
    absolute: jax.Array


def score_sums(logits: jax.Array, batch: Mapping[str, jax.Array]) -> ScoreSums:
    """Sums the errors of predicted numbers, float32 [B, 1]; label and weight are float32 [B]."""
    error, weight = logits[:, 0] - batch["label"], batch["weight"]
    absolute = jnp.sum(weight * jnp.abs(error))
    return ScoreSums(jnp.sum(weight * error**2), jnp.sum(weight), absolute)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns -log softmax(logits)[label] in nats, float32.

    Args:
        logits: float32 [..., V].
        labels: int32 [...]; a label outside of [0, V) gives a finite value without meaning.
    """
    return jax.nn.logsumexp(logits, axis=-1) - _label_logits(logits, labels)


def _label_logits(logits: jax.Array, labels: jax.Array) -> jax.Array:
    # A comparison in place of a lookup: its gradient is elementwise instead of a scatter, and it
    # also works if the vocabulary axis is sharded.
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    return jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)


def _weighted_sums(
    logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the weighted sums of loss, 1 and correctness."""
    loss = jnp.sum(weights * cross_entropy(logits, labels))
    # No logit is larger. The maximum is there already, for the loss; argmax is a pass of its own.
    largest = _label_logits(logits, labels) >= jnp.max(logits, axis=-1)
    correct = jnp.sum(weights * largest)
    return loss, jnp.sum(weights), correct
