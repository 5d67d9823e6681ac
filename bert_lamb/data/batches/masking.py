"""Dynamic masking for the masked language model, vectorized over the batch.

What is masked in a row is a pure function of (seed, epoch, example index): each random number is
the value of a counter-based generator at a counter made of those and the position, so the batch
around a row, its place in it and the number of hosts do not matter.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 3.1, task 1.
    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), Philox4x32-10.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_lamb.config import MaskingConfig

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

# Words of the key: which of a row's random numbers are wanted.
_WHERE, _WHAT = 0, 1


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a vocabulary.

    Attributes:
        size: number of tokens V.
        mask_id: id of [MASK].
        ordinary_ids: ids of all tokens but special and unused ones. int32 [n]
    """

    size: int
    mask_id: int
    ordinary_ids: np.ndarray

    @cached_property
    def is_ordinary(self) -> np.ndarray:
        """Whether an id is an ordinary one. bool [V]."""
        table = np.zeros(self.size, bool)
        table[self.ordinary_ids] = True
        return table


@dataclass(frozen=True)
class Masked:
    """A masked batch; rows of `positions` ascend, and unused slots are 0 with weight 0.

    Attributes:
        input_ids: int32 [B, T]
        positions: of the predicted tokens. int32 [B, P]
        ids: the tokens that stood there. int32 [B, P]
        weights: 1.0 for a prediction, 0.0 for an unused slot. float32 [B, P]
    """

    input_ids: np.ndarray
    positions: np.ndarray
    ids: np.ndarray
    weights: np.ndarray


def mask_batch(
    input_ids: np.ndarray,
    *,
    epoch: np.ndarray,
    example: np.ndarray,
    seed: int,
    max_predictions: int,
    vocabulary: Vocabulary,
    config: MaskingConfig,
) -> Masked:
    """Chooses tokens to predict and hides them.

    Of the n ordinary tokens of a row, max(1, min(P, round(probability * n))) are predicted; none
    if n is 0. Special tokens, padding and [UNK] are never predicted nor changed. (Google's code
    also counts [CLS] and [SEP] in n and may predict [UNK].)

    Args:
        input_ids: whole rows with special tokens and padding. int32 [B, T]
        epoch: pass over the data, per row. integers [B]
        example: index of the row's example in the record set. integers [B]
        seed: of the masks; 0 to 2**32 - 1.
        max_predictions: slots per row P; at most T.
        vocabulary: of `input_ids`.
        config: shares of the recipe.
    """
    B, T = input_ids.shape
    P = max_predictions
    allowed = vocabulary.is_ordinary[input_ids]
    total = allowed.sum(axis=1)
    wanted = np.rint(config.probability * total).astype(np.int64)
    wanted = np.minimum(np.clip(wanted, 1, P), total)

    # The allowed positions with the lowest random numbers. The position in the low bits decides
    # ties; positions that are not allowed come last.
    where = _random_words(_WHERE, seed, epoch, example, T).astype(np.uint64)
    rank = np.where(allowed, where << _32 | np.arange(T, dtype=np.uint64), ~np.uint64(0))
    if P < T:
        rank = np.partition(rank, P, axis=1)
    chosen = np.sort(rank[:, :P], axis=1)
    used = np.arange(P) < wanted[:, None]
    positions = np.where(used, chosen & _LOW, T).astype(np.int64)
    positions.sort(axis=1)
    positions = np.where(used, positions, 0)

    rows = np.arange(B)[:, None]
    ids = np.where(used, input_ids[rows, positions], 0)
    what = _random_words(_WHAT, seed, epoch, example, 2 * P)
    share = what[:, :P] / 2.0**32
    pool = np.arange(vocabulary.size) if config.any_random_id else vocabulary.ordinary_ids
    # The high word of a product is uniform over [0, n) to one part in 2**32 / n.
    drawn = pool[(what[:, P:].astype(np.uint64) * np.uint64(len(pool)) >> _32).astype(np.int64)]
    shown = np.where(share < config.mask_share, vocabulary.mask_id, ids)
    is_random = (share >= config.mask_share) & (share < config.mask_share + config.random_share)
    shown = np.where(is_random, drawn, shown)

    masked = input_ids.copy()
    masked[np.broadcast_to(rows, (B, P))[used], positions[used]] = shown[used]
    return Masked(
        input_ids=masked,
        positions=positions.astype(np.int32),
        ids=ids.astype(np.int32),
        weights=used.astype(np.float32),
    )


def _random_words(
    purpose: int, seed: int, epoch: np.ndarray, example: np.ndarray, count: int
) -> np.ndarray:
    """Returns `count` random words for each row. uint32 [B, count]."""
    B = len(example)
    blocks = -(-count // 4)
    counter = np.empty((4, B, blocks), np.uint64)
    counter[0] = np.arange(blocks)
    counter[1] = np.asarray(epoch, np.uint64)[:, None]
    counter[2] = (np.asarray(example, np.uint64) & _LOW)[:, None]
    counter[3] = (np.asarray(example, np.uint64) >> _32)[:, None]
    words = philox(counter, (seed, purpose))
    return np.moveaxis(words, 0, -1).reshape(B, 4 * blocks)[:, :count]


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-10: four random 32-bit words for each counter of four 32-bit words.

    NumPy's own Philox takes one counter per object; here all rows are drawn at once.

    Args:
        counter: values below 2**32. uint64 [4, ...]
        key: two values below 2**32.

    Returns:
        uint32 [4, ...]
    """
    x0, x1, x2, x3 = counter
    for i in range(_ROUNDS):
        k0, k1 = (np.uint64((k + i * s) % 2**32) for k, s in zip(key, _KEY_STEPS, strict=True))
        product0, product1 = _MULTIPLIERS[0] * x0, _MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            product1 >> _32 ^ x1 ^ k0,
            product1 & _LOW,
            product0 >> _32 ^ x3 ^ k1,
            product0 & _LOW,
        )
    return np.stack([x0, x1, x2, x3]).astype(np.uint32)
