import numpy as np
import pytest

from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.masking import Vocabulary, mask_batch, philox

# 5 special, 20 unused and 175 ordinary tokens.
PAD, UNK, CLS, SEP, MASK = range(5)
V = 200
VOCABULARY = Vocabulary(V, MASK, np.arange(25, V, dtype=np.int32))


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


def test_p23_special_and_pad_positions_are_left_alone():
    ids = rows(10_000)
    masked = mask(ids)
    special = ids < 25
    assert np.array_equal(masked.input_ids[special], ids[special])
    predicted = np.take_along_axis(special, masked.positions, axis=1)
    assert not (predicted & (masked.weights > 0)).any()


def test_slots_hold_the_original_ids_in_ascending_order():
    ids = rows(2_000)
    masked = mask(ids)
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


def test_shares_are_80_10_10():
    ids = rows(20_000)
    masked = mask(ids)
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


def test_p24_random_tokens_are_ordinary_and_uniform():
    ids = rows(16_000)
    masked = mask(ids, config=MaskingConfig(**ALL_RANDOM))
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


def test_p26_rows_of_one_and_of_no_ordinary_token():
    ids = np.full((3, 8), PAD, np.int32)
    ids[0, :4] = [CLS, 30, SEP, SEP]
    ids[1, :5] = [CLS, UNK, SEP, MASK, SEP]
    masked = mask(ids, P=3)
    assert masked.weights.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert masked.positions[0, 0] == 1
    assert masked.ids[0, 0] == 30
    assert np.array_equal(masked.input_ids[1:], ids[1:])


def test_p09_masks_depend_on_seed_epoch_and_example_only():
    ids = rows(50)
    whole = mask(ids, first=100)
    for i in (0, 17, 49):
        alone = mask(ids[i : i + 1], first=100 + i)
        for name in ("input_ids", "positions", "ids", "weights"):
            assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[i])
    same_text = np.tile(ids[:1], (20, 1))
    copies = mask(same_text)
    assert len({p.tobytes() for p in copies.positions}) > 10
    assert not np.array_equal(mask(ids).positions, mask(ids, epoch=1).positions)
    assert not np.array_equal(mask(ids).positions, mask(ids, seed=2).positions)


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
