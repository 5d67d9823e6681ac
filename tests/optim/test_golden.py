"""The hand-checked numbers of every variant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.optim import lamb, trust_ratios
from tests.trees import run

GRADIENTS = ([0.1, -0.2], [0.3, 0.1], [-0.05, 0.2])
START = [3.0, 4.0]
# Options, parameters after each of three updates, trust ratios of each.
GOLDEN = {
    "lamb_v5": (
        {},
        [
            (2.963423704, 4.034090682),
            (2.914734044, 4.045705060),
            (2.870081960, 4.023512002),
        ],
        (3.551131, 5.139232, 7.086986),
    ),
    "lamb_v3": (
        {"variant": "v3"},
        [
            (2.964257601, 4.034963995),
            (2.916015833, 4.048362039),
            (2.870738711, 4.027404448),
        ],
        (1.120003, 1.227698, 1.507464),
    ),
    "lambc": (
        {"variant": "lambc"},
        [
            (2.989700100, 4.009599950),
            (2.980223360, 4.011862344),
            (2.973916236, 4.008734205),
        ],
        (1, 1, 1),
    ),
    "excluded_tensor": (
        {"mask": False, "trust_ratio_mask": False},
        [
            (2.990000100, 4.009999950),
            (2.980822330, 4.012663304),
            (2.974813229, 4.009936351),
        ],
        (1, 1, 1),
    ),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name, dtype):
    options, expected, _ = GOLDEN[name]
    with jax.enable_x64(dtype == "float64"):
        gradients = [jnp.array(g, dtype) for g in GRADIENTS]
        trace, _ = run(lamb(0.01, weight_decay=0.01, **options), jnp.array(START, dtype), gradients)
        assert trace[-1].dtype == dtype
        tolerance = {"float64": 1e-9, "float32": 1e-6}[dtype]
        np.testing.assert_allclose(np.stack(trace), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_trust_ratios(name):
    options, _, expected = GOLDEN[name]
    with jax.enable_x64(True):
        optimizer = lamb(0.01, weight_decay=0.01, record=True, **options)
        for count in range(1, 4):
            gradients = [jnp.array(g) for g in GRADIENTS[:count]]
            _, state = run(optimizer, jnp.array(START), gradients)
            ratio = trust_ratios(state).trust_ratio
            assert float(ratio) == pytest.approx(expected[count - 1], abs=1e-6)


@pytest.mark.parametrize(
    ("clip_norm", "expected"),
    [(None, (2.924201569, 4.065190547)), (1.0, (2.919625600, 4.058325065))],
)
def test_golden_global_clip(clip_norm, expected):
    with jax.enable_x64(True):
        gradients = [jnp.array(g, jnp.float64) for g in ([3.0, -4.0], [0.3, 0.1])]
        optimizer = lamb(0.01, weight_decay=0.01, clip_norm=clip_norm)
        trace, _ = run(optimizer, jnp.array(START), gradients)
        np.testing.assert_allclose(trace[-1], expected, rtol=0, atol=1e-9)
