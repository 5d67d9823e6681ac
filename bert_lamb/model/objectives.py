"""What training minimizes, task by task: a model, its losses as sums, and what people see of them.

A loss is a sum over the global batch, divided once by its global weight. So is every accuracy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bert_lamb.config import ModelConfig
from bert_lamb.model.bert import Batch
from bert_lamb.model.functional import Params, init
from bert_lamb.model.heads import (
    BertForPreTraining,
    BertForQuestionAnswering,
    Maker,
    sequence_classifier,
)
from bert_lamb.model.losses import class_sums, pretraining_sums, score_sums, span_sums

Sums = dict[str, jax.Array]


@dataclass(frozen=True)
class Objective:
    """What a step minimizes and reports.

    Attributes:
        config: the shape of the model.
        make: the class of the model.
        sums: from the model's output and the batch to sums over the rows, float32 [] each.
        weights: from the batch alone to the sums that losses are divided by.
        means: for each figure that is reported, the names of a sum and of the weight under it.
        losses: names of the figures whose total is minimized.
        shown: how a figure is shown beside the loss, and its name.
    """

    config: ModelConfig
    make: Maker
    sums: Callable[[Any, Batch], Sums]
    weights: Callable[[Batch], Sums]
    means: Mapping[str, tuple[str, str]]
    losses: tuple[str, ...]
    shown: tuple[str, str]

    def init(self, key: jax.Array) -> Params:
        """Draws the model's parameters, see `bert_lamb.model.init`."""
        return init(self.config, key, self.make)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sums."""
        return tuple(dict.fromkeys(name for pair in self.means.values() for name in pair))

    def loss(self, sums: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        """Returns the total of the losses; `weights` are at least 1."""
        pairs = (self.means[name] for name in self.losses)
        return sum(sums[total] / weights[weight] for total, weight in pairs)

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Returns the loss and every mean; 0 where nothing weighs."""
        means = {name: sums[a] / max(sums[b], 1) for name, (a, b) in self.means.items()}
        return {"loss": sum(means[name] for name in self.losses), **means}


def pretraining(config: ModelConfig) -> Objective:
    """Masked language model and next sentence prediction (Devlin et al., section 3.1)."""
    return Objective(
        config,
        BertForPreTraining,
        lambda output, batch: pretraining_sums(output, batch)._asdict(),
        lambda batch: {
            "mlm_weight": jnp.sum(batch["masked_lm_weights"]),
            "nsp_weight": jnp.sum(batch["next_sentence_weights"]),
        },
        {
            "mlm_loss": ("mlm_loss", "mlm_weight"),
            "mlm_accuracy": ("mlm_correct", "mlm_weight"),
            "nsp_loss": ("nsp_loss", "nsp_weight"),
            "nsp_accuracy": ("nsp_correct", "nsp_weight"),
        },
        ("mlm_loss", "nsp_loss"),
        ("MLM {:.1%}", "mlm_accuracy"),
    )


def question_answering(config: ModelConfig) -> Objective:
    """First and last token of the answer (Devlin et al., section 4.2).

    The batch has start and end int32 [B] and weight float32 [B], 0 for rows that fill it up.
    """
    return Objective(
        config,
        BertForQuestionAnswering,
        lambda output, batch: span_sums(output, batch)._asdict(),
        _row_weights,
        {"span_loss": ("loss", "weight"), "exact_spans": ("correct", "weight")},
        ("span_loss",),
        ("exact {:.1%}", "exact_spans"),
    )


def classification(config: ModelConfig, classes: int) -> Objective:
    """One of C classes for a row (Devlin et al., section 4.1).

    The batch has label int32 [B] and weight float32 [B].
    """
    return Objective(
        config,
        sequence_classifier(classes),
        lambda logits, batch: class_sums(logits, batch)._asdict(),
        _row_weights,
        {"class_loss": ("loss", "weight"), "accuracy": ("correct", "weight")},
        ("class_loss",),
        ("accuracy {:.1%}", "accuracy"),
    )


def regression(config: ModelConfig) -> Objective:
    """A number for a row, by its squared error. The batch has label and weight float32 [B]."""
    return Objective(
        config,
        sequence_classifier(1),
        lambda logits, batch: score_sums(logits, batch)._asdict(),
        _row_weights,
        {"squared_error": ("loss", "weight"), "absolute_error": ("absolute", "weight")},
        ("squared_error",),
        ("off by {:.2f}", "absolute_error"),
    )


def _row_weights(batch: Batch) -> Sums:
    return {"weight": jnp.sum(batch["weight"])}
