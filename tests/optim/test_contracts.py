"""What every transform of the package promises: types, sharding, imports, documentation."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import bert_lamb.optim
from bert_lamb.optim import (
    clip_by_global_norm,
    lamb,
    path_mask,
    scale_by_trust_ratio,
    warmup_polynomial_decay,
)

STACKED = {"embeddings": 0, "layers": 1}
OPTIMIZERS = {
    "lamb": lamb(0.01),
    "lamb_full": lamb(
        warmup_polynomial_decay(0.01, 2, 10),
        weight_decay=0.01,
        mask=path_mask,
        trust_ratio_mask=path_mask,
        stacked=STACKED,
        clip_norm=1.0,
    ),
    "scale_by_trust_ratio": scale_by_trust_ratio(mask=path_mask, stacked=STACKED),
    "clip_by_global_norm": clip_by_global_norm(1.0),
}


@pytest.fixture(params=OPTIMIZERS)
def optimizer(request):
    return OPTIMIZERS[request.param]


def types(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def test_init_on_shapes_alone(optimizer, small_params):
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), small_params)
    abstract = jax.eval_shape(optimizer.init, shapes)
    concrete = jax.jit(optimizer.init)(jax.tree.map(jnp.asarray, small_params))
    assert jax.tree.structure(abstract) == jax.tree.structure(concrete)
    assert types(abstract) == types(concrete)


def test_state_and_updates_keep_their_types_and_one_compilation(optimizer, small_params):
    params = jax.tree.map(jnp.asarray, small_params)
    before = jax.jit(optimizer.init)(params)
    update = jax.jit(optimizer.update)
    updates, after = update(params, before, params)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert types(before) == types(after)
    assert types(updates) == types(params)
    assert all(not x.weak_type for x in jax.tree.leaves((updates, after)))
    update(params, after, params)
    assert update._cache_size() == 1


@pytest.mark.parametrize("name", ["lamb", "lamb_full", "scale_by_trust_ratio"])
def test_update_without_parameters_is_refused(name, small_params):
    optimizer = OPTIMIZERS[name]
    with pytest.raises(ValueError, match="param"):
        jax.eval_shape(
            lambda params: optimizer.update(params, optimizer.init(params)), small_params
        )


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_f05_sharded_update_equals_unsharded(axis_type, small_params):
    """Kernels split over both axes of a 4 x 2 mesh, layers, rows and columns alike."""
    params = jax.tree.map(jnp.asarray, small_params)
    gradients = jax.tree.map(lambda x: jnp.cos(37 * x), params)
    optimizer = OPTIMIZERS["lamb_full"]

    @jax.jit
    def first_update(params, gradients):
        updates, state = optimizer.update(gradients, optimizer.init(params), params)
        return optax.apply_updates(params, updates), state

    expected = first_update(params, gradients)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(axis_type,) * 2)

    def spec(x):
        if x.ndim >= 3:
            return P("data", *[None] * (x.ndim - 2), "model")
        return P(None, "data") if x.ndim == 2 and x.shape[1] % 4 == 0 else P()

    shardings = jax.tree.map(lambda x: NamedSharding(mesh, spec(x)), params)
    with jax.set_mesh(mesh):
        actual = first_update(
            jax.device_put(params, shardings), jax.device_put(gradients, shardings)
        )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), actual, expected
    )
    kernel = actual[0]["layers"]["up"]["kernel"]
    assert len({str(shard.index) for shard in kernel.addressable_shards}) == 8
    moment = optax.tree.get(actual[1], "mu")["layers"]["up"]["kernel"]
    assert moment.sharding.is_equivalent_to(kernel.sharding, kernel.ndim)


def test_derivatives_through_the_update_are_finite_at_zero():
    """Neither 0/0 nor the square root's slope at 0 leaks through the masked branch."""
    adapt = scale_by_trust_ratio()

    def length(x):
        updates, _ = adapt.update(x, optax.EmptyState(), x)
        return jnp.sum(updates)

    with jax.debug_nans(True):
        np.testing.assert_array_equal(jax.grad(length)(jnp.zeros(3)), 1.0)


def test_hyperparameters_can_be_injected():
    optimizer = optax.inject_hyperparams(lamb)(0.01, weight_decay=0.01, clip_norm=1.0)
    params, gradient = jnp.array([3.0, 4.0]), jnp.array([0.1, -0.2])
    state = optimizer.init(params)
    updates, _ = jax.jit(optimizer.update)(gradient, state, params)
    plain = lamb(0.01, weight_decay=0.01, clip_norm=1.0)
    expected, _ = plain.update(gradient, plain.init(params), params)
    np.testing.assert_allclose(updates, expected, rtol=1e-6)


def test_import_loads_jax_and_optax_only():
    program = "import sys, bert_lamb.optim; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    tops = {name.split(".")[0] for name in loaded}
    assert {"jax", "optax"} <= tops
    assert not tops & {
        "flax",
        "orbax",
        "grain",
        "tensorflow",
        "torch",
        "tokenizers",
        "ml_collections",
    }
    ours = {name for name in loaded if name.startswith("bert_lamb.")}
    assert all(name.startswith("bert_lamb.optim") for name in ours)


def modules():
    package = bert_lamb.optim
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(module).failed == 0


def test_every_public_optimizer_has_an_example():
    for name in bert_lamb.optim.__all__:
        item = getattr(bert_lamb.optim, name)
        if callable(item) and name not in ("global_norm", "trust_ratio"):
            assert ">>> " in item.__doc__, name


def test_example_in_the_documentation_prints_its_table(capsys):
    page = Path(__file__).resolve().parents[2] / "docs" / "optimizers.md"
    text = page.read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    exec(compile(program, str(page), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == re.search(r"```text\n(.*?)```", text, re.DOTALL)[1]
