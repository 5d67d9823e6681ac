"""Requests to stop, taken between two steps."""

import os
import signal
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Turns the first SIGTERM or SIGINT into a request to save and leave.

    A second one acts as usual, so that a run that cannot finish its step can still be ended. Use
    as a context manager, in the main thread.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number
        # Not print: the signal may have come in the middle of one.
        os.write(2, b"\nstopping: this step is finished and saved first; again to stop at once\n")
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
