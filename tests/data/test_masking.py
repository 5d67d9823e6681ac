import hashlib
import random
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bert_lamb.config import ConfigError, MaskingConfig
from bert_lamb.data.batches.masking import Vocabulary, mask_batch, philox
from bert_lamb.data.errors import DataError

# 5 special, 20 unused and 175 ordinary tokens.
PAD, UNK, CLS, SEP, MASK = range(5)
V = 200
ORDINARY = np.arange(25, V, dtype=np.int32)
VOCABULARY = Vocabulary(V, MASK, ORDINARY)
# Every third token continues a word.
PIECES = Vocabulary(V, MASK, ORDINARY, np.arange(V) % 3 == 0)
RECIPES = [
    MaskingConfig(),
    MaskingConfig(ngram=3),
    MaskingConfig(whole_word=True),
    MaskingConfig(whole_word=True, ngram=3),
    MaskingConfig(whole_word=True, ngram=5, probability=0.5),
]


def rows(B, T=64, seed=0):
    """[CLS] a [SEP] b [SEP] [PAD]... of random lengths."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(25, V, (B, T)).astype(np.int32)
    length = rng.integers(5, T + 1, B)
    ids[:, 0] = CLS
    ids[np.arange(B), length // 2] = SEP
    ids[np.arange(B), length - 1] = SEP
    ids[np.arange(T) >= length[:, None]] = PAD
    return ids


def mask(ids, *, epoch=0, first=0, seed=1, P=10, config=MaskingConfig(), vocabulary=VOCABULARY):  # noqa: B008
    B = len(ids)
    return mask_batch(
        ids,
        epoch=np.full(B, epoch),
        example=np.arange(first, first + B),
        seed=seed,
        max_predictions=P,
        vocabulary=vocabulary,
        config=config,
    )


@pytest.mark.parametrize(
    ("B", "T", "P", "config", "digest"),
    [
        (300, 64, 10, MaskingConfig(), "aedcda1e303364ff"),
        (700, 128, 20, MaskingConfig(), "c8b6761555b61e8d"),
        (50, 512, 80, MaskingConfig(), "3fe4f3b8bbc25db9"),
        (64, 9, 9, MaskingConfig(probability=0.9), "8cc8903d9fccd3dc"),
        (64, 33, 7, MaskingConfig(0.15, 0.3, 0.6, any_random_id=True), "14244b2dcb06d5f7"),
    ],
)
def test_masks_are_those_of_the_first_version(B, T, P, config, digest):
    """A run that was started before words and spans came continues with the same masks."""
    masked = mask_batch(
        rows(B, T, seed=T),
        epoch=np.arange(B) % 3,
        example=np.arange(B) * (2**32 + 7) + 5,
        seed=2**32 - 9,
        max_predictions=P,
        vocabulary=PIECES,
        config=config,
    )
    found = hashlib.sha256()
    for array in (masked.input_ids, masked.positions, masked.ids, masked.weights):
        found.update(array.dtype.str.encode() + array.tobytes())
    assert found.hexdigest()[:16] == digest


@pytest.mark.parametrize("config", RECIPES)
def test_p23_special_and_pad_positions_are_left_alone(config):
    ids = rows(10_000)
    masked = mask(ids, config=config, vocabulary=PIECES)
    special = ids < 25
    assert np.array_equal(masked.input_ids[special], ids[special])
    predicted = np.take_along_axis(special, masked.positions, axis=1)
    assert not (predicted & (masked.weights > 0)).any()


@pytest.mark.parametrize("config", RECIPES)
def test_slots_hold_the_original_ids_in_ascending_order(config):
    ids = rows(2_000)
    masked = mask(ids, config=config, vocabulary=PIECES)
    used = masked.weights > 0
    assert np.array_equal(
        masked.ids, np.where(used, np.take_along_axis(ids, masked.positions, axis=1), 0)
    )
    steps = np.diff(masked.positions, axis=1)
    assert (steps[used[:, 1:]] > 0).all()
    assert (used[:, :-1] >= used[:, 1:]).all()
    assert (masked.positions[~used] == 0).all()
    untouched = np.ones_like(ids, bool)
    np.put_along_axis(untouched, masked.positions, False, axis=1)
    untouched[:, 0] = True
    assert np.array_equal(masked.input_ids[untouched], ids[untouched])
    assert [a.dtype for a in (masked.input_ids, masked.positions, masked.ids, masked.weights)] == [
        np.int32, np.int32, np.int32, np.float32,
    ]  # fmt: skip


def test_counts_are_the_recipes():
    ids = rows(2_000)
    n = (ids >= 25).sum(axis=1)
    expected = np.minimum(np.clip(np.rint(0.15 * n), 1, 7), n)
    assert np.array_equal(mask(ids, P=7).weights.sum(axis=1), expected)
    assert expected.max() == 7


@pytest.mark.parametrize("config", RECIPES)
def test_shares_are_80_10_10(config):
    ids = rows(20_000)
    masked = mask(ids, config=config, vocabulary=PIECES)
    used = masked.weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[used]
    n = used.sum()
    hidden, kept = (shown == MASK).sum() / n, (shown == masked.ids[used]).sum() / n
    tolerance = 4 * np.sqrt(0.16 / n)
    assert hidden == pytest.approx(0.8, abs=tolerance)
    assert kept == pytest.approx(0.1 + 0.1 / 175, abs=tolerance)


def test_each_ordinary_position_is_chosen_equally_often():
    ids = np.tile(rows(1, T=32, seed=3), (40_000, 1))
    masked = mask(ids, P=6)
    counts = np.bincount(masked.positions[masked.weights > 0], minlength=32)[ids[0] >= 25]
    expected = counts.mean()
    assert ((counts - expected) ** 2 / expected).sum() < len(counts) + 5 * np.sqrt(2 * len(counts))


ALL_RANDOM = {"mask_share": 0.0, "random_share": 1.0}


@pytest.mark.parametrize("spans", [{}, {"whole_word": True, "ngram": 3}])
def test_p24_random_tokens_are_ordinary_and_uniform(spans):
    ids = rows(16_000)
    masked = mask(ids, config=MaskingConfig(**ALL_RANDOM, **spans), vocabulary=PIECES)
    used = masked.weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[used]
    assert len(shown) > 70_000
    counts = np.bincount(shown, minlength=V)
    assert counts[:25].sum() == 0
    expected = len(shown) / 175
    chi_square = ((counts[25:] - expected) ** 2 / expected).sum()
    assert abs(chi_square - 174) < 4 * np.sqrt(2 * 174)


def test_p24_compatible_flag_draws_from_the_whole_vocabulary():
    masked = mask(rows(4_000), config=MaskingConfig(**ALL_RANDOM, any_random_id=True))
    shown = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[masked.weights > 0]
    assert set(range(V)) == set(shown.tolist())


@pytest.mark.parametrize("config", RECIPES)
def test_p26_rows_of_one_and_of_no_ordinary_token(config):
    ids = np.full((3, 8), PAD, np.int32)
    ids[0, :4] = [CLS, 30, SEP, SEP]
    ids[1, :5] = [CLS, UNK, SEP, MASK, SEP]
    masked = mask(ids, P=3, config=config, vocabulary=PIECES)
    assert masked.weights.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert masked.positions[0, 0] == 1
    assert masked.ids[0, 0] == 30
    assert np.array_equal(masked.input_ids[1:], ids[1:])
    nothing = mask(ids[1:], P=3, config=config, vocabulary=PIECES)
    assert not nothing.weights.any()
    assert mask(ids[:0], P=3, config=config, vocabulary=PIECES).positions.shape == (0, 3)


@pytest.mark.parametrize("config", RECIPES)
def test_p09_masks_depend_on_seed_epoch_and_example_only(config):
    ids = rows(2_500)  # more than are worked on at once

    def mask_with(ids, **options):
        return mask(ids, config=config, vocabulary=PIECES, **options)

    whole = mask_with(ids, first=100)
    for i in (0, 17, 1023, 1024, 2499):
        alone = mask_with(ids[i : i + 1], first=100 + i)
        for name in ("input_ids", "positions", "ids", "weights"):
            assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[i])
    same_text = np.tile(ids[:1], (20, 1))
    copies = mask_with(same_text)
    assert len({p.tobytes() for p in copies.positions}) > 10
    assert not np.array_equal(mask_with(ids).positions, mask_with(ids, epoch=1).positions)
    assert not np.array_equal(mask_with(ids).positions, mask_with(ids, seed=2).positions)


@pytest.mark.parametrize("spans", [{}, {"whole_word": True, "ngram": 3}])
def test_static_masks_are_those_of_the_first_epoch(spans):
    ids = rows(200)
    dynamic, static = MaskingConfig(**spans), MaskingConfig(static=True, **spans)
    first = mask(ids, config=dynamic, vocabulary=PIECES)
    for epoch in (0, 1, 7):
        again = mask(ids, epoch=epoch, config=static, vocabulary=PIECES)
        for name in ("input_ids", "positions", "ids", "weights"):
            assert np.array_equal(getattr(first, name), getattr(again, name))
    copies = mask(np.tile(ids[:1], (20, 1)), config=static, vocabulary=PIECES)
    assert len({p.tobytes() for p in copies.positions}) > 10


def words_of(row, vocabulary=PIECES):
    """The words of a row as lists of positions, and the words up to the next special token."""
    runs, before = [], False
    for place, id in enumerate(row.tolist()):
        ordinary = bool(vocabulary.is_ordinary[id])
        if ordinary and before and vocabulary.continues[id]:
            runs[-1][-1].append(place)
        elif ordinary and before:
            runs[-1].append([place])
        elif ordinary:
            runs.append([[place]])
        before = ordinary
    return runs


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([CLS, SEP, UNK, *[30] * 4, *[31] * 8]), max_size=40), min_size=1
    ),
    st.integers(1, 40),
    st.sampled_from([0.01, 0.15, 0.5, 0.95]),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_words_are_predicted_whole_within_the_budget(texts, P, probability, ngram, seed):
    ids = np.full((len(texts), 40), PAD, np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text  # 30 continues a word, 31 does not
    config = MaskingConfig(probability=probability, whole_word=True, ngram=ngram)
    masked = mask(ids, seed=seed, P=P, config=config, vocabulary=PIECES)
    for row, places, weights in zip(ids, masked.positions, masked.weights, strict=True):
        words = [word for run in words_of(row) for word in run]
        total = sum(map(len, words))
        budget = min(max(1, min(P, round(probability * total))), total)
        predicted = set(places[weights > 0].tolist())
        assert len(predicted) == weights.sum() <= budget
        hit = [word for word in words if predicted.intersection(word)]
        if min(map(len, words), default=0) > budget:
            [word] = hit
            assert predicted == set(word[:budget])
            continue
        assert predicted == {place for word in hit for place in word}
        assert bool(predicted) == bool(words)
        if ngram == 1:  # every word passed over was too long for what was left
            left = budget - len(predicted)
            assert all(len(word) > left for word in words if word not in hit)


def albert_mask(row, budget, ngram, rng):
    """The positions predicted by ALBERT's rule, followed word by word, in ascending order."""
    spans = []
    for run in words_of(row):
        spans += [run[i : i + ngram] for i in range(len(run))]
    rng.shuffle(spans)
    predicted = set()
    for span in spans:
        n = rng.choices(range(1, len(span) + 1), [1 / n for n in range(1, len(span) + 1)])[0]
        while n > 1 and len(predicted) + sum(map(len, span[:n])) > budget:
            n -= 1
        places = list(chain.from_iterable(span[:n]))
        if len(predicted) + len(places) <= budget and predicted.isdisjoint(places):
            predicted.update(places)
    return tuple(sorted(predicted))


