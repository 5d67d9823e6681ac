"""The encoder of BERT, as published.

The letters of shapes: B rows, T tokens, D width, F feed-forward width, N heads, H head size,
V vocabulary (padded to a multiple of `vocab_multiple`), L layers, P predictions per row.

Layers are stored stacked, every tensor of the encoder with a leading axis L, whether they are
computed by a scan or unrolled: a checkpoint does not depend on that choice.

References:
    Devlin et al., BERT, https://arxiv.org/abs/1810.04805, section 3 and appendix A.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from bert_lamb.config import ModelConfig
from bert_lamb.model.attention import attention
from bert_lamb.model.dropout import Noise, dropout
from bert_lamb.model.layers import Dense, LayerNorm, Projection, gelu, lookup

Batch = Mapping[str, jax.Array]

# Places of dropout. Layer l folds in FIRST_LAYER + l, then its own sites.
EMBEDDINGS, FIRST_LAYER = 0, 1
ATTENTION_PROBABILITIES, ATTENTION_OUTPUT, MLP_OUTPUT = 0, 1, 2


class LayerHook(NamedTuple):
    """What a layer does to its own parameters before it uses them.

    Attributes:
        prepare: from the parameters of one layer to those it computes with.
        repeat: whether the backward pass prepares them again instead of keeping them.
    """

    prepare: Callable[[Any], Any]
    repeat: bool


def padded_vocab(config: ModelConfig) -> int:
    """Returns the rows of the token table, vocab_size rounded up to a multiple.

    Raises:
        ValueError: if the vocabulary is not known yet (vocab_size 0).
    """
    if config.vocab_size < 1:
        raise ValueError(
            f"model.vocab_size = {config.vocab_size}: expected at least 1; the records' manifest "
            "has to fill it in before the model is built"
        )
    return -(-config.vocab_size // config.vocab_multiple) * config.vocab_multiple


class Embedding(nnx.Module):
    """A table of float32 rows; those from `used` on are padding and zero.

    Attributes:
        embedding: float32 [rows, D].
    """

    def __init__(self, config: ModelConfig, rows: int, used: int, rngs: nnx.Rngs):
        initializer = nnx.initializers.truncated_normal(config.init_stddev)
        table = initializer(rngs.params(), (used, config.hidden_size), jnp.float32)
        self.embedding = nnx.Param(jnp.pad(table, ((0, rows - used), (0, 0))))


class Embeddings(nnx.Module):
    """Sum of word, position and segment embeddings, normalized."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        positions, segments = config.max_positions, config.type_vocab_size
        self.word = Embedding(config, padded_vocab(config), config.vocab_size, rngs)
        self.position = Embedding(config, positions, positions, rngs)
        self.segment = Embedding(config, segments, segments, rngs)
        self.norm = LayerNorm(config)
        self.config = config

    def __call__(
        self, input_ids: jax.Array, segment_ids: jax.Array, noise: Noise | None
    ) -> jax.Array:
        """Embeds int32 [B, T] ids and segments as [B, T, D] in the compute dtype.

        Raises:
            ValueError: if T exceeds the position table.
        """
        T = input_ids.shape[1]
        if self.config.max_positions < T:
            raise ValueError(
                f"{T} tokens in a row, but max_positions = {self.config.max_positions}"
            )
        dtype = jnp.dtype(self.config.dtype)
        word = lookup(self.word.embedding[...].astype(dtype), input_ids)
        position = self.position.embedding[:T].astype(dtype)
        # A product, since the gradient of a lookup would add B * T rows into two, one by one.
        segment = jnp.einsum(
            "BTS,SD->BTD",
            jax.nn.one_hot(segment_ids, self.config.type_vocab_size, dtype=dtype),
            self.segment.embedding[...].astype(dtype),
            precision=jax.lax.Precision.HIGHEST,
        )
        word, position, segment = (x.astype(jnp.float32) for x in (word, position, segment))
        x = self.norm(word + position + segment)
        return dropout(x.astype(self.config.dtype), self.config.hidden_dropout, noise)


