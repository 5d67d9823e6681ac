"""Learning rates as functions of the number of updates already applied."""

import bisect
import operator
from collections.abc import Iterable
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
    warmup, total = _checked(peak, warmup_steps, total_steps, power)
    if form not in get_args(DecayForm):
        raise ValueError(f"form = {form!r}: expected one of {', '.join(get_args(DecayForm))}")
    rise = max(warmup, 1)
    fall = total + 1 - rise if form == "continuous" else total + 1
    return _rise_and_fall(peak, rise, rise, fall, total, power)


def warmup_constant_decay(
    peak: float,
    warmup_steps: int,
    constant_steps: int,
    total_steps: int,
    power: float = 1.0,
) -> optax.Schedule:
    r"""Linear warm-up to a peak, some updates at the peak, then polynomial decay towards 0.

    At the same peak it covers more ground than a decay that begins at once; LANS needs that where
    a batch is so large that few updates are left and the peak can rise no further. In update
    s = count + 1 of T, with W of warm-up and C at the peak,

    .. math::
        \eta_s = \begin{cases}
            \text{peak} \cdot s / W & s \le W \\
            \text{peak} & W < s \le W + C \\
            \text{peak} \cdot \left(\frac{T + 1 - s}{T + 1 - W - C}\right)^{\text{power}}
                & s > W + C
        \end{cases}

    As in `warmup_polynomial_decay`, which this is for C = 0, no update has a rate of 0 and
    schedule(T) == 0.

    Args:
        peak: learning rate of updates number `warmup_steps` to `warmup_steps + constant_steps`.
        warmup_steps: updates of warm-up W, from 0 to `total_steps`.
        constant_steps: updates C at the peak after the warm-up, from 0 to
            `total_steps - warmup_steps`.
        total_steps: updates T of the whole phase.
        power: exponent of the decay; default 1.0, linear.

    Returns:
        A schedule: from an int or an integer array, traced or not, to a float32 scalar. Counts
        beyond the phase are taken to its nearer end.

    Raises:
        ValueError: an argument is outside of its range or not a whole number; the message names
            it.

    Examples:
        >>> from bert_lamb.optim.schedules import warmup_constant_decay
        >>> schedule = warmup_constant_decay(1.0, 2, 2, 7)  # 2 up, 2 level, 3 down
        >>> [float(schedule(count)) for count in range(8)]
        [0.5, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]

    References:
        Zheng et al., `Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes
        <https://arxiv.org/abs/2006.13484>`_, 2020, on the learning rate scheduler.
    """
    warmup, total = _checked(peak, warmup_steps, total_steps, power)
    constant = _whole("constant_steps", constant_steps)
    require(
        "constant_steps",
        constant,
        lambda value: 0 <= value <= total - warmup,
        f"from 0 to total_steps - warmup_steps = {total - warmup}",
    )
    hold = max(warmup + constant, 1)
    return _rise_and_fall(peak, max(warmup, 1), hold, total + 1 - hold, total, power)


def mlperf_warmup_decay(
    peak: float,
    warmup_steps: int,
    total_steps: int,
    start_warmup_step: int = 0,
    power: float = 1.0,
) -> optax.Schedule:
    r"""The schedule of MLPerf's BERT benchmark, to rerun its published settings to the letter.

    In update s = count + 1 of T, with W steps of warm-up from the step S,

    .. math::
        \eta_s = \begin{cases}
            \text{peak} \cdot (s - S) / W & s - S < W \\
            \text{peak} \cdot (1 - s / T)^{\text{power}} & s - S \ge W
        \end{cases}

    A negative S starts part of the way up: with S = -76 and W = 287 the first update has 77/287
    of the peak. Two traits of the formula set it apart from `warmup_polynomial_decay`. The decay
    counts from 0, so the rate never reaches the peak and drops where the warm-up ends, by about
    W / T of it at power 1. And the update s = T has rate 0: a LAMB step that moves nothing.

    Args:
        peak: learning rate that the warm-up heads for.
        warmup_steps: steps of warm-up W, from 0 (none) to `total_steps - start_warmup_step`.
        total_steps: updates T of the whole run, the warm-up's included.
        start_warmup_step: the step S at which the warm-up's line crosses 0, 0 or less;
            default 0.
        power: exponent of the decay; default 1.0, linear.

    Returns:
        A schedule: from an int or an integer array, traced or not, to a float32 scalar. Counts
        beyond the run are taken to its nearer end.

    Raises:
        ValueError: an argument is outside of its range or not a whole number; the message names
            it.

    Examples:
        >>> from bert_lamb.optim.schedules import mlperf_warmup_decay
        >>> schedule = mlperf_warmup_decay(1.0, 4, 8, start_warmup_step=-1)
        >>> [float(schedule(count)) for count in range(8)]
        [0.5, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0]

    References:
        `MLPerf Training policies <https://github.com/mlcommons/training_policies>`_, the
        hyper-parameters of BERT.
    """
    start = _whole("start_warmup_step", start_warmup_step)
    # From a later step the rates before it would be negative.
    require("start_warmup_step", start, lambda value: value <= 0, "0 or less")
    warmup, total = _checked(
        peak, warmup_steps, total_steps, power, "total_steps - start_warmup_step", -start
    )

    def schedule(count: Any) -> jax.Array:
        step = jnp.clip(jnp.asarray(count), 0, total - 1) + 1
        warming = (step - start).astype(jnp.float32) / max(warmup, 1)
        decaying = ((total - step).astype(jnp.float32) / total) ** power
        return jnp.float32(peak) * jnp.where(step - start < warmup, warming, decaying)

    return schedule


