"""Size and arithmetic of the model, from its config alone."""

import math

import jax

from bert_lamb.config import ModelConfig
from bert_lamb.model.bert import padded_vocab
from bert_lamb.model.functional import init


def count_params(config: ModelConfig) -> int:
    """Counts trainable numbers, without the vocabulary's padding.

    Padded rows never leave zero, so the count is that of the published model: 110,106,428 for
    BERT-base with 30,522 ids.
    """
    shapes = jax.eval_shape(lambda: init(config, jax.random.key(0)))
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    # A padded id owns a row of the word table and one output bias.
    return total - (padded_vocab(config) - config.vocab_size) * (config.hidden_size + 1)


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
    D, F, V, L = (
        config.hidden_size,
        config.intermediate_size,
        config.vocab_size,
        config.num_layers,
    )
    layer = 8 * T * D**2 + 4 * T**2 * D + 4 * T * D * F
    heads = 2 * P * D**2 + 2 * P * D * V + 2 * D**2 + 4 * D
    return 3 * (L * layer + heads)
