"""Rules by path: what they match, what they refuse, and the table that shows them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest

from bert_lamb.optim import DEFAULT_EXCLUDE, lamb, leaf_paths, mask_table, path_mask


class Dense(NamedTuple):
    kernel: object
    bias: object


def chosen(mask):
    return dict(zip(jax.tree.leaves(leaf_paths(mask)), jax.tree.leaves(mask), strict=True))


def test_leaf_paths_of_dicts_lists_and_named_tuples():
    params = {"layers": [Dense(0, 0), {"x": 0}], "head": Dense(0, {"y": (0, 0)})}
    assert leaf_paths(params) == {
        "layers": [Dense("layers/0/kernel", "layers/0/bias"), {"x": "layers/1/x"}],
        "head": Dense("head/kernel", {"y": ("head/bias/y/0", "head/bias/y/1")}),
    }
    assert leaf_paths(jnp.ones(2)) == ""
    assert leaf_paths({}) == {}


def test_leaf_paths_of_an_nnx_state_leave_off_the_variable_s_value():
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.dense = nnx.Linear(2, 3, rngs=rngs)
            self.norm = nnx.LayerNorm(3, rngs=rngs)

    params = nnx.state(Model(nnx.Rngs(0)), nnx.Param)
    paths = ["dense/bias", "dense/kernel", "norm/bias", "norm/scale"]
    assert jax.tree.leaves(leaf_paths(params)) == paths
    mask = path_mask(params)
    assert jax.tree.leaves(mask) == [False, True, False, False]
    optimizer = lamb(0.01, weight_decay=0.01, mask=mask, trust_ratio_mask=mask)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)


def test_a_field_named_value_is_kept_where_not_every_leaf_has_it():
    class Head(NamedTuple):
        value: object
        policy: object

    assert leaf_paths(Head(0, 0)) == Head("value", "policy")


def test_p55_layer_norms_and_biases_neither_decay_nor_adapt(bert_params):
    mask = chosen(path_mask(bert_params))
    kept = {path for path, keep in mask.items() if keep}
    assert kept == {
        "embeddings/word/embedding",
        "embeddings/position/embedding",
        "embeddings/type/embedding",
        *(f"layers/attention/{name}/kernel" for name in ("query", "key", "value", "out")),
        "layers/mlp/up/kernel",
        "layers/mlp/down/kernel",
        "pooler/kernel",
        "mlm/transform/kernel",
        "nsp/kernel",
    }
    dropped = {path for path, keep in mask.items() if not keep}
    assert {"embeddings/norm/scale", "layers/attention_norm/scale", "mlm/bias"} <= dropped
    assert all(path.endswith(("/bias", "/scale")) for path in dropped)


def test_f02_one_string_is_not_read_letter_by_letter(bert_params):
    with pytest.raises(TypeError, match=r"expected a sequence, such as \('\.\*/bias',\)"):
        path_mask(bert_params, exclude=".*/bias")


def test_f03_empty_excludes_nothing_and_none_is_the_default(bert_params):
    for nothing in ((), []):
        assert all(jax.tree.leaves(path_mask(bert_params, exclude=nothing)))
    default = path_mask(bert_params, exclude=None)
    assert default == path_mask(bert_params) == path_mask(bert_params, exclude=DEFAULT_EXCLUDE)
    assert default != path_mask(bert_params, exclude=())


def test_pattern_matches_the_whole_path(bert_params):
    assert not chosen(path_mask(bert_params, exclude=["mlm/bias"]))["mlm/bias"]
    with pytest.raises(ValueError, match="matches none"):
        path_mask(bert_params, exclude=["bias"])


def test_pattern_without_a_match_names_the_nearest_paths(bert_params):
    with pytest.raises(ValueError, match=r"'mlm/biass' matches none .*nearest: 'mlm/bias'"):
        path_mask(bert_params, exclude=[".*/bias", "mlm/biass"])
    with pytest.raises(ValueError, match=r"'\.\*/LayerNorm/.*nearest: '\w+"):
        path_mask(bert_params, exclude=[".*/LayerNorm/.*"])


def test_pattern_that_is_no_regular_expression_is_named(bert_params):
    with pytest.raises(ValueError, match=r"'\*/bias' is no regular expression"):
        path_mask(bert_params, exclude=["*/bias"])


@pytest.mark.parametrize("count", [-1, 3, 1.0, True, "1"])
def test_impossible_count_of_stacked_axes_names_leaf_and_shape(count):
    params = {"dense": {"kernel": jnp.ones([4, 8])}}
    message = r"stacked = .* for 'dense/kernel' of shape \(4, 8\): .* from 0 to 2"
    with pytest.raises(ValueError, match=message):
        mask_table(params, stacked=count)
    optimizer = lamb(0.01, stacked=count)
    with pytest.raises(ValueError, match=message):
        optimizer.update(params, optimizer.init(params), params)


@pytest.mark.parametrize("argument", ["trust_ratio_mask", "stacked"])
def test_rule_that_misses_a_leaf_is_refused(argument):
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    optimizer = lamb(0.01, weight_decay=0.01, **{argument: {"a": 1}})
    with pytest.raises(ValueError, match=f"{argument}: expected a pytree shaped like"):
        optimizer.update(params, optimizer.init(params), params)


def test_mask_table_of_bert(bert_params, stacked):
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, bert_params))
    table = mask_table(shapes, path_mask, path_mask, stacked)
    lines = {line.split()[0]: line for line in table.splitlines()}
    assert lines["layers/attention/query/kernel"].split("  ")[-1].strip() == "yes"
    row = lines["layers/attention/query/kernel"].split()
    assert row[1:5] == ["(12,", "8,", "2,", "4)"]
    assert row[5:] == ["1", "12", "yes", "yes"]
    assert lines["mlm/norm/scale"].split()[1:] == ["(8,)", "0", "1", "no", "no"]
    leaves = jax.tree.leaves(bert_params)
    in_layers = len(jax.tree.leaves(bert_params["layers"]))
    tensors = len(leaves) + 11 * in_layers
    size = sum(x.size for x in leaves)
    assert f"{len(leaves)} leaves, {tensors} tensors, {size:,} parameters" in table


def test_rules_work_inside_optax_masked(bert_params):
    """A part of the tree that another optimizer owns does not disturb prefixes."""
    params = {"body": {"a": jnp.ones([3, 2]), "b": jnp.ones(2)}, "head": jnp.ones(2)}
    owned = {"body": {"a": True, "b": False}, "head": True}
    optimizer = optax.masked(lamb(0.01, stacked={"body": 1, "head": 0}), owned)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)
