"""Learning rates as functions of the number of updates already applied."""

import operator
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require

DecayForm = Literal["continuous", "from_zero"]


def warmup_polynomial_decay(
    peak: float,
    warmup_steps: int,
    total_steps: int,
    power: float = 1.0,
    form: DecayForm = "continuous",
) -> optax.Schedule:
    r"""Linear warm-up to a peak, then polynomial decay towards 0.

    An optax schedule is called with the count of updates already applied, so update number
    s = count + 1 uses schedule(count). With W warm-up steps of T in total,

    .. math::
        \eta_s = \begin{cases}
            \text{peak} \cdot s / W & s \le W \\
            \text{peak} \cdot \left(\frac{T + 1 - s}{T + 1 - W}\right)^{\text{power}}
                & s > W, \text{continuous} \\
            \text{peak} \cdot \left(\frac{T + 1 - s}{T + 1}\right)^{\text{power}}
                & s > W, \text{from_zero}
        \end{cases}

    The rate would be 0 at s = 0 and is 0 at s = T + 1, and no update of the phase is either: the
    first has a W-th of the peak, number W exactly the peak, the last one a small positive rate,
    and schedule(T) == 0. Without a warm-up (W = 0) the first update has the peak, as with W = 1.

    The form "from_zero" counts its decay from the start of the phase, as Google's and NVIDIA's
    BERT code do, and therefore drops when the warm-up ends: from 6.0e-3 to 5.076e-3 in NVIDIA's
    first phase. In update s they decay by (s - 1) / T and by s / T; s / (T + 1) lies between the
    two, within 1 / T of either, and spares the update of rate 0 that each of them has at an end.

    Each phase of a run has a schedule and a count of its own.

    Args:
        peak: learning rate of update number `warmup_steps`.
        warmup_steps: updates of warm-up W, from 0 to `total_steps`.
        total_steps: updates T of the whole phase, the warm-up's included.
        power: exponent of the decay; default 1.0, linear; .5 is the square root of NVIDIA's
            recipes.
        form: default "continuous", decay from the peak over the updates after the warm-up;
            "from_zero" as described above.

    Returns:
        A schedule: from an int or an integer array, traced or not, to a float32 scalar. Counts
        beyond the phase are taken to its nearer end.

    Raises:
        ValueError: an argument is outside of its range or not a whole number; the message names
            it.

    Examples:
        >>> from bert_lamb.optim import warmup_polynomial_decay
        >>> schedule = warmup_polynomial_decay(peak=1.0, warmup_steps=2, total_steps=5)
        >>> [float(schedule(count)) for count in range(6)]
        [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 4.1.
    """
    total = _whole("total_steps", total_steps)
    warmup = _whole("warmup_steps", warmup_steps)
    require("peak", peak, lambda value: value >= 0, "0 or more")
    require("total_steps", total, lambda value: value >= 1, "at least 1")
    require(
        "warmup_steps",
        warmup,
        lambda value: 0 <= value <= total,
        f"from 0 to total_steps = {total}",
    )
    require("power", power, lambda value: value > 0, "more than 0")
    if form not in get_args(DecayForm):
        raise ValueError(f"form = {form!r}: expected one of {', '.join(get_args(DecayForm))}")

    rise = max(warmup, 1)
    fall = total + 1 - rise if form == "continuous" else total + 1

    def schedule(count: Any) -> jax.Array:
        step = jnp.clip(jnp.asarray(count), 0, total) + 1
        # Whole numbers until the division: near the end of a long phase T + 1 - s stays exact.
        warming = step.astype(jnp.float32) / rise
        decaying = ((total + 1 - step).astype(jnp.float32) / fall) ** power
        return jnp.float32(peak) * jnp.where(step <= rise, warming, decaying)

    return schedule


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value}: expected a whole number of updates") from None
