"""Loss and accuracy of masked-language-model and next-sentence prediction on held-out records."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_lamb import model
from bert_lamb.config import ModelConfig
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.exchange import Exchange
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import ROWS

Params = dict
Evaluator = Callable[[Params, Mapping[str, np.ndarray]], dict[str, float]]


@dataclass(frozen=True)
class HeldoutScore:
    """Means over the whole evaluation set, each counted once.

    Attributes:
        seq_length: tokens per row.
        mlm_loss: mean cross-entropy of the masked tokens, nats.
        mlm_accuracy: share of the masked tokens that the model ranks first.
        nsp_loss: mean cross-entropy of the sentence label (next or random; swapped or not), nats.
        nsp_accuracy: share of the pairs judged rightly.
        masked_tokens: number of masked tokens.
        pairs: number of examples with a sentence label; where it is 0, so are loss and accuracy.
        examples: number of examples.
    """

    seq_length: int
    mlm_loss: float
    mlm_accuracy: float
    nsp_loss: float
    nsp_accuracy: float
    masked_tokens: int
    pairs: int
    examples: int

    def to_dict(self) -> dict[str, float]:
        """Returns the scores by name."""
        return asdict(self)

    def describe(self) -> str:
        """Returns the scores in a line."""
        nsp = f"; NSP loss {self.nsp_loss:.4f}, accuracy {self.nsp_accuracy:.4f}"
        return (
            f"held out, {self.seq_length} tokens: MLM loss {self.mlm_loss:.4f}, accuracy "
            f"{self.mlm_accuracy:.4f}{nsp if self.pairs else ''} ({self.examples} examples)"
        )


def build_evaluator(config: ModelConfig, layout: Layout) -> Evaluator:
    """Returns a function (params, batch of host arrays) -> sums, compiled once per batch shape.

    Args:
        config: of the model.
        layout: of its parameters.
    """

    @jax.jit
    @partial(
        jax.shard_map,
        mesh=layout.mesh,
        in_specs=(layout.local(), PartitionSpec(ROWS)),
        out_specs=PartitionSpec(),
        axis_names=set(ROWS),
    )
    def sums(params: Params, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        weights = Exchange(layout, model.weight_dtypes(config, params)).gather(params)
        local = model.pretraining_sums(model.apply(config, weights, batch), batch)
        weighs = jnp.any(batch["masked_lm_weights"] > 0, axis=1)
        weighs |= batch["next_sentence_weights"] > 0
        examples = jnp.sum(weighs.astype(jnp.float32))
        return jax.lax.psum({**local._asdict(), "examples": examples}, ROWS)

    def evaluator(params: Params, batch: Mapping[str, np.ndarray]) -> dict[str, float]:
        fetched = jax.device_get(sums(params, put_batch(batch, layout.mesh)))
        return {name: float(value) for name, value in fetched.items()}

    return evaluator


def evaluate(
    evaluator: Evaluator,
    params: Params,
    batches: Iterable[Mapping[str, np.ndarray]],
    seq_length: int,
) -> HeldoutScore:
    """Scores `params` on all `batches`; rows of weight 0 (padding of the last one) do not count.

    Sums are added up on the host in double precision, so the batch size does not matter.

    Args:
        evaluator: from `build_evaluator`.
        params: of the model.
        batches: as `bert_lamb.data.batches.pipeline.eval_batches` gives them.
        seq_length: tokens per row, for the record.
    """
    parts = [evaluator(params, batch) for batch in batches]
    total = {name: math.fsum(part[name] for part in parts) for name in parts[0]}
    mlm, nsp = max(total["mlm_weight"], 1), max(total["nsp_weight"], 1)
    return HeldoutScore(
        seq_length=seq_length,
        mlm_loss=total["mlm_loss"] / mlm,
        mlm_accuracy=total["mlm_correct"] / mlm,
        nsp_loss=total["nsp_loss"] / nsp,
        nsp_accuracy=total["nsp_correct"] / nsp,
        masked_tokens=int(total["mlm_weight"]),
        pairs=int(total["nsp_weight"]),
        examples=int(total["examples"]),
    )
