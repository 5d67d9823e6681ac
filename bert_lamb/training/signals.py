"""Requests to stop, taken between two steps, by all hosts after the same one."""

import os
import signal
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Turns the first SIGTERM or SIGINT into a request to save and leave.

    A second one acts as usual, so that a run that cannot finish its step can still be ended. With
    several hosts a signal to any of them stops all: JAX's preemption service takes SIGTERM there,
    and names a step that no host has passed; a second one changes nothing, and a host that hangs is
    the watchdog's. Use as a context manager, in the main thread.

    Attributes:
        received: number of the signal; None while there was none.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._alone = jax.process_count() == 1

    def __enter__(self) -> "StopSignals":
        if self._alone:
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        else:
            self._before = {signal.SIGINT: signal.signal(signal.SIGINT, _pass_on)}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def after(self, step: int) -> bool:
        """Says whether to stop after `step`, which has just been started; the same on all hosts."""
        if not self._alone and multihost_utils.reached_preemption_sync_point(step):
            self.received = signal.SIGTERM
        return self.received is not None

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number
        # Not print: the signal may have come in the middle of one.
        os.write(2, b"\nstopping: this step is finished and saved first; again to stop at once\n")
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _pass_on(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)
