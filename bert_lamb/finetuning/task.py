"""A fine-tuning task as the trainer sees it, whatever it learns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from etils import epath

from bert_lamb import model
from bert_lamb.config import ModelConfig, RunConfig
from bert_lamb.data.tokenization import TextOptions, Tokenizer, load_tokenizer
from bert_lamb.finetuning.batches import Rows, shuffled_batches
from bert_lamb.finetuning.config import FinetuneConfig, with_shape
from bert_lamb.finetuning.forward import Forward, build_forward
from bert_lamb.finetuning.pretrained import Pretrained, open_pretrained, take_over
from bert_lamb.model import Objective
from bert_lamb.parallel.layout import Layout
from bert_lamb.training.state import Params
from bert_lamb.training.task import HostBatch, Score, Scorer

# Name of the tokenizer's hash among the sources of a run.
TOKENIZER = "tokenizer"

Evaluate = Callable[[Forward, Layout, Params], Score]


@dataclass(frozen=True)
class Start:
    """What a run starts from.

    Attributes:
        model: of the configuration, with the shape that it starts from.
        tokenizer: of the run.
        pretrained: weights to take over; None for random ones.
    """

    model: ModelConfig
    tokenizer: Tokenizer
    pretrained: Pretrained | None


def open_start(config: FinetuneConfig) -> Start:
    """Opens the checkpoint, or the tokenizer, that a configuration names.

    Raises:
        ConfigError, CheckpointError, DataError: if there is none, or it does not fit.
    """
    if config.init_from:
        found = open_pretrained(config.init_from)
        shape = with_shape(config.model, found.shape, config.init_from)
        return Start(shape, found.tokenizer, found)
    tokenizer = load_tokenizer(config.vocab, TextOptions(lowercase=False) if config.cased else None)
    shape = replace(config.model, vocab_size=tokenizer.vocab_size)
    return Start(with_shape(config.model, shape, config.vocab), tokenizer, None)


@dataclass(frozen=True)
class Finetuning:
    """A fine-tuning task: a `bert_lamb.training.task.Task`.

    Attributes:
        config: of the run, resolved.
        run: what the trainer is told.
        objective: the model and its loss.
        start: weights and tokenizer.
        rows: from numbers of examples to a batch of them, ready for the objective.
        examples: numbers of the examples to learn from. int [N]
        sources: fingerprints of the data to learn from.
        evaluate: scores parameters; None where there is nothing to score on.
    """

    config: FinetuneConfig
    run: RunConfig
    objective: Objective
    start: Start
    rows: Rows
    examples: np.ndarray
    sources: dict[str, str]
    evaluate: Evaluate | None

    def weights(self, layout: Layout) -> tuple[Params, str] | None:
        """Takes over what the checkpoint has; draws the head."""
        if self.start.pretrained is None:
            return None
        given, origin = self.start.pretrained.read(layout)
        drawn = ", ".join(name for name in layout.shapes if name not in given) or "nothing"
        params = take_over(self.objective, self.run.seed, layout, given)
        return params, f"{origin}; drawn: {drawn}"

    def batches(self, index: int, start: int, rows: np.ndarray) -> Iterator[HostBatch]:
        """Yields shuffled batches."""
        return shuffled_batches(
            self.rows,
            self.examples,
            global_batch=self.run.phases[index].global_batch,
            seed=self.run.seed,
            start=start,
            rows=rows,
        )

    def scorer(self, layout: Layout) -> Scorer:
        """Returns what scores the evaluation data."""
        forward, evaluate = build_forward(self.objective, layout), self.evaluate

        def score(index: int, params: Params) -> Score | None:
            return None if evaluate is None else evaluate(forward, layout, params)

        return score

    def flops_per_row(self, index: int) -> int:
        """Counts the operations of the encoder; those of the head are less than a thousandth."""
        return model.encoder_flops(self.objective.config, self.run.phases[index].seq_length)

    def write_tokenizer(self, workdir: epath.Path) -> None:
        """Writes the tokenizer."""
        self.start.tokenizer.save(workdir)
