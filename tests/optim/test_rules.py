"""Rules that cover every leaf once, ready rules for other names, stacked axes by metadata."""

import jax
import jax.numpy as jnp
import pytest

from bert_lamb import model
from bert_lamb.config import PRESETS, ModelConfig
from bert_lamb.optim import (
    EXCLUDE,
    adamw,
    assign_by_path,
    lamb,
    lans,
    lars,
    leaf_paths,
    mask_table,
    path_mask,
    skip_nonfinite,
    stacked_by_metadata,
    with_master_weights,
)

PARAMS = {"mlp": {"kernel": jnp.ones([2, 2]), "bias": jnp.ones(2)}, "scale": jnp.ones(2)}


def test_every_leaf_gets_the_value_of_its_one_rule():
    assigned = assign_by_path(PARAMS, {"mlp/.*": 1, lambda path, leaf: path == "scale": 0})
    assert assigned == {"mlp": {"kernel": 1, "bias": 1}, "scale": 0}
    by_rank = assign_by_path(
        PARAMS, {lambda _, x: x.ndim == 2: "matrix", lambda _, x: x.ndim < 2: "vector"}
    )
    assert by_rank["mlp"] == {"kernel": "matrix", "bias": "vector"}


def a_rule_for_nothing(path, leaf):
    return False


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"mlp/.*": 1}, "1 leaves match no rule: 'scale'; add one"),
        ({".*": 1, "mlp/bias": 2}, "'mlp/bias' matches two rules, '.*' and 'mlp/bias'"),
        ({".*": 1, "mpl/bias": 2}, "rule pattern 'mpl/bias' matches none of the 3 paths; nearest"),
        ({".*": 1, "(": 2}, r"rule pattern '\(' is no regular expression"),
        ({".*": 1, a_rule_for_nothing: 2}, "rule a_rule_for_nothing is true for none"),
    ],
)
def test_rules_that_do_not_cover_every_leaf_once_are_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        assign_by_path(PARAMS, rules)


def test_a_predicate_can_exclude():
    mask = path_mask(PARAMS, exclude=(lambda path, leaf: leaf.ndim == 1,))
    assert mask == {"mlp": {"kernel": True, "bias": False}, "scale": False}
    with pytest.raises(ValueError, match="a_rule_for_nothing"):
        path_mask(PARAMS, exclude=(a_rule_for_nothing,))


def excluded(params, name):
    mask = path_mask(params, EXCLUDE[name])
    paths = leaf_paths(params)
    return {p for p, keep in zip(*map(jax.tree.leaves, (paths, mask)), strict=True) if not keep}


def test_ready_rules_for_flax_nnx():
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(5, 4, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
            self.ln = nnx.LayerNorm(4, rngs=rngs)

    params = nnx.state(Model(nnx.Rngs(0)), nnx.Param)
    names = excluded(params, "flax")
    assert names == {
        "attention/key/bias",
        "attention/out/bias",
        "attention/query/bias",
        "attention/value/bias",
        "ln/bias",
        "ln/scale",
    }


def test_ready_rules_for_flax_linen():
    linen = pytest.importorskip("flax.linen")

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.LayerNorm()(linen.Dense(3)(x))

    params = Model().init(jax.random.key(0), jnp.ones([1, 2]))["params"]
    assert excluded(params, "flax") == {"Dense_0/bias", "LayerNorm_0/bias", "LayerNorm_0/scale"}


def test_ready_rules_for_hugging_face():
    """Names as its Flax and its PyTorch BERT have them, the latter flat with dots."""
    flax = {
        "bert": {
            "embeddings": {
                "word_embeddings": {"embedding": 0},
                "LayerNorm": {"scale": 0, "bias": 0},
            },
            "encoder": {
                "layer": {"0": {"attention": {"self": {"query": {"kernel": 0, "bias": 0}}}}}
            },
        },
        "cls": {"predictions": {"bias": 0}},
    }
    assert excluded(flax, "huggingface") == {
        "bert/embeddings/LayerNorm/scale",
        "bert/embeddings/LayerNorm/bias",
        "bert/encoder/layer/0/attention/self/query/bias",
        "cls/predictions/bias",
    }
    torch = dict.fromkeys(
        (
            "bert.embeddings.word_embeddings.weight",
            "bert.embeddings.LayerNorm.weight",
            "bert.embeddings.LayerNorm.bias",
            "bert.encoder.layer.0.attention.self.query.weight",
            "bert.encoder.layer.0.attention.self.query.bias",
            "cls.predictions.bias",
        ),
        0,
    )
    assert excluded(torch, "huggingface") == {
        "bert.embeddings.LayerNorm.weight",
        "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.0.attention.self.query.bias",
        "cls.predictions.bias",
    }


def test_stacked_axes_of_an_nnx_state():
    nnx = pytest.importorskip("flax.nnx")

    @nnx.split_rngs(splits=3)
    @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: "layers"})
    def stack(rngs):
        named = nnx.with_metadata(
            nnx.initializers.ones_init(), out_sharding=(None, "mlp"), eager_sharding=False
        )
        return nnx.Linear(2, 4, kernel_init=named, rngs=rngs)

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.layers = stack(rngs)
            declared = nnx.with_metadata(nnx.initializers.ones_init(), stacked_axes=1)
            self.fused = nnx.Param(declared(rngs.params(), (3, 4)))
            self.head = nnx.Linear(4, 2, rngs=rngs)

    params = nnx.state(Model(nnx.Rngs(0)), nnx.Param)
    stacked = stacked_by_metadata(params)
    assert stacked["layers"]["kernel"] == 1
    assert stacked["head"]["kernel"] == 0
    optimizer = lamb(0.01, stacked=stacked, record=True)
    state = optimizer.init(params)
    ratio = state[1].adaptation.trust_ratio
    assert jax.tree.leaves(ratio["layers"]["kernel"])[0].shape == (3,)
    assert jax.tree.leaves(ratio["head"]["kernel"])[0].shape == ()


