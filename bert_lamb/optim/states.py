"""Finding one transform's part in the state of a whole chain of them."""

from typing import TypeVar

import jax
import optax

State = TypeVar("State")


def find_states(state: optax.OptState, kind: type[State]) -> list[State]:
    """Returns the parts of a type, however deep wrappers and chains have put them.

    Args:
        state: of any optax optimizer.
        kind: such as `optax.ScaleByAdamState`.
    """
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, kind))
    return [part for part in parts if isinstance(part, kind)]
