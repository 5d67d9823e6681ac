"""A progress bar for record builds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from bert_lamb.data.building.build import Progress


@contextmanager
def build_progress() -> Iterator[Callable[[Progress], None]]:
    """Gives a callback for `build_records` that draws a bar; silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("reading the text", total=None, note="")

        def show(progress: Progress) -> None:
            note = f"{progress.done / 1e6:,.1f} M characters"
            if progress.stage == "build":
                bar.update(
                    task,
                    description="making examples",
                    completed=progress.done,
                    total=progress.total,
                    note=f"{note}, {progress.examples:,} examples",
                )
            else:
                bar.update(task, note=note)

        yield show
