"""Where the stages of a build run: here, in a pool of processes, or on Apache Beam.

A stage does pieces of work that depend on nothing but their arguments and leave their results in
files. A piece that is done is not done again, so a build that was killed goes on where it was.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, Protocol, TypeVar

from bert_lamb.data.errors import DataError, KeptWorkError

Item = TypeVar("Item", contravariant=True)
Result = TypeVar("Result", covariant=True)

_POLL_SECONDS = 0.2


class WorkerDiedError(KeptWorkError):
    """A process of the pool was killed; what was done so far is kept."""


class Stage(Protocol, Generic[Item, Result]):
    """Pieces of work of one kind."""

    @property
    def folder(self) -> str:
        """Where results are put down."""

    def run(self, item: Item) -> None:
        """Does a piece, unless it is done already, and leaves its result in a file."""

    def load(self, item: Item) -> Result:
        """Returns the result of a piece that is done."""


class Executor(Protocol):
    """Something that does pieces of work, in any order."""

    def run(
        self, stage: Stage[Any, Any], items: Sequence[Any], progress: Callable[[int], None]
    ) -> list[Any]:
        """Does all pieces and returns their results in order.

        Raises:
            DataError: the first that a piece raised, in the order of the pieces.
        """


class _Progress:
    """The amount of work done; shared by the processes of a pool."""

    def __init__(self) -> None:
        self.shared: Any = None
        self.report: Callable[[int], None] | None = None
        self.done = 0

    def add(self, amount: int) -> None:
        if self.shared is not None:
            with self.shared.get_lock():
                self.shared.value += amount
        elif self.report is not None:
            self.done += amount
            self.report(self.done)


_progress = _Progress()


def advance(amount: int) -> None:
    """Tells the progress display, from within a piece of work, that so much more is done."""
    _progress.add(amount)


class InProcess:
    """Does the work in the calling process."""

    def run(
        self, stage: Stage[Any, Any], items: Sequence[Any], progress: Callable[[int], None]
    ) -> list[Any]:
        """Does all pieces one after the other; see Executor."""
        _progress.done, _progress.report = 0, progress
        try:
            for item in items:
                stage.run(item)
        finally:
            _progress.report = None
        return [stage.load(item) for item in items]


class LocalPool:
    """Does the work in processes of this machine; a context manager.

    The calling script needs the usual `if __name__ == "__main__"` guard.

    Attributes:
        workers: processes.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        # Not fork: the tokenizer's threads, and JAX's if the caller uses it, do not survive it.
        context = multiprocessing.get_context("spawn")
        self._done = context.Value("q", 0)
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_start_worker, initargs=(self._done,)
        )

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(
        self, stage: Stage[Any, Any], items: Sequence[Any], progress: Callable[[int], None]
    ) -> list[Any]:
        """Does all pieces with a bounded number of them in flight; see Executor."""
        self._done.value = 0
        waiting = deque(items)
        flying: dict[Future[None], int] = {}
        faults: dict[int, BaseException] = {}
        try:
            while (waiting and not faults) or flying:
                while waiting and not faults and len(flying) < 2 * self.workers:
                    number = len(items) - len(waiting)
                    flying[self._pool.submit(_run, stage, waiting.popleft())] = number
                finished, _ = wait(flying, _POLL_SECONDS, FIRST_COMPLETED)
                for future in finished:
                    number = flying.pop(future)
                    if (error := future.exception()) is not None:
                        faults[number] = error
                progress(self._done.value)
        except BrokenProcessPool as error:
            raise _died(error) from error
        if faults:
            first = faults[min(faults)]
            if isinstance(first, BrokenProcessPool):
                raise _died(first) from first
            raise first
        return [stage.load(item) for item in items]


@contextlib.contextmanager
def local_executor(workers: int) -> Iterator[Executor]:
    """Gives an executor for this machine: a pool, or this process if `workers` is 1.

    Raises:
        DataError: if `workers` is less.
    """
    if workers < 1:
        raise DataError(f"workers = {workers}: expected at least 1")
    if workers == 1:
        yield InProcess()
        return
    with LocalPool(workers) as pool:
        yield pool


def _died(error: BaseException) -> WorkerDiedError:
    return WorkerDiedError(
        f"a worker process died ({error}); most often memory ran out: use fewer workers. What was "
        "done is kept, and the same command goes on from there"
    )


def _run(stage: Stage[Any, Any], item: Any) -> None:
    stage.run(item)


def _start_worker(done: Any) -> None:
    _progress.shared = done
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes take up the cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Ends this process when the main one was killed; the pool itself would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
