"""A progress bar for record builds."""

import sys
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


@contextmanager
def build_progress() -> Iterator[Callable[[Progress], None]]:
    """Gives a callback for `build_records` that draws a bar; silent where stderr is no terminal.

    A bar for each stage: done of all, per second, time left. While the text is read its size is
    not known (it may be packed), so that bar tells neither share nor time.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
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
