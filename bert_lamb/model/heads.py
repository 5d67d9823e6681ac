"""What stands on the encoder: the heads of pretraining, of answers to questions, and of classes.

The letters of shapes are those of `bert_lamb.model.bert`; C counts classes.

References:
    Devlin et al., BERT, https://arxiv.org/abs/1810.04805, sections 3.1, 4.1 and 4.2.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from bert_lamb.config import ModelConfig
from bert_lamb.model.bert import Batch, Bert, LayerHook, padded_vocab
from bert_lamb.model.dropout import Noise, dropout
from bert_lamb.model.layers import Dense, LayerNorm, decode, gelu

# Logit of ids that do not exist. exp(it - max) is exactly 0 in float32, so such an id takes no
# probability, and it survives a cast to bfloat16 as a finite number.
NO_SUCH_TOKEN = -1e9

# The place of dropout on the pooled token. Places of layers count upwards from the encoder's first.
POOLED = 2**20


# A class of models: makes one from a ModelConfig and, by keyword, rngs.
Maker = Callable[..., Bert]


class PretrainingOutput(NamedTuple):
    """Logits of the two pretraining tasks.

    Attributes:
        mlm_logits: float32 [B, P, V]; columns of padded vocabulary ids hold `NO_SUCH_TOKEN`.
        nsp_logits: float32 [B, 2]; column 0 says that the second segment follows the first.
    """

    mlm_logits: jax.Array
    nsp_logits: jax.Array


class SpanOutput(NamedTuple):
    """Logits of the first and the last token of an answer, float32 [B, T] each."""

    start_logits: jax.Array
    end_logits: jax.Array


class MlmHead(nnx.Module):
    """The part of the masked language model that is not shared with the word table."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D = config.hidden_size
        self.transform = Dense(config, (D,), (D,), rngs)
        self.norm = LayerNorm(config)
        self.bias = nnx.Param(jnp.zeros((padded_vocab(config),), jnp.float32))
        self.config = config

    def __call__(self, x: jax.Array, table: jax.Array) -> jax.Array:
        """Maps x [B, P, D] to float32 logits [B, P, V] over the rows of `table` [V, D]."""
        x = self.norm(gelu(self.transform(x), self.config.activation))
        logits = decode(x, table.astype(x.dtype)) + self.bias[...]
        if table.shape[0] == self.config.vocab_size:
            return logits
        # The select, unlike a very negative bias, cuts the gradient off: whatever a loss does with
        # the logits, the padded rows of table and bias receive exactly 0.
        exists = jnp.arange(table.shape[0]) < self.config.vocab_size
        return jnp.where(exists, logits, NO_SUCH_TOKEN)


class Pooler(Dense):
    """The first token of a row through a layer and tanh."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        super().__init__(config, (config.hidden_size,), (config.hidden_size,), rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps a sequence [B, T, D] to [B, D]."""
        return jnp.tanh(super().__call__(x[:, 0]))


class BertModel(Bert):
    """The encoder with its pooler."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.pooler = Pooler(config, rngs)

    def __call__(
        self, batch: Batch, noise: Noise | None = None, hook: LayerHook | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the sequence [B, T, D] and its pooled first token [B, D]."""
        sequence = self.encode(batch, noise, hook)
        return sequence, self.pooler(sequence)


class BertForPreTraining(Bert):
    """The encoder with the heads of the two pretraining tasks."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.pooler = Pooler(config, rngs)
        self.mlm = MlmHead(config, rngs)
        self.nsp = Dense(config, (config.hidden_size,), (2,), rngs)

    def __call__(
        self, batch: Batch, noise: Noise | None = None, hook: LayerHook | None = None
    ) -> PretrainingOutput:
        """Computes the logits of both tasks; masked_lm_positions of the batch is int32 [B, P]."""
        sequence = self.encode(batch, noise, hook)
        index = batch["masked_lm_positions"][:, :, None]
        predicted = jnp.take_along_axis(sequence, index, axis=1, mode="clip")
        mlm_logits = self.mlm(predicted, self.embeddings.word.embedding[...])
        nsp_logits = self.nsp(self.pooler(sequence)).astype(jnp.float32)
        return PretrainingOutput(mlm_logits, nsp_logits)


class BertForQuestionAnswering(Bert):
    """The encoder with a start and an end logit for each token (Devlin et al., section 4.2)."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.span = Dense(config, (config.hidden_size,), (2,), rngs)

    def __call__(
        self, batch: Batch, noise: Noise | None = None, hook: LayerHook | None = None
    ) -> SpanOutput:
        """Computes the logits, also at padding: as in the published code, they are learned too."""
        logits = self.span(self.encode(batch, noise, hook)).astype(jnp.float32)
        return SpanOutput(logits[..., 0], logits[..., 1])


class BertForSequenceClassification(Bert):
    """The encoder with its pooler and C outputs for each row (Devlin et al., section 4.1).

    C is 1 for a regression.
    """

    def __init__(self, config: ModelConfig, *, classes: int, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.pooler = Pooler(config, rngs)
        self.classifier = Dense(config, (config.hidden_size,), (classes,), rngs)

    def __call__(
        self, batch: Batch, noise: Noise | None = None, hook: LayerHook | None = None
    ) -> jax.Array:
        """Computes float32 logits [B, C]."""
        pooled = self.pooler(self.encode(batch, noise, hook))
        pooled = dropout(pooled, self.config.hidden_dropout, noise and noise.at(POOLED))
        return self.classifier(pooled).astype(jnp.float32)


@cache
def sequence_classifier(classes: int) -> Maker:
    """Returns what makes classifiers of so many classes; the same object each time."""
    return partial(BertForSequenceClassification, classes=classes)