def compared(ours, theirs):
    """The p-value of two counts being of one distribution; rare outcomes are put together."""
    common = [k for k in ours | theirs if ours[k] + theirs[k] >= 40]
    table = [[count[k] for k in common] for count in (ours, theirs)]
    table = [[*line, c.total() - sum(line)] for line, c in zip(table, (ours, theirs), strict=True)]
    if not any(line[-1] for line in table):
        table = [line[:-1] for line in table]
    return stats.chi2_contingency(table).pvalue


@pytest.mark.parametrize("ngram", [1, 2, 3])
def test_spans_are_distributed_as_alberts(ngram):
    # Behind the [SEP], 42 would go on with a word, but there is none.
    ids = np.array([[CLS, 31, 32, 33, 34, 35, 36, 39, 40, SEP, 42, 43, 44, 45, SEP, PAD]], np.int32)
    assert [list(map(len, run)) for run in words_of(ids[0])] == [[1, 2, 1, 3, 1], [1, 1, 2]]
    n, budget = 12_000, 5
    config = MaskingConfig(probability=0.42, whole_word=True, ngram=ngram)
    masked = mask(np.tile(ids, (n, 1)), P=8, config=config, vocabulary=PIECES)
    ours = Counter(
        tuple(places[weights > 0].tolist())
        for places, weights in zip(masked.positions, masked.weights, strict=True)
    )
    rng = random.Random(7)
    draw = {N: Counter(albert_mask(ids[0], budget, N, rng) for _ in range(n)) for N in (1, 2, 3)}
    assert len(ours) > 15
    for N, theirs in draw.items():
        p = compared(ours, theirs)
        assert p > 1e-3 if ngram == N else p < 1e-6


