"""What a model that never looks at the context would score: the floor for a pretrained one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class UnigramScore:
    """Held-out scores of token frequencies.

    Attributes:
        token: id of the training text's most frequent token.
        accuracy: share of the masked tokens that are `token`: that of always answering it.
        loss: mean cross-entropy, nats, of the training frequencies with one added to each.
    """

    token: int
    accuracy: float
    loss: float


def token_counts(rows: Iterable[np.ndarray], vocab_size: int) -> np.ndarray:
    """Counts ordinary occurrences of every id.

    Args:
        rows: arrays of token ids.
        vocab_size: V.

    Returns:
        i64 [V].
    """
    counts = np.zeros(vocab_size, np.int64)
    for ids in rows:
        counts += np.bincount(ids, minlength=vocab_size)
    return counts


def score_unigram(counts: np.ndarray, batches: Iterable[Mapping[str, np.ndarray]]) -> UnigramScore:
    """Scores the frequencies `counts` on the masked tokens of `batches`.

    Args:
        counts: i64 [V], of the training text.
        batches: with `masked_lm_ids` [B, P] and `masked_lm_weights` [B, P].
    """
    token = int(np.argmax(counts))
    log_probability = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    hits = total = 0
    loss = 0.0
    for batch in batches:
        labels = batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]
        hits += int(np.sum(labels == token))
        total += labels.size
        loss -= float(np.sum(log_probability[labels]))
    return UnigramScore(token=token, accuracy=hits / max(total, 1), loss=loss / max(total, 1))