def warmup_token_decay(
    peak: float,
    warmup_steps: int,
    total_tokens: int,
    stages: Iterable[tuple[int, int]],
    power: float = 1.0,
) -> optax.Schedule:
    r"""Linear warm-up by updates, then decay by the tokens consumed.

    For runs whose updates differ in tokens, as with a warm-up of the sequence length: short
    batches take less of the decay than long ones. With C(count) the tokens consumed in the first
    `count` updates, of U in total, and update s = count + 1 of a warm-up of W,

    .. math::
        \eta_s = \begin{cases}
            \text{peak} \cdot s / W & s \le W \\
            \text{peak} \cdot \left(\frac{U - C(s - 1)}{U - C(W - 1)}\right)^{\text{power}}
                & s > W
        \end{cases}

    The run ends with the first update that brings C to U or beyond. Every update up to it has a
    rate above 0, and every later count 0. If all updates have the same number of tokens, and U
    is a multiple of it, this is `warmup_polynomial_decay` in its continuous form.

    U may go beyond 2**31, the range of an int32: tokens are counted in Python's integers while
    the schedule is built. A rate comes from the count, the fraction of U left at the end of the
    count's stage and the fraction that one update takes. Both terms of that sum are positive, so
    nothing cancels, and rates are right to a few units in the last place of float32 (relative
    1e-6 with power 1) up to the last update.

    Args:
        peak: learning rate of update number `warmup_steps`.
        warmup_steps: updates of warm-up W, from 0 to the number that `total_tokens` takes.
        total_tokens: tokens U at which the run ends, over all devices.
        stages: pairs (updates, tokens per update) in the order in which they run, both at least
            1; the last one goes on until the tokens are consumed, whatever its updates.
        power: exponent of the decay; default 1.0, linear.

    Returns:
        A schedule: from an int or an integer array, traced or not, to a float32 scalar.

    Raises:
        ValueError: an argument is outside of its range or not a whole number, there is no stage,
            or the tokens take 2**31 updates or more; the message names the argument.

    Examples:
        >>> from bert_lamb.optim.schedules import warmup_token_decay
        >>> schedule = warmup_token_decay(1.0, 1, 80, [(4, 10), (1, 20)])  # 4 short, 2 long
        >>> [float(schedule(count)) for count in range(7)]
        [1.0, 0.875, 0.75, 0.625, 0.5, 0.25, 0.0]

    References:
        Li et al., `The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for
        Training GPT Models <https://arxiv.org/abs/2108.06084>`_, 2021: decay by tokens, warm-up
        by steps.
    """
    total = _whole("total_tokens", total_tokens, "tokens")
    require("total_tokens", total, lambda value: value >= 1, "at least 1")
    runs = []
    for index, (updates, size) in enumerate(stages):
        run = (
            _whole(f"stages[{index}][0]", updates),
            _whole(f"stages[{index}][1]", size, "tokens"),
        )
        for place, value in enumerate(run):
            require(f"stages[{index}][{place}]", value, lambda value: value >= 1, "at least 1")
        runs.append(run)
    if not runs:
        raise ValueError("stages is empty: expected pairs of updates and tokens per update")

    # Of each stage the count at its end, the tokens left then, and those of one update. The last
    # one ends where its last update starts, with what that update takes still left.
    ends, lefts, sizes = list[int](), list[int](), list[int]()
    count, left = 0, total
    for index, (updates, size) in enumerate(runs):
        last = -(-left // size)
        final = index == len(runs) - 1 or last <= updates
        taken = last - 1 if final else updates
        count, left = count + taken, left - taken * size
        ends.append(count)
        lefts.append(left)
        sizes.append(size)
        if final:
            break
    end = count + 1
    require(f"updates of total_tokens = {total}", end, lambda value: value < 2**31, "below 2**31")
    warmup, _ = _checked(peak, warmup_steps, end, power, "the updates of total_tokens")

    rise = max(warmup, 1)
    stage = bisect.bisect_left(ends, rise - 1)
    fall = lefts[stage] + sizes[stage] * (ends[stage] - (rise - 1))

    def schedule(count: Any) -> jax.Array:
        count = jnp.clip(jnp.asarray(count), 0, end)
        start = jnp.minimum(count, end - 1)
        stops = jnp.array(ends, jnp.int32)
        stage = jnp.searchsorted(stops, start)
        later = jnp.array([left / fall for left in lefts], jnp.float32)[stage]
        each = jnp.array([size / fall for size in sizes], jnp.float32)[stage]
        decaying = (later + each * (stops[stage] - start).astype(jnp.float32)) ** power
        warming = (start + 1).astype(jnp.float32) / rise
        rate = jnp.where(start < rise, warming, decaying)
        return jnp.float32(peak) * jnp.where(count < end, rate, 0)

    return schedule


def join_phases(phases: Iterable[tuple[optax.Schedule, int]]) -> optax.Schedule:
    """Joins the schedules of a run's phases into one over the count of the whole run.

    Each phase counts from its own 0, so a schedule with a warm-up warms up again: the re-warm-up
    of the mixed-batch run. Only for runs whose optimizer keeps its count from phase to phase;
    where the count starts anew with each phase, give each its own schedule.

    Args:
        phases: pairs (schedule, updates of the phase, at least 1), in the order in which they
            run.

    Returns:
        A schedule. After the last phase its schedule goes on counting.

    Raises:
        ValueError: there is no phase, a schedule is not one, or a number of updates is below 1
            or not whole; the message names it.

    Examples:
        >>> from bert_lamb.optim.schedules import join_phases, warmup_polynomial_decay
        >>> first = warmup_polynomial_decay(peak=1.0, warmup_steps=1, total_steps=2)
        >>> second = warmup_polynomial_decay(peak=0.5, warmup_steps=2, total_steps=3)
        >>> schedule = join_phases([(first, 2), (second, 3)])
        >>> [float(schedule(count)) for count in range(6)]
        [1.0, 0.5, 0.25, 0.5, 0.25, 0.0]

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 4.1, on re-warm-up.
    """
    schedules, ends, end = list[optax.Schedule](), list[int](), 0
    for index, (schedule, updates) in enumerate(phases):
        if not callable(schedule):
            raise ValueError(f"phases[{index}][0] = {schedule!r}: expected a schedule")
        updates = _whole(f"phases[{index}][1]", updates)
        require(f"phases[{index}][1]", updates, lambda value: value >= 1, "at least 1")
        end += updates
        schedules.append(schedule)
        ends.append(end)
    if not schedules:
        raise ValueError("phases is empty: expected pairs of a schedule and its updates")
    return optax.join_schedules(schedules, ends[:-1])


def _rise_and_fall(
    peak: float, rise: int, hold: int, fall: int, total: int, power: float
) -> optax.Schedule:
    """Up to update `rise`, level to update `hold`, then down a line of `fall` updates to 0."""

    def schedule(count: Any) -> jax.Array:
        step = jnp.clip(jnp.asarray(count), 0, total) + 1
        # Whole numbers until the division: near the end of a long phase T + 1 - s stays exact.
        warming = jnp.minimum(step.astype(jnp.float32) / rise, 1)
        decaying = ((total + 1 - step).astype(jnp.float32) / fall) ** power
        return jnp.float32(peak) * jnp.where(step <= hold, warming, decaying)

    return schedule


def _checked(
    peak: float,
    warmup_steps: int,
    total_steps: int,
    power: float,
    limit: str = "total_steps",
    spare: int = 0,
) -> tuple[int, int]:
    """Returns the warm-up, at most `total_steps + spare`, and the total as whole numbers."""
    total = _whole("total_steps", total_steps)
    warmup = _whole("warmup_steps", warmup_steps)
    require("peak", peak, lambda value: value >= 0, "0 or more")
    require("total_steps", total, lambda value: value >= 1, "at least 1")
    require(
        "warmup_steps",
        warmup,
        lambda value: 0 <= value <= total + spare,
        f"from 0 to {limit} = {total + spare}",
    )
    require("power", power, lambda value: value > 0, "more than 0")
    return warmup, total


def _whole(name: str, value: Any, of: str = "updates") -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value}: expected a whole number of {of}") from None