def test_stacked_axes_of_linen_boxes():
    linen = pytest.importorskip("flax.linen")

    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x, _):
            init = linen.with_partitioning(linen.initializers.ones, (None, "mlp"))
            return linen.Dense(2, kernel_init=init)(x), None

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            scan = linen.scan(
                Layer,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=3,
                metadata_params={linen.PARTITION_NAME: "layers"},
            )
            return scan()(x, None)[0]

    boxed = Model().init(jax.random.key(0), jnp.ones([1, 2]))["params"]
    stacked = stacked_by_metadata(boxed)
    assert jax.tree.leaves(stacked["ScanLayer_0"]["Dense_0"]["kernel"]) == [1]


def test_table_of_bert_large_puts_every_parameter_in_one_group():
    """Published BERT-Large: 335,174,458 + the NSP head's parameters; every one in one group."""
    config = ModelConfig(vocab_size=30522, vocab_multiple=1, **PRESETS["large"])
    params = jax.eval_shape(lambda key: model.init(config, key), jax.random.key(0))
    mask = path_mask(params)
    table = mask_table(params, mask, mask, model.stacked_axes(params)).splitlines()
    rows = [line.rsplit(maxsplit=4) for line in table[1:-1]]
    assert {(row[-2], row[-1]) for row in rows} == {("yes", "yes"), ("no", "no")}
    # 16 tensors a layer, 5 of embeddings, 2 of the pooler, 5 of the MLM head, 2 of the NSP head.
    assert sum(int(row[-3].replace(",", "")) for row in rows) == 24 * 16 + 14
    assert table[-1].startswith("30 leaves, 398 tensors, 336,226,108 parameters;")
    # What does not decay: biases and norms, counted from the published shapes.
    per_layer = 4 * 1024 + 4096 + 1024 + 4 * 1024
    outside = 2 * 1024 + 1024 + (1024 + 2 * 1024 + 30522) + 2
    small = 24 * per_layer + outside
    assert table[-1].endswith(f"{336_226_108 - small:,} decay, {336_226_108 - small:,} adapt")


def first_update(**arguments):
    optimizer = lamb(0.01, **arguments)
    return optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask": "bias"}, "mask = 'bias' for 'mlp/bias': expected True or False"),
        ({"trust_ratio_mask": {"mlp": 1.0, "scale": 0.0}}, "trust_ratio_mask = 1.0 for 'mlp/bias'"),
        ({"mask": {"mlp": True}}, "mask: expected a pytree shaped like the parameters"),
        ({"stacked": {"mlp": 0, "scale": 0, "heads": 1}}, "stacked: expected a pytree shaped like"),
        ({"moment_dtype": jnp.int32}, "moment_dtype = .*int32.*: expected a floating dtype"),
        ({"weight_decay": "x"}, "weight_decay = 'x': expected 0 or more"),
        ({"clip_norm": "1"}, "clip_norm = '1': expected more than 0"),
        ({"b1": None}, "b1 = None: expected a rate"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        first_update(**arguments)


@pytest.mark.parametrize("function", [adamw, lars, lans], ids=lambda f: f.__name__)
def test_every_optimizer_names_a_mask_that_does_not_fit(function):
    optimizer = function(0.01, weight_decay=0.01, mask={"mlp": True})
    with pytest.raises(ValueError, match="mask: expected a pytree shaped like the parameters"):
        optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)


@pytest.mark.parametrize("wrapper", [skip_nonfinite, with_master_weights])
def test_a_wrapper_around_no_optimizer_is_refused(wrapper):
    with pytest.raises(TypeError, match="expected an optimizer, such as lamb"):
        wrapper(lamb)
