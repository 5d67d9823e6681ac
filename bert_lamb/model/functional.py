"""The model as pure functions of a nested dict of arrays: what training and fine-tuning use.

No flax object crosses this border, so optimizers, checkpoints and sharding rules see plain
pytrees, and jax.jit does not walk a module graph at every step.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_lamb.config import ModelConfig
from bert_lamb.model.bert import Batch, LayerHook
from bert_lamb.model.dropout import Noise
from bert_lamb.model.heads import BertForPreTraining, BertModel, Maker

Params = dict[str, Any]


def init(config: ModelConfig, key: jax.Array, make: Maker = BertForPreTraining) -> Params:
    """Draws parameters: kernels and tables truncated normal, biases 0, norm scales 1.

    Args:
        config: the shape of the model.
        key: typed PRNG key; the same key gives the same parameters, under jit or not.
        make: which model, see `bert_lamb.model.heads`. Parts that two of them share are drawn
            alike.

    Returns:
        A nested dict of float32 arrays; under "layers" each has a leading axis L.

    Raises:
        ValueError: if config.vocab_size is 0.
    """
    return nnx.to_pure_dict(nnx.state(make(config, rngs=nnx.Rngs(params=key)), nnx.Param))


def apply(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    *,
    make: Maker = BertForPreTraining,
    dropout_key: jax.Array | None = None,
    hook: LayerHook | None = None,
) -> Any:
    """Computes what the model gives out; by default the logits of both pretraining tasks.

    Args:
        config: the shape of the model.
        params: as returned by `init`.
        batch: int32 arrays input_ids, input_mask, segment_ids [B, T], for pretraining
            masked_lm_positions [B, P] and, with dropout, row [B]: the index of each row in the
            global batch.
        make: which model, as for `init`.
        dropout_key: typed PRNG key of this step, the same on all devices; None switches dropout
            off.
        hook: what each layer does to its own parameters before it uses them. Before that they may
            have any shape, so those under "layers" are then not compared with the config.

    Returns:
        What calling the model returns: `PretrainingOutput`, `SpanOutput`, float32 logits [B, C], or
        of `BertModel` the sequence [B, T, D] and the pooled token [B, D] in the compute dtype.

    Raises:
        ValueError: if the parameters do not fit the config, or a row is longer than the position
            table.
    """
    noise = _noise(config, batch, dropout_key)
    return _build(config, params, make, hook)(batch, noise, hook)


def encode(
    config: ModelConfig, params: Params, batch: Batch, *, dropout_key: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Computes the encoder and pooler of any parameters that have them.

    Arguments and errors are those of `apply`.

    Returns:
        The sequence [B, T, D] and the pooled first token [B, D], in the compute dtype.
    """
    own = {name: params[name] for name in ("embeddings", "layers", "pooler")}
    return apply(config, own, batch, make=BertModel, dropout_key=dropout_key)


def stacked_axes(params: Params) -> Params:
    """Counts the leading axes of each tensor that enumerate layers.

    Args:
        params: a tree like that of `init`, of arrays or ShapeDtypeStructs.

    Returns:
        The same tree of ints, 1 for tensors of the encoder's layers, 0 elsewhere: an optimizer
        with one step size per layer (LAMB) takes its norms over the remaining axes.
    """
    return {
        name: jax.tree.map(lambda _, n=int(name == "layers"): n, subtree)
        for name, subtree in params.items()
    }


def weight_dtypes(config: ModelConfig, params: Params) -> Params:
    """Returns for each parameter the widest dtype that the forward pass uses it in.

    Kernels and tables are cast to the compute dtype wherever they are used, so whoever copies them
    may cast them first. Norms and biases are used in float32 too.
    """

    def dtype(path: Any, _: Any) -> jnp.dtype:
        cast = path[-1].key in ("kernel", "embedding")
        return jnp.dtype(config.dtype if cast else "float32")

    return jax.tree_util.tree_map_with_path(dtype, params)


def _build(config: ModelConfig, params: Params, make: Maker, hook: LayerHook | None) -> Any:
    graphdef, abstract = _structure(config, make)
    expected, got = _shapes(nnx.to_pure_dict(abstract)), _shapes(params)
    if hook is not None:
        expected = {name: got.get(name, shape) if name.startswith("layers/") else shape
                    for name, shape in expected.items()}  # fmt: skip
    if got != expected:
        missing, extra = dict(expected.items() - got.items()), dict(got.items() - expected.items())
        raise ValueError(
            f"parameters do not fit the config: expected {missing or 'no more'}, got "
            f"{extra or 'nothing else'}"
        )
    state = jax.tree.map(lambda leaf: leaf, abstract)  # a copy, the next line writes into it
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graphdef, state)


def _shapes(params: Params) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves
    }


@functools.cache
def _structure(config: ModelConfig, make: Maker) -> tuple[nnx.GraphDef, nnx.State]:
    return nnx.split(nnx.eval_shape(lambda: make(config, rngs=nnx.Rngs(0))))


def _noise(config: ModelConfig, batch: Batch, key: jax.Array | None) -> Noise | None:
    return (
        None if key is None else Noise(key, batch["row"], config.dropout_rng, config.dropout_bits)
    )
