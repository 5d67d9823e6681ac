"""Checks of hyper-parameters where an optimizer is built."""

from collections.abc import Callable
from typing import Any

import jax
import optax


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
    try:
        number = float("nan") if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not ok(number):
        shown = repr(value) if isinstance(value, str) else value
        raise ValueError(f"{name} = {shown}: expected {expected}")


def require_transform(inner: Any) -> None:
    """Raises a TypeError unless `inner` is an optimizer in optax's sense."""
    if not (hasattr(inner, "init") and hasattr(inner, "update")):
        raise TypeError(f"inner = {inner!r}: expected an optimizer, such as lamb(0.01)")


def check_rates(
    learning_rate: optax.ScalarOrSchedule, weight_decay: optax.ScalarOrSchedule
) -> None:
    """Raises a ValueError for a learning rate or a decay that is not a number of 0 or more."""
    require("learning_rate", learning_rate, lambda value: value >= 0, "0 or more, or a schedule")
    require("weight_decay", weight_decay, lambda value: value >= 0, "0 or more, or a schedule")
