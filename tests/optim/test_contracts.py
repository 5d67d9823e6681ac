"""What every transform of the package promises: types, sharding, imports, documentation."""

import doctest
import importlib
import inspect
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
    Adaptation,
    adamw,
    clip_by_bucket,
    clip_by_global_norm,
    clip_per_tensor,
    lamb,
    lans,
    lars,
    normalize_by_global_norm,
    normalize_per_tensor,
    path_mask,
    scale_by_lamb,
    scale_by_lans,
    scale_by_moments,
    scale_by_trust_ratio,
    skip_nonfinite,
    state_specs,
    warmup_polynomial_decay,
    with_master_weights,
)
from tests import quick
from tests.trees import assert_trees_close

STACKED = {"embeddings": 0, "layers": 1}
SCHEDULE = warmup_polynomial_decay(0.01, 2, 10)
MASKS = {"mask": path_mask, "trust_ratio_mask": path_mask, "stacked": STACKED}
FULL = {"weight_decay": 0.01, "record": True, **MASKS}
OPTIMIZERS = {
    "lamb": lamb(0.01),
    "lamb_full": lamb(SCHEDULE, clip_norm=1.0, **FULL),
    "lamb_scheduled_decay": lamb(0.01, weight_decay=optax.linear_schedule(0.01, 0.0, 5)),
    "lamb_v3": lamb(SCHEDULE, variant="v3", **FULL),
    "nvlamb": lamb(SCHEDULE, variant="nvlamb", stacked=STACKED, weight_decay=0.01),
    "apex": lamb(SCHEDULE, variant="apex", stacked=STACKED, weight_decay=0.01, mask=path_mask),
    "lambc": lamb(SCHEDULE, variant="lambc", **FULL),
    "bounded": lamb(SCHEDULE, variant="bounded", **FULL),
    "n_lamb": lamb(SCHEDULE, nesterov="first", **FULL),
    "nn_lamb": lamb(SCHEDULE, nesterov="both", pre_normalize=True, **FULL),
    "lars": lars(SCHEDULE, clip_norm=1.0, **FULL),
    "lans": lans(SCHEDULE, **FULL),
    "adamw": adamw(SCHEDULE, weight_decay=0.01, mask=path_mask, clip_norm=1.0),
    "skipping": skip_nonfinite(lamb(SCHEDULE, **FULL)),
    "master_weights": with_master_weights(lamb(SCHEDULE, **FULL)),
    "scale_by_lamb": scale_by_lamb(),
    "scale_by_lans": scale_by_lans(adaptation=Adaptation(stacked=STACKED)),
    "scale_by_moments": scale_by_moments(),
    "scale_by_trust_ratio": scale_by_trust_ratio(mask=path_mask, stacked=STACKED),
    "clip_by_global_norm": clip_by_global_norm(1.0),
    "clip_per_tensor": clip_per_tensor(1.0, STACKED),
    "clip_by_bucket": clip_by_bucket(1.0, {"embeddings": 0, "layers": 1}),
    "normalize_by_global_norm": normalize_by_global_norm(),
    "normalize_per_tensor": normalize_per_tensor(stacked=STACKED),
}
WHOLE = [name for name in OPTIMIZERS if not name.startswith(("scale", "clip", "normalize"))]


@pytest.fixture(params=OPTIMIZERS)
def optimizer(request):
    return OPTIMIZERS[request.param]


def types(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def test_init_on_shapes_alone(optimizer, small_params):
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), small_params)
    abstract = jax.eval_shape(optimizer.init, shapes)
    concrete = quick.jit(optimizer.init)(jax.tree.map(jnp.asarray, small_params))
    assert jax.tree.structure(abstract) == jax.tree.structure(concrete)
    assert types(abstract) == types(concrete)


def test_state_and_updates_keep_their_types_and_one_compilation(optimizer, small_params):
    params = jax.tree.map(jnp.asarray, small_params)
    before = quick.jit(optimizer.init)(params)
    update = quick.jit(optimizer.update)
    updates, after = update(params, before, params)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert types(before) == types(after)
    assert types(updates) == types(params)
    assert all(not x.weak_type for x in jax.tree.leaves((updates, after)))
    update(params, after, params)
    assert update._cache_size() == 1


