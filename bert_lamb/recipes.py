"""The recipes of configs/: what was published, and the runs that follow from it.

`TABLE_1` holds the paper's numbers, `MLPERF` the benchmark's. `one_batch` computes a run of one
batch size from the batch and a budget of tokens by the paper's rules: the learning rate grows with
the square root of the batch, the warm-up in epochs linearly, so that its updates stay the same.
Runs that no rule gives are written out as `Stage`s.

References:
    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
    https://arxiv.org/abs/1904.00962, table 1 and section 4.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from bert_lamb.config import PRESETS

# Every row of table 1 sees the same text: a million batches of 512 rows, 8.52e10 tokens.
TOKENS = 85_196_800_000
SHORT, LONG = 128, 512  # tokens per row in the two phases
SHORT_TENTHS = 9  # tenths of the epochs at SHORT
BASE_BATCH, BASE_RATE = 512, 6.25e-4
WARMUP_STEPS = 3_125

PREDICTIONS = {SHORT: 20, LONG: 80}  # masked positions per row
CORES_PER_CHIP = 2  # TPU v3


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of table 1 as published.

    Attributes:
        config: name of the file under configs/.
        batches: rows per update, of each phase if these differ.
        steps: updates of the whole run.
        f1: on the development set of SQuAD v1.1, in per cent.
        chips: TPU v3.
        minutes: of the whole run.
        rate_exponent: x of the learning rate 5 / (2^x 1000).
        warmup_ratio: part of the run that warms up.
        lars_f1: of LARS at the same batch, where the table has it; NaN where it diverged.
    """

    config: str
    batches: tuple[int, ...]
    steps: int
    f1: float
    chips: int
    minutes: float
    rate_exponent: float | None = None
    warmup_ratio: float | None = None
    lars_f1: float | None = None

    @property
    def peak_lr(self) -> float | None:
        """The published learning rate, where there is one for the row."""
        return None if self.rate_exponent is None else 5 / (2**self.rate_exponent * 1000)


TABLE_1 = (
    Row("bert_large_adamw_512", (512,), 1_000_000, 90.395, 16, 81.4 * 60),
    Row("bert_large_512", (512,), 1_000_000, 91.752, 16, 82.8 * 60, 3.0, 1 / 320, 90.717),
    Row("bert_large_1k", (1_024,), 500_000, 91.761, 32, 43.2 * 60, 2.5, 1 / 160, 90.369),
    Row("bert_large_2k", (2_048,), 250_000, 91.946, 64, 21.4 * 60, 2.0, 1 / 80, 90.748),
    Row("bert_large_4k", (4_096,), 125_000, 91.137, 128, 693.6, 1.5, 1 / 40, 90.537),
    Row("bert_large_8k", (8_192,), 62_500, 91.263, 256, 390.5, 1.0, 1 / 20, 90.548),
    Row("bert_large_16k", (16_384,), 31_250, 91.345, 512, 200.0, 0.5, 1 / 10, 89.589),
    Row("bert_large_32k", (32_768,), 15_625, 91.475, 1_024, 101.2, 0.0, 1 / 5, math.nan),
    Row("bert_large_64k_32k", (65_536, 32_768), 8_599, 90.584, 1_024, 76.19),
)


class Mlperf(NamedTuple):
    """LAMB's settings for one batch of MLPerf's BERT benchmark, as its reference publishes them.

    Attributes:
        peak_lr: learning rate that the warm-up heads for.
        b1: decay rate of the first moment.
        b2: decay rate of the second moment.
        weight_decay: coefficient of the decay.
        warmup_steps: updates of warm-up.
        warmup_start: step at which the warm-up's line crosses 0.
        steps: updates over which the rate decays.
    """

    peak_lr: float
    b1: float
    b2: float
    weight_decay: float
    warmup_steps: int
    warmup_start: int
    steps: int


