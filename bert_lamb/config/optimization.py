"""The sections that say how parameters change: the optimizer, and the phases with their rates."""

from dataclasses import dataclass, fields
from typing import Literal

from bert_lamb.config.checks import require

# Who takes what. Everything else (name, b1, weight_decay, clip, exclude) is for all of them.
_TAKEN_BY: dict[str, tuple[str, ...]] = {
    "b2": ("lamb", "lans", "adamw"),
    "eps": ("lamb", "lans", "adamw"),
    "bias_correction": ("adamw",),
    "moment_dtype": ("lamb", "lans", "adamw"),
    "phi_bounds": ("lamb", "lars", "lans"),
    "variant": ("lamb",),
    "nesterov": ("lamb",),
    "pre_normalize": ("lamb",),
    "ratio_bounds": ("lamb",),
}


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer, by default LAMB with its authors' constants.

    What the named optimizer does not take has to stay as it is here: a key that changed nothing
    would be a trap.

    Attributes:
        name: "lamb", "lars" (both You et al., arXiv 1904.00962), "lans" (Zheng et al.,
            arXiv 2006.13484) or "adamw" (Loshchilov and Hutter, arXiv 1711.05101).
        b1: decay rate of the first moment, or of LARS's momentum.
        b2: decay rate of the second moment; not for LARS.
        eps: added outside the square root; not for LARS.
        weight_decay: coefficient of the decay, inside the normalized direction where there is one.
        bias_correction: for AdamW: divide the moments by 1 - b^t; off in Google's BERT. LAMB has
            its variant "v3" for this.
        moment_dtype: in which LAMB, LANS and AdamW store their moments.
        clip_norm: limit on the norm of the mean gradient; None switches clipping off. LANS, which
            divides each tensor's gradient by its norm, has no use for a global limit and leaves the
            default aside.
        clip: "global" scales the mean gradient of the whole batch by its norm. "bucket" scales
            each device's own gradient of every layer to clip_norm / sqrt(number of buckets), before
            the devices are averaged: nothing waits for the norm of the whole (Kim et al.,
            arXiv 2402.02447), but the result depends on the number of devices.
        exclude: path patterns (regular expressions, whole path) of the tensors that neither decay
            nor adapt.
        variant: of LAMB: "v5" is the paper's final version, "v3" lacks the correction of the bias,
            "nvlamb" adapts all tensors, "apex" what decays, "lambc" limits the ratio to 1,
            "bounded" to `ratio_bounds` (docs/optimizers.md).
        nesterov: of LAMB: "first" is N-LAMB, "both" NN-LAMB.
        pre_normalize: for LAMB: divide the mean gradient by its norm, large or small; in place of
            clip_norm.
        phi_bounds: limits on the norm of a tensor in its trust ratio; None for no limits.
        ratio_bounds: limits on the trust ratio for the variant "bounded"; None takes its own.
    """

    name: Literal["lamb", "lars", "lans", "adamw"] = "lamb"
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True
    moment_dtype: Literal["float32", "bfloat16"] = "float32"
    clip_norm: float | None = 1.0
    clip: Literal["global", "bucket"] = "global"
    exclude: tuple[str, ...] = (r".*/bias", r".*norm.*/scale")
    variant: Literal["v5", "v3", "nvlamb", "apex", "lambc", "bounded"] = "v5"
    nesterov: Literal["none", "first", "both"] = "none"
    pre_normalize: bool = False
    phi_bounds: tuple[float, ...] | None = None
    ratio_bounds: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for key in ("b1", "b2"):
            require(0 <= getattr(self, key) < 1, key, getattr(self, key), "a rate in [0, 1)")
        require(self.eps > 0, "eps", self.eps, "more than 0")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        self._check_taken()
        self._check_clipping()
        for key in ("phi_bounds", "ratio_bounds"):
            _check_bounds(key, getattr(self, key))
        require(
            self.ratio_bounds is None or self.variant == "bounded",
            "ratio_bounds",
            self.ratio_bounds,
            f'None, since variant = "{self.variant}"; limits on the ratio are for "bounded"',
        )

    @property
    def own_adaptation(self) -> bool:
        """Whether LAMB's variant decides by itself what adapts, and clips to a norm of its own."""
        return self.variant in ("nvlamb", "apex")

    def _check_taken(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        for key, takers in _TAKEN_BY.items():
            value = getattr(self, key)
            require(
                self.name in takers or value == defaults[key],
                key,
                value,
                f'{defaults[key]!r}, its default, since "{self.name}" does not take it',
            )

    def _check_clipping(self) -> None:
        limit, one_limit = self.clip_norm, self.clip == "global"
        require(
            limit is None or limit > 0, "clip_norm", limit, "more than 0, or None for no clipping"
        )
        require(
            one_limit or limit is not None, "clip_norm", limit, 'a limit, since clip = "bucket"'
        )
        if self.own_adaptation:
            why = f'since variant = "{self.variant}" clips the mean gradient'
            require(one_limit, "clip", self.clip, f'"global", {why}')
            require(limit is not None, "clip_norm", limit, f"a limit, {why}")
        require(
            not (self.pre_normalize and one_limit and limit is not None),
            "clip_norm",
            limit,
            "None, since pre_normalize makes every mean gradient's norm 1",
        )
        default = OptimizerConfig.clip_norm
        require(
            self.name != "lans" or not one_limit or limit in (None, default),
            "clip_norm",
            limit,
            f'{default} or None, since "lans" divides each tensor\'s gradient by its norm',
        )


def _check_bounds(key: str, bounds: tuple[float, ...] | None) -> None:
    ok = bounds is None or (len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] and bounds[1] > 0)
    require(ok, key, bounds, "two numbers, 0 <= lower <= upper, or None for no limits")