@pytest.mark.parametrize("name", [*WHOLE, "scale_by_trust_ratio"])
def test_update_without_parameters_is_refused(name, small_params):
    optimizer = OPTIMIZERS[name]
    with pytest.raises(ValueError, match="param"):
        jax.eval_shape(
            lambda params: optimizer.update(params, optimizer.init(params)), small_params
        )


def sharded_specs(params):
    """Kernels split over both axes of a mesh, layers, rows and columns alike."""

    def spec(x):
        if x.ndim >= 3:
            return P("data", *[None] * (x.ndim - 2), "model")
        return P(None, "data") if x.ndim == 2 and x.shape[1] % 4 == 0 else P()

    return jax.tree.map(spec, params)


def first_update(optimizer):
    def update(params, gradients):
        updates, state = optimizer.update(gradients, optimizer.init(params), params)
        return optax.apply_updates(params, updates), state

    return update


def gradients_of(params):
    return jax.tree.map(lambda x: jnp.cos(37 * x), params)


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("name", ["lamb_full", "nn_lamb", "lars", "lans", "adamw"])
def test_f05_sharded_update_equals_unsharded(name, axis_type, small_params):
    params = jax.tree.map(jnp.asarray, small_params)
    gradients = gradients_of(params)
    update = quick.jit(first_update(OPTIMIZERS[name]))
    expected = update(params, gradients)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(axis_type,) * 2)
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), sharded_specs(params))
    with jax.set_mesh(mesh):
        actual = update(jax.device_put(params, shardings), jax.device_put(gradients, shardings))
    assert_trees_close(actual, expected, rtol=1e-6, atol=1e-6)
    kernel = actual[0]["layers"]["up"]["kernel"]
    assert len({str(shard.index) for shard in kernel.addressable_shards}) == 8
    moments = optax.tree.get_all_with_path(actual[1], "mu") or optax.tree.get_all_with_path(
        actual[1], "ema"
    )
    moment = moments[0][1]["layers"]["up"]["kernel"]
    assert moment.sharding.is_equivalent_to(kernel.sharding, kernel.ndim)


# With the layers' axis split or not, rows or columns, whole leaves beside split ones.
SPECS = {
    (8, 1): lambda x: P(None, "data") if x.ndim > 1 and x.shape[1] % 8 == 0 else P(),
    (4, 2): lambda x: P("data", *[None] * (x.ndim - 2), "model") if x.ndim > 2 else P(),
    (2, 4): lambda x: P(None, ("data", "model")) if x.ndim > 1 and x.shape[1] % 8 == 0 else P(),
}


@pytest.mark.parametrize("shape", SPECS, ids=str)
@pytest.mark.parametrize("function", [lamb, lars, lans, adamw], ids=lambda f: f.__name__)
def test_f05_update_of_slices_inside_shard_map_equals_unsharded(function, shape, small_params):
    """Each device has its slice of parameters, moments and gradients; norms are global."""
    params = jax.tree.map(jnp.asarray, small_params)
    gradients = gradients_of(params)
    options = {"weight_decay": 0.01, "mask": path_mask}
    if function is not lans:
        options["clip_norm"] = 1.0
    if function is not adamw:
        options |= {"stacked": STACKED, "record": True, "trust_ratio_mask": path_mask}
    expected = quick.jit(first_update(function(0.01, **options)))(params, gradients)

    specs = jax.tree.map(SPECS[shape], params)
    mesh = jax.make_mesh(shape, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    sliced = function(0.01, specs=specs, **options)
    update = jax.shard_map(
        first_update(sliced),
        mesh=mesh,
        in_specs=(specs, specs),
        out_specs=(specs, state_specs(jax.eval_shape(sliced.init, params), params, specs)),
    )
    actual = quick.jit(update)(params, gradients)
    assert_trees_close(actual, expected, rtol=1e-6, atol=1e-6)


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
        if inspect.isfunction(item) and name not in ("global_norm", "trust_ratio"):
            assert ">>> " in item.__doc__, name


PAGE = Path(__file__).resolve().parents[2] / "docs" / "optimizers.md"
EXAMPLES = re.findall(
    r"```python\n(.*?)```(?:(?:\n\n[^`\n]+)?\n\n```text\n(.*?)```)?",
    PAGE.read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_in_the_documentation_print_what_they_say(number, capsys):
    program, printed = EXAMPLES[number]
    exec(compile(program, f"{PAGE.name}, example {number}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == printed


def test_the_documentation_has_an_example_for_each_way_of_holding_parameters():
    assert len(EXAMPLES) == 4