MLPERF = {
    256: Mlperf(3.5e-4, 0.9, 0.999, 0.01, 0, 0, 13_700),
    1_536: Mlperf(2e-3, 0.66, 0.996, 0.01, 0, 0, 2_254),
    3_072: Mlperf(2e-3, 0.66, 0.998, 0.01, 100, 0, 1_141),
    4_608: Mlperf(3.5e-3, 0.62, 0.9, 0.01, 0, 0, 700),
    8_192: Mlperf(2.88293e-3, 0.88, 0.88, 0.0166629, 287, -76, 600),
    16_384: Mlperf(3.3e-3, 0.75, 0.9, 0.0166629, 290, -100, 600),
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """One phase of a run that is written out number by number; keys as in `PhaseConfig`.

    Attributes:
        global_batch: rows per update.
        seq_length: tokens per row.
        steps: updates.
        peak_lr: learning rate at the end of the warm-up.
        warmup_steps: updates of warm-up.
        options: further keys of the phase.
    """

    global_batch: int
    seq_length: int
    steps: int
    peak_lr: float
    warmup_steps: int
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def phase(self) -> dict[str, Any]:
        """Returns the phase as a section of a configuration."""
        return {
            "records": "",
            "heldout": "",
            "seq_length": self.seq_length,
            "global_batch": self.global_batch,
            "steps": self.steps,
            "max_predictions": PREDICTIONS[self.seq_length],
            "peak_lr": self.peak_lr,
            "warmup_steps": self.warmup_steps,
            **self.options,
        }


def learning_rate(global_batch: int, base_rate: float = BASE_RATE) -> float:
    """Returns `base_rate`, that of batch 512, scaled with the square root of the batch."""
    return base_rate * math.sqrt(global_batch / BASE_BATCH)


def split_steps(global_batch: int, tokens: int = TOKENS) -> tuple[int, int]:
    """Returns the updates at 128 and at 512 tokens that take a budget of tokens.

    Nine tenths of the epochs, and so of the updates, are short; where the tenth does not divide,
    the odd update is short too.

    Args:
        global_batch: rows per update.
        tokens: of both phases.
    """
    tokens_of_ten = global_batch * (SHORT_TENTHS * SHORT + (10 - SHORT_TENTHS) * LONG)
    total = -(-tokens * 10 // tokens_of_ten)
    long = total * (10 - SHORT_TENTHS) // 10
    return total - long, long


def one_batch(
    global_batch: int,
    *,
    chips: int | None = None,
    size: str = "large",
    tokens: int = TOKENS,
    base_rate: float = BASE_RATE,
    warmup_steps: int = WARMUP_STEPS,
    optimizer: Mapping[str, Any] | None = None,
) -> ml_collections.ConfigDict:
    """Returns a run of one batch size by the rules of table 1.

    Both phases follow one schedule: linear warm-up, then linear decay counted from step 0, as in
    Google's code, over the updates of the whole run. The table warms up once, in parts of the
    whole run, and has the re-warm-up for the mixed batch alone.

    Args:
        global_batch: rows per update.
        chips: TPU v3 that the run is laid out for; None takes the table's, one for 32 rows.
        size: key of `bert_lamb.config.PRESETS`.
        tokens: budget of both phases.
        base_rate: learning rate at batch 512.
        warmup_steps: updates of warm-up.
        optimizer: keys of the optimizer that differ from LAMB's.
    """
    short, long = split_steps(global_batch, tokens)
    course = {"decay_form": "from_zero", "schedule_steps": short + long}
    follows = course | {"schedule_from": short, "carry": "weights_and_moments"}
    rate = learning_rate(global_batch, base_rate)
    stages = (
        Stage(global_batch, SHORT, short, rate, warmup_steps, course),
        Stage(global_batch, LONG, long, rate, warmup_steps, follows),
    )
    return run(stages, chips=chips or global_batch // 32, size=size, optimizer=optimizer)


def mixed_batch(
    *,
    chips: int,
    size: str = "large",
    steps: tuple[int, int] = (7_037, 1_562),
    carry: str = "weights",
    optimizer: Mapping[str, Any] | None = None,
) -> ml_collections.ConfigDict:
    """Returns a run of 65,536 short rows, then 32,768 long ones, warmed up again in between.

    The rates and warm-ups are NVIDIA's, since the paper gives none: square root decay counted from
    each phase's step 0.

    Args:
        chips: TPU v3 that the run is laid out for.
        size: key of `bert_lamb.config.PRESETS`.
        steps: updates of the phases; default: the paper's.
        carry: what the second phase inherits.
        optimizer: keys of the optimizer that differ from LAMB's.
    """
    course = {"decay_form": "from_zero", "decay_power": 0.5}
    stages = (
        Stage(65_536, SHORT, steps[0], 6e-3, 2_000, course),
        Stage(32_768, LONG, steps[1], 4e-3, 200, course | {"carry": carry}),
    )
    return run(stages, chips=chips, size=size, optimizer=optimizer)


def mlperf(global_batch: int) -> ml_collections.ConfigDict:
    """Returns a run of MLPerf's BERT benchmark: phase 2 alone, from a checkpoint of phase 1.

    Args:
        global_batch: rows of 512 tokens per update, a key of `MLPERF`.
    """
    settings = MLPERF[global_batch]
    options = {
        "decay_form": "mlperf",
        "warmup_start": settings.warmup_start,
        "max_predictions": 76,  # of the benchmark's own records
    }
    stage = Stage(
        global_batch, LONG, settings.steps, settings.peak_lr, settings.warmup_steps, options
    )
    optimizer = {key: getattr(settings, key) for key in ("b1", "b2", "weight_decay")}
    config = run([stage], chips=4, optimizer=optimizer)
    # No such folder: whoever forgets to name a checkpoint is told so.
    config.init_from = "CHECKPOINT_OF_PHASE_1"
    return config


def run(
    stages: Sequence[Stage],
    *,
    chips: int,
    size: str = "large",
    optimizer: Mapping[str, Any] | None = None,
) -> ml_collections.ConfigDict:
    """Returns the configuration of a run on a slice of a TPU v3 pod.

    Args:
        stages: its phases.
        chips: TPU v3 that it is laid out for.
        size: key of `bert_lamb.config.PRESETS`.
        optimizer: keys of the optimizer that differ from LAMB's.
    """
    total = sum(stage.steps for stage in stages)
    pace = 500 * max(1, total // 100_000)
    rows = min(2_048, 16 * chips * CORES_PER_CHIP)
    layout = pod_layout()
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "model": {**PRESETS[size], "activation": "gelu_tanh", **layout["model"]},
            "optimizer": {"weight_decay": 0.01, "clip_norm": 1.0, **(optimizer or {})},
            "phases": [
                {**stage.phase(), "max_rows_per_device": layout["rows"][stage.seq_length]}
                for stage in stages
            ],
            "parallel": layout["parallel"],
            "checkpoint": {"every_steps": pace, "keep": 3},
            "evaluation": {
                "every_steps": min(pace, total // 10),
                "batch": rows,
                "max_examples": 10_240,
            },
            "logging": {"every_steps": pace // 25, "tensorboard": True},
        }
    )


def pod_layout() -> dict[str, Any]:
    """Returns what makes a run fast on a slice of a TPU v3 pod; it changes rounding at most.

    Parameters and moments are cut over one ring of the torus.

    Returns:
        Keys of the sections `model` and `parallel`, and under `rows` the rows of one pass on a
        core by tokens per row.
    """
    return {
        "model": {"dtype": "bfloat16", "dropout_rng": "rbg", "vocab_multiple": 1_024},
        "parallel": {"fsdp": 0, "gather": "step", "reduce_dtype": "bfloat16"},
        "rows": {SHORT: 32, LONG: 16},
    }
