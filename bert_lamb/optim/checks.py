"""Checks of hyper-parameters where an optimizer is built."""

from collections.abc import Callable
from typing import Any

import jax


def require(name: str, value: Any, ok: Callable[[float], bool], expected: str) -> None:
    """Raises a ValueError that names a hyper-parameter outside of its range.

    What is not known while the optimizer is built passes: a schedule, or a traced value as
    `optax.inject_hyperparams` hands in.

    Args:
        name: of the hyper-parameter, for the message.
        value: a number, a schedule or a traced array.
        ok: the condition on a number; NaN must fail it.
        expected: the condition in words, for the message.
    """
    if callable(value) or isinstance(value, jax.core.Tracer):
        return
    if not ok(float(value)):
        raise ValueError(f"{name} = {value}: expected {expected}")
