"""Running an optimizer over a pytree, and comparing pytrees."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_lamb.optim import leaf_paths
from tests import quick


def run(optimizer, params, gradients, state=None, jit=False):
    """Returns the parameters after each of the gradients, and the last state.

    Compiling pays for trees of many shapes; small ones share the compiled single operations.
    """

    def step(gradient, state, params):
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    init = quick.jit(optimizer.init) if jit else optimizer.init
    step = quick.jit(step) if jit else step
    state = init(params) if state is None else state
    trace = []
    for gradient in gradients:
        params, state = step(gradient, state, params)
        trace.append(params)
    return trace, state


def random_like(params, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), params)


def flat(params):
    return dict(zip(jax.tree.leaves(leaf_paths(params)), jax.tree.leaves(params), strict=True))


def assert_trees_close(actual, expected, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), actual, expected)
