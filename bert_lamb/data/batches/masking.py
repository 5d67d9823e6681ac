"""Dynamic masking for the masked language model, vectorized over the batch.

What is masked in a row is a pure function of (seed, epoch, example index): each random number is
the value of a counter-based generator at a counter made of those and the position, so the batch
around a row, its place in it and the number of hosts do not matter.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 3.1, task 1.
    google-research/bert, create_pretraining_data.py, do_whole_word_mask: words in random order,
        those that exceed what is left of the budget are passed over.
    Lan et al., "ALBERT" (arXiv 1909.11942), section 4.1, n-gram masking (after Joshi et al.,
        arXiv 1907.10529), and google-research/albert, create_pretraining_data.py: one span from
        each word on, in random order, shortened until it fits.
    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), Philox4x32-10.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_lamb.config import MaskingConfig
from bert_lamb.data.errors import DataError

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_LAST = ~np.uint64(0)

# Words of the key: which of a row's random numbers are wanted.
_WHERE, _WHAT, _HOW_MANY = 0, 1, 2

# Rows are worked on in groups of so many tokens, whose arrays stay in a core's own cache.
_TOKENS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a vocabulary.

    Attributes:
        size: number of tokens V.
        mask_id: id of [MASK].
        ordinary_ids: ids of all tokens but special and unused ones; at least one. int32 [n]
        continues: whether a token goes on with the word of the token before it, such as "##ing".
            None: no token does, so each is a word. bool [V]

    Raises:
        DataError: if there is no ordinary token, or `continues` is not of V tokens.
    """

    size: int
    mask_id: int
    ordinary_ids: np.ndarray
    continues: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not len(self.ordinary_ids):
            raise DataError("vocabulary: no ordinary token, so there is nothing to predict")
        if self.continues is not None and self.continues.shape != (self.size,):
            raise DataError(
                f"continues: shape {self.continues.shape}: expected one flag for each of the "
                f"{self.size} tokens"
            )

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

    Of the n ordinary tokens of a row, the budget max(1, min(P, round(probability * n))) are
    predicted; none if n is 0. Special tokens, padding and [UNK] are never predicted nor changed.
    (Google's code also counts [CLS] and [SEP] in n and may predict [UNK].)

    With `whole_word` or `ngram`, spans are taken in random order while they fit into what is left
    of the budget, and others are passed over, so fewer tokens may be predicted. A word is an
    ordinary token and those that continue it; a special token ends it. Where every word is longer
    than the budget, the first tokens of one of them are predicted, as many as the budget allows.
    (Google's code predicts nothing there.)

    Args:
        input_ids: whole rows with special tokens and padding. int32 [B, T]
        epoch: pass over the data, per row. integers [B]
        example: index of the row's example in the record set. integers [B]
        seed: of the masks; 0 to 2**32 - 1.
        max_predictions: slots per row P; at most T.
        vocabulary: of `input_ids`.
        config: the recipe.
    """
    B, T = input_ids.shape
    P = max_predictions
    epoch = np.zeros(B, np.int64) if config.static else epoch
    masked = Masked(
        input_ids=input_ids.copy(),
        positions=np.zeros((B, P), np.int32),
        ids=np.zeros((B, P), np.int32),
        weights=np.zeros((B, P), np.float32),
    )
    continues = vocabulary.continues if config.whole_word else None
    for group in _groups(B, T):
        ids, draw = input_ids[group], _Draw(seed, epoch[group], example[group])
        allowed = vocabulary.is_ordinary[ids]
        total = allowed.sum(axis=1)
        budget = np.rint(config.probability * total).astype(np.int64)
        budget = np.minimum(np.clip(budget, 1, P), total)
        # The position in the low bits decides ties; positions that are not allowed come last.
        where = draw.words(_WHERE, T).astype(np.uint64)
        where <<= _32
        where |= np.arange(T, dtype=np.uint64)
        where[~allowed] = _LAST
        if config.whole_word or config.ngram > 1:
            words = _Words.of(ids, allowed, continues)
            chosen = _choose_spans(words, where, budget, config.ngram, draw)
            positions, used = _slots(chosen & allowed, P)
        else:
            positions, used = _choose_tokens(where, budget, P)
        _hide(masked, group, ids, positions, used, draw, vocabulary, config)
    return masked


def _groups(B: int, T: int) -> Iterator[slice]:
    rows = max(1, _TOKENS_AT_ONCE // T)
    return (slice(start, start + rows) for start in range(0, B, rows))


def _choose_tokens(where: np.ndarray, budget: np.ndarray, P: int) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the positions with the lowest random numbers.

    Args:
        where: a random number for each position, with the position in its low bits; those that
            may not be chosen come last. uint64 [B, T]
        budget: how many to choose, at most P. int64 [B]
        P: slots per row.

    Returns:
        Positions in ascending order, 0 in unused slots, int64 [B, P], and which slots are used,
        the first ones of each row, bool [B, P].
    """
    T = where.shape[1]
    if P < T:
        where = np.partition(where, P, axis=1)
    lowest = np.sort(where[:, :P], axis=1)
    used = np.arange(P) < budget[:, None]
    positions = np.where(used, lowest & _LOW, T).astype(np.int64)
    positions.sort(axis=1)
    return np.where(used, positions, 0), used


def _choose_spans(
    words: "_Words", where: np.ndarray, budget: np.ndarray, N: int, draw: "_Draw"
) -> np.ndarray:
    """Chooses spans of up to N neighbouring words.

    Args:
        words: of the rows.
        where: as for _choose_tokens; spans are taken in the order of their first positions' number.
        budget: how many tokens to choose at most. int64 [B]
        N: words of a span at most.
        draw: random numbers of the rows.

    Returns:
        Which positions are chosen; special tokens may be among them. bool [B, T]
    """
    B, T = where.shape
    order = np.where(words.starts, where, _LAST)
    order.sort(axis=1)
    W = max(1, int(words.count.max()))  # words of the longest row
    # Position of each word in the order of taking, and where the spans from there on end; slots
    # that no word is in get spans that never fit. [B, W], [N, B, W]
    present = np.arange(W) < words.count[:, None]
    first = np.where(present, (order[:, :W] & _LOW).astype(np.int64), T)
    ends = words.span_ends(first, N)
    sizes = np.where(present, ends - first, T + 1)
    length = _span_lengths(draw, first, ends, T)
    number = np.take_along_axis(words.number, np.minimum(first, T - 1), axis=1)
    # What a round of the loop needs lies together.
    sizes, length, number = (x.T.copy() for x in (sizes.swapaxes(0, 1), length, number))

    rows, offset = np.arange(B), np.arange(N)[:, None]
    covered = np.zeros((B, W + N), bool)  # by number of the word
    taken = np.zeros(B, np.int64)
    for k in range(W):
        left = budget - taken
        if not left.any():
            break
        fitting = np.minimum((sizes[k] <= left).sum(axis=0), length[k])
        inside = offset < fitting
        place = (rows, number[k] + offset)
        before = covered[place]
        take = (fitting > 0) & ~(before & inside).any(axis=0)
        covered[place] = before | (inside & take)
        taken += np.where(take, sizes[k, fitting - 1, rows], 0)

    chosen = covered[rows[:, None], words.number]
    # All words are longer than the budget: the beginning of the first one.
    start, none = first[:, :1], (taken == 0) & (budget > 0)
    column = np.arange(T)
    return chosen | (none[:, None] & (column >= start) & (column < start + budget[:, None]))


def _span_lengths(draw: "_Draw", first: np.ndarray, ends: np.ndarray, T: int) -> np.ndarray:
    """Draws how many words the span from each word on has: n with a probability as 1 / n.

    Args:
        draw: random numbers of the rows.
        first: position of each word; T for none. integers [B, W]
        ends: end of the span of 1 to N words from there on. integers [N, B, W]
        T: row length.

    Returns:
        1 to N, no more than there are words up to the next special token. int64 [B, W]
    """
    N = len(ends)
    if N == 1:
        return np.ones_like(first)
    words = np.take_along_axis(draw.words(_HOW_MANY, T), np.minimum(first, T - 1), axis=1)
    available = 1 + (np.diff(ends, axis=0) > 0).sum(axis=0)
    weights = np.cumsum(1 / np.arange(1, N + 1))
    share = words / 2.0**32 * weights[available - 1]
    return 1 + (share >= weights[: N - 1, None, None]).sum(axis=0)


def _slots(chosen: np.ndarray, P: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the chosen positions of each row, at most P, as _choose_tokens does."""
    used = np.arange(P) < chosen.sum(axis=1)[:, None]
    positions = np.zeros(used.shape, np.int64)
    positions[used] = np.nonzero(chosen)[1]  # both run row by row, left to right
    return positions, used


@dataclass(frozen=True)
class _Words:
    """The words of a batch.

    Attributes:
        starts: whether a word begins at a position. bool [B, T]
        number: which word of its row a position is in, or follows; 0 in front of the first.
            int64 [B, T]
        count: words per row. int64 [B]
        next: where the word at a position ends. int64 [B, T]
    """

    starts: np.ndarray
    number: np.ndarray
    count: np.ndarray
    next: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, allowed: np.ndarray, continues: np.ndarray | None) -> "_Words":
        """Finds the words of rows; without `continues`, each allowed token is one."""
        T = ids.shape[1]
        starts = allowed.copy()
        if continues is not None:
            starts[:, 1:] &= ~(continues[ids[:, 1:]] & allowed[:, :-1])
        borders = np.where(starts | ~allowed, np.arange(T), T)
        after = np.full_like(borders, T)
        after[:, :-1] = np.minimum.accumulate(borders[:, :0:-1], axis=1)[:, ::-1]
        number = np.cumsum(starts, axis=1)
        return cls(starts, np.maximum(number - 1, 0), number[:, -1], after)

    def span_ends(self, first: np.ndarray, N: int) -> np.ndarray:
        """Returns where spans of 1 to N words end; they stop at special tokens.

        Args:
            first: positions of words, or T. integers [B, W]
            N: words.

        Returns:
            int64 [N, B, W]
        """
        T = self.starts.shape[1]
        ends = [first]
        for _ in range(N):
            inside = np.minimum(ends[-1], T - 1)
            goes_on = np.take_along_axis(self.starts, inside, axis=1) & (ends[-1] < T)
            ends.append(np.where(goes_on, np.take_along_axis(self.next, inside, axis=1), ends[-1]))
        return np.stack(ends[1:])


def _hide(
    masked: Masked,
    group: slice,
    ids: np.ndarray,
    positions: np.ndarray,
    used: np.ndarray,
    draw: "_Draw",
    vocabulary: Vocabulary,
    config: MaskingConfig,
) -> None:
    """Writes the rows of `group`: what is predicted, and what the model is shown there instead."""
    P = positions.shape[1]
    rows = np.arange(len(ids))[:, None]
    original = np.where(used, ids[rows, positions], 0)
    what = draw.words(_WHAT, 2 * P)
    share = what[:, :P] / 2.0**32
    pool = np.arange(vocabulary.size) if config.any_random_id else vocabulary.ordinary_ids
    # The high word of a product is uniform over [0, n) to one part in 2**32 / n.
    drawn = pool[(what[:, P:].astype(np.uint64) * np.uint64(len(pool)) >> _32).astype(np.int64)]
    shown = np.where(share < config.mask_share, vocabulary.mask_id, original)
    is_random = (share >= config.mask_share) & (share < config.mask_share + config.random_share)
    shown = np.where(is_random, drawn, shown)
    masked.input_ids[group][np.broadcast_to(rows, used.shape)[used], positions[used]] = shown[used]
    masked.positions[group] = positions
    masked.ids[group] = original
    masked.weights[group] = used


@dataclass(frozen=True)
class _Draw:
    """Random numbers of rows: seed, and epoch and example of each row. integers [B]."""

    seed: int
    epoch: np.ndarray
    example: np.ndarray

    def words(self, purpose: int, count: int) -> np.ndarray:
        """Returns `count` random words for each row. uint32 [B, count]."""
        B = len(self.example)
        blocks = -(-count // 4)
        example = np.asarray(self.example, np.uint64)
        counter = np.empty((4, B, blocks), np.uint64)
        counter[0] = np.arange(blocks)
        counter[1] = np.asarray(self.epoch, np.uint64)[:, None]
        counter[2] = (example & _LOW)[:, None]
        counter[3] = (example >> _32)[:, None]
        words = philox(counter, (self.seed, purpose))
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
    x0, x1, x2, x3 = counter.copy()
    product0, product1 = np.empty_like(x0), np.empty_like(x0)
    for i in range(_ROUNDS):
        k0, k1 = (np.uint64((k + i * s) % 2**32) for k, s in zip(key, _KEY_STEPS, strict=True))
        # In place: most of the time would go into fetching memory otherwise.
        np.multiply(x0, _MULTIPLIERS[0], out=product0)
        np.multiply(x2, _MULTIPLIERS[1], out=product1)
        np.right_shift(product1, _32, out=x0)
        x0 ^= x1
        x0 ^= k0
        np.bitwise_and(product1, _LOW, out=x1)
        np.right_shift(product0, _32, out=x2)
        x2 ^= x3
        x2 ^= k1
        np.bitwise_and(product0, _LOW, out=x3)
    return np.stack([x0, x1, x2, x3]).astype(np.uint32)
