"""What the trainer is told of a task: pretraining, answers to questions, classes of texts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from etils import epath

from bert_lamb.config import RunConfig
from bert_lamb.model import Objective
from bert_lamb.parallel.layout import Layout
from bert_lamb.training.state import Params

HostBatch = dict[str, np.ndarray]


class Score(Protocol):
    """What an evaluation found."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the scores by name."""
        ...

    def describe(self) -> str:
        """Returns the scores in a line."""
        ...


# From the index of a phase and parameters to their score; None where there is nothing to score.
Scorer = Callable[[int, Params], Score | None]


class Task(Protocol):
    """A training task. The trainer knows nothing else of it.

    Batch t of a phase and its dropout are functions of (sources, seed, t): a run that is stopped
    anywhere and started again goes on from a step number alone.
    """

    @property
    def config(self) -> Any:
        """The dataclass that a working directory belongs to."""
        ...

    @property
    def run(self) -> RunConfig:
        """The phases, optimizer, mesh, checkpoints and logs of the run."""
        ...

    @property
    def objective(self) -> Objective:
        """The model and what is minimized."""
        ...

    @property
    def sources(self) -> Mapping[str, str]:
        """Fingerprints of what batches and first weights are made of, by name."""
        ...

    def weights(self, layout: Layout) -> tuple[Params, str] | None:
        """Returns the parameters to start from, placed, and where they are from; None draws them.

        Raises:
            CheckpointError: if they cannot be read or do not fit.
        """
        ...

    def batches(self, index: int, start: int, rows: np.ndarray) -> Iterator[HostBatch]:
        """Yields phase `index`'s batches from number `start` on, of each the numbered `rows`."""
        ...

    def scorer(self, layout: Layout) -> Scorer:
        """Returns what evaluates parameters that lie as `layout` says."""
        ...

    def flops_per_row(self, index: int) -> int:
        """Returns the model's operations for a row of phase `index`, see `model.flops_per_row`."""
        ...

    def write_tokenizer(self, workdir: epath.Path) -> None:
        """Writes the tokenizer into a working directory."""
        ...
