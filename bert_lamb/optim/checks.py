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
    if not ok(float(value)):
        raise ValueError(f"{name} = {value}: expected {expected}")


def check_rates(
    learning_rate: optax.ScalarOrSchedule, weight_decay: optax.ScalarOrSchedule
) -> None:
    """Raises a ValueError for a learning rate or a decay that is not a number of 0 or more."""
    require("learning_rate", learning_rate, lambda value: value >= 0, "0 or more, or a schedule")
    require("weight_decay", weight_decay, lambda value: value >= 0, "0 or more, or a schedule")
