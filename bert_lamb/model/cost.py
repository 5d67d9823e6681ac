"""Size and arithmetic of the model, from its config alone."""

import math

import jax

from bert_lamb.config import ModelConfig
from bert_lamb.model.axes import Axes, parameter_axes
from bert_lamb.model.bert import padded_vocab
from bert_lamb.model.functional import Params, init
from bert_lamb.model.heads import BertForPreTraining, Maker


def count_params(config: ModelConfig, make: Maker = BertForPreTraining) -> int:
    """Counts trainable numbers, without the vocabulary's padding.

    Padded rows never leave zero, so the count is that of the published model: 110,106,428 for
    BERT-base with 30,522 ids.
    """
    shapes = jax.eval_shape(lambda: init(config, jax.random.key(0), make))
    named = zip(jax.tree.leaves(shapes), _axes_of(shapes), strict=True)
    return sum(
        math.prod(
            config.vocab_size if name == "vocab" else size
            for name, size in zip(axes, leaf.shape, strict=True)
        )
        for leaf, axes in named
    )


def _axes_of(shapes: Params) -> list[Axes]:
    return jax.tree.leaves(parameter_axes(shapes), is_leaf=lambda x: isinstance(x, tuple))


def flops_per_row(config: ModelConfig, T: int, P: int) -> int:
    """Counts the floating-point operations of forward and backward pass of one row.

    Matrix products only, 2 m n k each; the backward pass takes two for each one forward:

        3 * (L * (8 T D^2 + 4 T^2 D + 4 T D F)    projections, scores and values, feed-forward
             + 2 P D^2 + 2 P D V                  masked language model at P positions
             + 2 D^2 + 4 D)                       pooler, next sentence

    These are the model's operations: recomputation (remat), padded vocabulary rows and lookups
    written as products do not count, tokens that are padding do.

    Args:
        config: the shape of the model, with its true vocabulary V.
        T: tokens in the row.
        P: predicted positions in the row.

    Raises:
        ValueError: if config.vocab_size is 0.
    """
    padded_vocab(config)  # the vocabulary has to be known
    D, V = config.hidden_size, config.vocab_size
    return encoder_flops(config, T) + 3 * (2 * P * D**2 + 2 * P * D * V + 2 * D**2 + 4 * D)


def encoder_flops(config: ModelConfig, T: int) -> int:
    """Counts, as `flops_per_row` does, the operations of the encoder for a row of T tokens."""
    D, F = config.hidden_size, config.intermediate_size
    return 3 * config.num_layers * (8 * T * D**2 + 4 * T**2 * D + 4 * T * D * F)