class Attention(nnx.Module):
    """Multi-head self-attention with separate query, key and value projections.

    All four kernels are [N * H, D], heads first: on TPU the gradients of the projections come out
    with D innermost, and a device's part of them (fsdp) has to be whole rows.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, N = config.hidden_size, config.num_heads
        self.heads = (N, D // N)
        self.query = Projection(config, self.heads, rngs)
        self.key = Projection(config, self.heads, rngs)
        self.value = Projection(config, self.heads, rngs)
        self.out = Dense(config, (D,), (D,), rngs)
        self.dropout_rate = config.attention_dropout
        self.form = config.attention

    def __call__(self, x: jax.Array, mask: jax.Array, noise: Noise | None) -> jax.Array:
        """Maps x [B, T, D] to [B, T, D]; mask is bool [B, T], True at tokens."""
        y = attention(
            self.query(x),
            self.key(x),
            self.value(x),
            mask,
            form=self.form,
            dropout_rate=self.dropout_rate,
            noise=noise,
        )
        kernel = self.out.kernel[...].reshape(*self.heads, -1)
        y = jnp.einsum("BNTH,NHD->BTD", y, kernel.astype(x.dtype))
        return y + self.out.bias[...].astype(x.dtype)


class Mlp(nnx.Module):
    """Position-wise feed-forward network D -> F -> D."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, F = config.hidden_size, config.intermediate_size
        self.up = Dense(config, (D,), (F,), rngs)
        self.down = Dense(config, (F,), (D,), rngs)
        self.activation = config.activation

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [..., D] to [..., D]."""
        return self.down(gelu(self.up(x), self.activation))


class Block(nnx.Module):
    """One encoder layer; each half is normalized after its residual sum (post-LayerNorm)."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        self.attention = Attention(config, rngs)
        self.attention_norm = LayerNorm(config)
        self.mlp = Mlp(config, rngs)
        self.mlp_norm = LayerNorm(config)
        self.dropout_rate = config.hidden_dropout

    def __call__(self, x: jax.Array, mask: jax.Array, noise: Noise | None) -> jax.Array:
        """Maps x [B, T, D] to [B, T, D]; mask is bool [B, T], True at tokens."""

        def site(number: int) -> Noise | None:
            return noise and noise.at(number)

        y = self.attention(x, mask, site(ATTENTION_PROBABILITIES))
        x = self.attention_norm(x + dropout(y, self.dropout_rate, site(ATTENTION_OUTPUT)))
        y = self.mlp(x)
        return self.mlp_norm(x + dropout(y, self.dropout_rate, site(MLP_OUTPUT)))


class Bert(nnx.Module):
    """Embeddings and L encoder layers, on which heads are put.

    Raises:
        ValueError: if config.vocab_size is 0.
    """

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        self.embeddings = Embeddings(config, rngs)
        keys = jax.random.split(rngs.params(), config.num_layers)
        self.layers = jax.vmap(lambda key: Block(config, nnx.Rngs(params=key)))(keys)
        self.config = config

    def encode(
        self, batch: Batch, noise: Noise | None = None, hook: LayerHook | None = None
    ) -> jax.Array:
        """Encodes rows of tokens.

        Args:
            batch: int32 arrays input_ids, input_mask (0 at padding), segment_ids [B, T].
            noise: the source of dropout; None switches it off.
            hook: what each layer does to its parameters first; None for nothing.

        Returns:
            The sequence [B, T, D] in the compute dtype.
        """
        at_embeddings = noise and noise.at(EMBEDDINGS)
        x = self.embeddings(batch["input_ids"], batch["segment_ids"], at_embeddings)
        return self._run_layers(x, batch["input_mask"] > 0, noise, hook)

    def _run_layers(
        self, x: jax.Array, mask: jax.Array, noise: Noise | None, hook: LayerHook | None
    ) -> jax.Array:
        L = self.config.num_layers

        def run(x: jax.Array, layer: Block, number: int | jax.Array) -> jax.Array:
            layer = hook.prepare(layer) if hook else layer
            return layer(x, mask, noise and noise.at(number))

        run = _rematerialized(run, self.config, regather=hook is not None and hook.repeat)
        if self.config.scan_layers:
            numbers = FIRST_LAYER + jnp.arange(L)
            x, _ = jax.lax.scan(lambda x, xs: (run(x, *xs), None), x, (self.layers, numbers))
            return x
        for number, layer in enumerate(_unstack(self.layers, L), start=FIRST_LAYER):
            x = run(x, layer, number)
        return x


def _rematerialized(function: Callable, config: ModelConfig, *, regather: bool) -> Callable:
    """Wraps a layer so that its backward pass recomputes what config.remat says.

    With `regather`, weights gathered from other devices are not kept for it either.
    """
    if config.remat == "none" and not regather:
        return function
    # "dots" keeps the products with weights; the T x T products of attention, which dominate the
    # memory of long rows and little of the time, are recomputed like all elementwise work.
    policy = {
        "none": _all_but_gathered,
        "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
        "full": jax.checkpoint_policies.nothing_saveable,
    }[config.remat]
    # Inside a scan the loop already keeps the compiler from merging the two computations.
    return jax.checkpoint(function, policy=policy, prevent_cse=not config.scan_layers)


def _all_but_gathered(primitive: Any, *_: Any, **params: Any) -> bool:
    """Keeps every value for the backward pass but weights that a layer's hook has gathered."""
    if primitive.name == "custom_vjp_call":
        return "all_gather" not in str(params["call_jaxpr"])
    # Another shape of a value costs nothing to make again, and of a weight would keep all of it.
    return primitive.name not in ("all_gather", "reshape")


def _unstack(layers: Block, L: int) -> list[Block]:
    """Splits stacked layers [L, ...] into L layers.

    By split and not by indexing: the gradient of a split is one concatenation, into which a TPU
    writes each layer's part as it is made; that of L slices is a sum of L tensors of full size.
    """
    leaves, structure = jax.tree.flatten(layers)
    parts = [[jnp.squeeze(part, 0) for part in jax.lax.split(leaf, (1,) * L)] for leaf in leaves]
    return [jax.tree.unflatten(structure, part) for part in zip(*parts, strict=True)]
