"""Parameters that no gradient reaches, which LAMB would shrink all the same."""

import warnings

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.masks import leaf_paths
from bert_lamb.optim.states import find_states


def warn_of_unused(state: optax.OptState, params: optax.Params) -> list[str]:
    """Warns of tensors whose gradient was 0 in every update so far; call it outside of jit.

    Their moments are 0, so all of their direction is weight decay, which LAMB scales up to the
    whole learning rate: such a tensor shrinks to 0.0024 of itself in 1,000 updates at 6e-3. A
    pooler without next-sentence loss is one. Leave it out of the decay by a mask.

    Args:
        state: of an optimizer with moments, after one update or more.
        params: pytree of parameters, for the names.

    Returns:
        The paths of these tensors; empty before the first update.

    Raises:
        ValueError: the state has no moments.

    Examples:
        >>> import warnings
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import lamb, warn_of_unused
        >>> params = {"used": jnp.ones(2), "pooler": jnp.ones(2)}
        >>> gradients = {"used": jnp.ones(2), "pooler": jnp.zeros(2)}
        >>> optimizer = lamb(0.01)
        >>> _, state = optimizer.update(gradients, optimizer.init(params), params)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     warn_of_unused(state, params)
        ['pooler']
    """
    moments = next(iter(find_states(state, optax.ScaleByAdamState)), None)
    if moments is None:
        raise ValueError("no moments in this state: expected that of lamb, lans or adamw")
    if int(moments.count) == 0:
        return []
    leaves = zip(jax.tree.leaves(leaf_paths(params)), jax.tree.leaves(moments.nu), strict=True)
    unused = [path for path, nu in leaves if not bool(jnp.any(nu != 0))]
    if unused:
        warnings.warn(
            f"no gradient has reached {', '.join(unused)}; LAMB's decay shrinks them by the whole "
            "learning rate: leave them out with `mask`",
            stacklevel=2,
        )
    return unused
