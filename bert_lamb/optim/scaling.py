"""Hyper-parameters that follow from the batch size, as published: nothing is tuned again."""

import math
from typing import NamedTuple

from bert_lamb.optim.checks import require

# The two ends of table 1: its baseline's batch, whose warm-up is 1/320 of a million updates, and
# the batch whose learning rate is 5/1000.
_SMALLEST_BATCH, _LARGEST_BATCH = 512, 32768
_WARMUP_STEPS, _EXAMPLES = 3125, 512_000_000


class Recipe(NamedTuple):
    """What one phase of BERT pretraining takes from its batch size.

    Attributes:
        learning_rate: at the end of the warm-up.
        warmup_ratio: part of the run that warms up, from 0 to 1.
        warmup_steps: updates of warm-up.
        steps: updates of the whole run, the warm-up's included.

    Examples:
        >>> from bert_lamb.optim.scaling import untuned_lamb
        >>> untuned_lamb(4096).steps
        125000
    """

    learning_rate: float
    warmup_ratio: float
    warmup_steps: int
    steps: int


def sqrt_scaled(lr: float, base_batch: int, batch: int) -> float:
    """Scales a learning rate with the square root of the batch size.

    Args:
        lr: learning rate at `base_batch`, 0 or more.
        base_batch: examples per update that `lr` was tuned for.
        batch: examples per update of the new run.

    Returns:
        lr * sqrt(batch / base_batch).

    Raises:
        ValueError: `lr` is negative, or a batch size not more than 0.

    Examples:
        >>> from bert_lamb.optim.scaling import sqrt_scaled
        >>> sqrt_scaled(6.25e-4, base_batch=512, batch=32768)
        0.005

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 4.3.
    """
    require("lr", lr, lambda value: value >= 0, "0 or more")
    return lr * math.sqrt(_growth(base_batch, batch))


def linear_epoch_warmup(ratio: float, base_batch: int, batch: int) -> float:
    """Scales the part of a run that warms up in proportion to the batch size.

    Over the same examples a run of k times the batch has a k-th of the updates, so the warm-up
    takes k times the epochs and as many updates as before.

    Args:
        ratio: part of the run that warms up at `base_batch`, from 0 to 1.
        base_batch: examples per update that `ratio` was tuned for.
        batch: examples per update of the new run.

    Returns:
        ratio * batch / base_batch.

    Raises:
        ValueError: `ratio` is outside of its range, a batch size is not more than 0, or the
            warm-up would take more than the run.

    Examples:
        >>> from bert_lamb.optim.scaling import linear_epoch_warmup
        >>> linear_epoch_warmup(1 / 320, base_batch=512, batch=32768)
        0.2

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 4.3.
    """
    require("ratio", ratio, lambda value: 0 <= value <= 1, "from 0 to 1")
    scaled = ratio * _growth(base_batch, batch)
    require("warm-up ratio at the new batch", scaled, lambda value: value <= 1, "at most 1")
    return scaled


def untuned_lamb(batch: int) -> Recipe:
    """Returns the hyper-parameters of table 1 of the LAMB paper for a batch size.

    The learning rate is 5 / (2**x * 1000) where the batch is 32768 / 4**x; the warm-up takes
    1/320 of the run at batch 512, linearly more above, hence 3125 updates at any batch; and the
    run sees the 512,000,000 examples of a million updates at batch 512. From 512 to 32768, in
    powers of two, that is the table as published. At other sizes the rules go on unproven, and
    where the examples do not divide, the updates are rounded up: no run sees fewer of them.

    Args:
        batch: examples per update, whole, from 1 to 163,840; there the warm-up is the whole run.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: `batch` is outside of its range or not whole.

    Examples:
        >>> from bert_lamb.optim.scaling import untuned_lamb
        >>> untuned_lamb(512)
        Recipe(learning_rate=0.000625, warmup_ratio=0.003125, warmup_steps=3125, steps=1000000)
        >>> untuned_lamb(32768)
        Recipe(learning_rate=0.005, warmup_ratio=0.2, warmup_steps=3125, steps=15625)

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, table 1.
    """
    limit = _EXAMPLES // _WARMUP_STEPS
    require(
        "batch",
        batch,
        lambda value: value.is_integer() and 1 <= value <= limit,
        f"a whole number of examples from 1 to {limit}",
    )
    return Recipe(
        sqrt_scaled(5e-3, _LARGEST_BATCH, batch),
        linear_epoch_warmup(1 / 320, _SMALLEST_BATCH, batch),
        _WARMUP_STEPS,
        math.ceil(_EXAMPLES / batch),
    )


def _growth(base_batch: int, batch: int) -> float:
    for name, value in (("base_batch", base_batch), ("batch", batch)):
        require(name, value, lambda value: 0 < value < math.inf, "more than 0")
    return batch / base_batch