@dataclass(frozen=True)
class TrainingPhase:
    """One phase of a run: its batches, its learning rate and what it inherits.

    Attributes:
        seq_length: tokens per row T.
        global_batch: rows per optimizer update over all devices.
        steps: optimizer updates in this phase.
        peak_lr: learning rate at the end of the warm-up.
        warmup_steps: updates of linear warm-up from 0.
        constant_steps: updates at the peak between warm-up and decay, as LANS has them; only with
            the form "continuous".
        decay_power: exponent of the polynomial decay to 0; 1 is linear.
        decay_form: "continuous" decays over the steps after the warm-up; "from_zero" counts the
            decay from the phase's step 0 as Google's and NVIDIA's code do, so that the rate drops
            when the warm-up ends; "mlperf" is the formula of MLPerf's reference, which drops
            likewise and ends with an update of rate 0.
        warmup_start: step, 0 or less, at which MLPerf's warm-up would have the rate 0: a negative
            one starts part of the way up; only with the form "mlperf".
        schedule_steps: updates of a schedule that spans several phases; 0 takes those of the phase.
        schedule_from: updates of that schedule that lie before this phase.
        carry: what is taken over from the phase before: "weights", or "weights_and_moments"
            (with the update count of their bias correction).
        max_rows_per_device: rows of one forward and backward pass; a larger share of the batch is
            accumulated. 0 takes the whole share at once.
    """

    seq_length: int = 128
    global_batch: int = 32
    steps: int = 1000
    peak_lr: float = 1e-3
    warmup_steps: int = 100
    constant_steps: int = 0
    decay_power: float = 1.0
    decay_form: Literal["continuous", "from_zero", "mlperf"] = "continuous"
    warmup_start: int = 0
    schedule_steps: int = 0
    schedule_from: int = 0
    carry: Literal["weights", "weights_and_moments"] = "weights"
    max_rows_per_device: int = 0

    def __post_init__(self) -> None:
        require(self.seq_length >= 8, "seq_length", self.seq_length, "at least 8 tokens")
        for key in ("global_batch", "steps"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        require(self.steps < 2**31, "steps", self.steps, "fewer than 2**31")
        self._check_rates()
        require(
            self.max_rows_per_device >= 0,
            "max_rows_per_device",
            self.max_rows_per_device,
            "0 or more",
        )

    @property
    def schedule_length(self) -> int:
        """Updates of the schedule of which this phase takes its rates."""
        return self.schedule_steps or self.steps

    def _check_rates(self) -> None:
        require(self.peak_lr > 0, "peak_lr", self.peak_lr, "more than 0")
        require(self.decay_power > 0, "decay_power", self.decay_power, "more than 0")
        for key in ("schedule_steps", "schedule_from"):
            require(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        total = self.schedule_length
        require(
            self.schedule_from + self.steps <= total,
            "schedule_steps",
            self.schedule_steps,
            f"at least schedule_from + steps = {self.schedule_from + self.steps}",
        )
        mlperf, continuous = (self.decay_form == form for form in ("mlperf", "continuous"))
        require(
            self.warmup_start == 0 or (mlperf and self.warmup_start < 0),
            "warmup_start",
            self.warmup_start,
            "0 or less" if mlperf else f'0, since decay_form = "{self.decay_form}"',
        )
        limit = "schedule_steps" if self.schedule_steps else "steps"
        limit += " - warmup_start" if self.warmup_start else ""
        require(
            0 <= self.warmup_steps <= total - self.warmup_start,
            "warmup_steps",
            self.warmup_steps,
            f"between 0 and {limit} = {total - self.warmup_start}",
        )
        rest = total - self.warmup_steps
        require(
            self.constant_steps == 0 or (continuous and 0 <= self.constant_steps <= rest),
            "constant_steps",
            self.constant_steps,
            f"between 0 and the {rest} updates after the warm-up"
            if continuous
            else f'0, since decay_form = "{self.decay_form}"',
        )


@dataclass(frozen=True)
class PhaseConfig(TrainingPhase):
    """One phase of pretraining: a `TrainingPhase` with its records, whose rows have `seq_length`.

    Attributes:
        records: directory of the records (`bert-lamb data build`), local or gs://.
        max_predictions: masked positions per row P (a static shape).
        heldout: directory of records to evaluate on; "" skips evaluation in this phase.
    """

    records: str = ""
    max_predictions: int = 20
    heldout: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            1 <= self.max_predictions <= self.seq_length - 2,
            "max_predictions",
            self.max_predictions,
            f"at least 1 and at most seq_length - 2 = {self.seq_length - 2}",
        )
