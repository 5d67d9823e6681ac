"""Speed: tokens and sequences a second, model FLOPs, and their share of the device's peak."""

import time
from dataclasses import dataclass

# Dense bf16 FLOP/s of one JAX device by its `device_kind`, from the vendors' data sheets (no
# sparsity). On TPU v2, v3 and TPU7x a JAX device is one of the two cores of a chip.
PEAK_FLOPS: dict[str, float] = {
    "TPU v2": 45e12 / 2,
    "TPU v3": 123e12 / 2,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU7x": 2307e12 / 2,
    "Tesla V100-SXM2-16GB": 125e12,
    "Tesla V100-SXM2-32GB": 125e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


@dataclass(frozen=True)
class Speed:
    """Rates over a stretch of steps.

    Attributes:
        seconds_per_step: wall seconds.
        sequences: rows a second.
        tokens: tokens a second, padding left out.
        padding: share of the positions that are padding.
        model_flops: FLOP/s of the model's matrix products, forward and backward, padding
            included, recomputation not.
        peak_share: `model_flops` over the peak of all devices; None where the peak is unknown.
    """

    seconds_per_step: float
    sequences: float
    tokens: float
    padding: float
    model_flops: float
    peak_share: float | None


class Stopwatch:
    """Times stretches of steps between moments at which the device is known to have caught up.

    The caller opens a stretch with `start` and closes it with `stop`, both right after a value
    of the last step has arrived on the host. Compilation, evaluation and checkpoints fall between
    stretches and are thereby left out.
    """

    def __init__(
        self, *, rows: int, seq_length: int, flops_per_row: int, device_kind: str, devices: int
    ) -> None:
        """Takes what one step computes: `rows` of `seq_length` tokens on `devices` devices."""
        self._rows, self._seq_length, self._flops = rows, seq_length, flops_per_row
        peak = PEAK_FLOPS.get(device_kind)
        self._peak = None if peak is None else peak * devices
        self._began: float | None = None
        self.seconds = 0.0
        self.steps = 0
        self.tokens = 0.0

    def start(self) -> None:
        """Opens a stretch."""
        self._began = time.perf_counter()

    def stop(self, steps: int, tokens: float) -> Speed | None:
        """Closes the stretch of `steps` steps over `tokens` real tokens; opens the next.

        Returns None if no stretch was open or nothing was done in it.
        """
        began, self._began = self._began, time.perf_counter()
        if began is None or steps == 0:
            return None
        self.seconds += self._began - began
        self.steps += steps
        self.tokens += tokens
        return self._speed(self._began - began, steps, tokens)

    def pause(self) -> None:
        """Leaves out what happens until the next `start`."""
        self._began = None

    def total(self) -> Speed | None:
        """Returns the rates over all stretches, None if there was none."""
        return self._speed(self.seconds, self.steps, self.tokens) if self.steps else None

    def _speed(self, seconds: float, steps: int, tokens: float) -> Speed:
        rows = steps * self._rows
        flops = rows * self._flops / seconds
        return Speed(
            seconds_per_step=seconds / steps,
            sequences=rows / seconds,
            tokens=tokens / seconds,
            padding=1 - tokens / (rows * self._seq_length),
            model_flops=flops,
            peak_share=None if self._peak is None else flops / self._peak,
        )
