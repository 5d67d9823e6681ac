"""The progress of record builds: a bar on a terminal, a line now and then in a log."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar

from bert_lamb.data.building.build import Progress

_STAGES = {"read": "reading the text", "make": "making examples", "write": "writing shards"}
_SECONDS_BETWEEN_LINES = 30
_log = logging.getLogger(__name__)


@contextmanager
def build_progress() -> Iterator[Callable[[Progress], None]]:
    """Gives a callback for `build_records` that shows how far it is.

    For each stage: done of all, per second, time left. While the text is read its size is not
    known (it may be packed), so that stage tells neither share nor time.
    """
    if not sys.stderr.isatty():
        yield _Lines().show
        return
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        tasks = {}

        def show(progress: Progress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bar.add_task(_STAGES[progress.stage], total=None)
            bar.update(tasks[progress.stage], completed=progress.done, total=progress.total or None)

        yield show


class _Lines:
    """Writes a line for each stage, and one every half minute."""

    def __init__(self) -> None:
        self._stage = ""
        self._began = self._said = 0.0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._began, self._said = progress.stage, now, now
            _log.info("%s", _STAGES[progress.stage])
        elif now - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = now
            speed = progress.done / (now - self._began)
            known = progress.total and speed
            left = f", {(progress.total - progress.done) / speed:.0f} s left" if known else ""
            total = f" of {progress.total / 1e6:,.0f}" if progress.total else ""
            _log.info(
                "  %s%s MB, %.1f MB/s%s", f"{progress.done / 1e6:,.0f}", total, speed / 1e6, left
            )