def test_lengths_of_spans_are_as_one_over_n():
    ids = np.full((40_000, 64), 31, np.int32)
    config = MaskingConfig(probability=4 / 64, ngram=4)
    masked = mask(ids, P=4, config=config)
    # The budget of 4 takes the first span drawn whole: 4 in a row, else at most 3 and another.
    whole = (masked.positions[:, 3] - masked.positions[:, 0] == 3).mean()
    # 12/25 + 6/25 + 4/25 + 3/25; spans that meet by chance come on top.
    assert 0.12 < whole < 0.12 + 0.88 * 3 / 30


@pytest.mark.parametrize("ngram", [0, -1, 17])
def test_impossible_spans_are_refused(ngram):
    with pytest.raises(ConfigError, match=f"ngram = {ngram}: expected 1"):
        MaskingConfig(ngram=ngram)


def test_impossible_vocabularies_are_refused():
    with pytest.raises(DataError, match="no ordinary token"):
        Vocabulary(V, MASK, ORDINARY[:0])
    with pytest.raises(DataError, match=r"continues: shape \(3,\): expected one flag for each of"):
        Vocabulary(V, MASK, ORDINARY, np.zeros(3, bool))


def test_generator_gives_the_published_values():
    """Known answers of the Random123 distribution for philox4x32-10."""
    cases = [
        ([0] * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ]
    for counter, key, words in cases:
        drawn = philox(np.array(counter, np.uint64)[:, None], key)[:, 0]
        assert " ".join(f"{word:08x}" for word in drawn) == words
