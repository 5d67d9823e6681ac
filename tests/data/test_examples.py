"""Examples of all kinds; ids tell where they come from: 10000 * document + running number."""

import random
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import Documents, ExampleOptions, PairCounts, make_examples

SEP = 999_999_999
NSP, SOP, SINGLE = (ExampleOptions(kind, 64) for kind in ("nsp", "sop", "single"))
KINDS = ("nsp", "sop", "single")


def document(key, sentences=9, length=11):
    ids = list(range(10_000 * key, 10_000 * key + sentences * length))
    return [ids[i : i + length] for i in range(0, len(ids), length)]


def make(documents, keys=None, options=NSP, seed=0, num_donors=0):
    keys = range(len(documents)) if keys is None else keys
    flat, counts = Documents.from_lists(documents, keys, num_donors), PairCounts()
    examples = make_examples(flat, options, random.Random(seed), counts, sep_id=SEP)
    return [as_lists(e) for e in examples], counts


def as_lists(example):
    ids_b = None if example.ids_b is None else example.ids_b.tolist()
    return example.ids_a.tolist(), ids_b, example.label


def tokens(documents):
    return sum(len(sentence) for sentences in documents for sentence in sentences)


def source(ids):
    (key,) = {id // 10_000 for id in ids}
    return key


# Documents


def test_documents_are_flattened_without_loss():
    flat = Documents.from_lists([[[1, 2], [3]], [], [[4], [], [5, 6]]], [7, 8, 9], dtype=np.uint16)
    assert flat.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert flat.ids.dtype == np.uint16
    assert flat.sentence_ends.tolist() == [2, 3, 4, 4, 6]
    assert flat.document_ends.tolist() == [3, 3, 6]
    assert flat.keys.tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sentence_ends": np.array([2, 1, 3])}, "sentence_ends: expected ascending offsets of 3"),
        ({"sentence_ends": np.array([2, 4])}, "sentence_ends: expected ascending offsets of 3"),
        ({"document_ends": np.array([2])}, "document_ends: expected the last one to be 3"),
        ({"document_ends": np.zeros(0, int), "keys": np.zeros(0, int)}, "the last one to be 3"),
        ({"keys": np.array([1, 2])}, "keys: 2 for 1 documents"),
        ({"num_donors": 2}, "num_donors = 2: expected 0 to 1"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(change, message):
    right = {
        "ids": np.arange(3),
        "sentence_ends": np.array([3]),
        "document_ends": np.array([3]),
        "keys": np.array([0]),
    }
    Documents(**right)
    with pytest.raises(DataError, match=message):
        Documents(**right | change)


@pytest.mark.parametrize("options", [NSP, SOP, SINGLE])
def test_empty_sentences_and_documents_make_no_difference(options):
    documents = [document(k) for k in range(4)]
    padded = [[], *([[], *d[:3], [], *d[3:], []] for d in documents), []]
    assert make(documents, options=options) == make(padded, [9, 0, 1, 2, 3, 8], options)
    assert make([], options=options) == make([[], [[]]], options=options) == ([], PairCounts())


# Options


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seq_length", [4, 7, 2**16])
def test_p03_impossible_lengths_are_refused(kind, seq_length):
    with pytest.raises(DataError, match=f"seq_length = {seq_length}: expected 8 to 65535"):
        ExampleOptions(kind, seq_length)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "mlm"}, "kind = 'mlm': expected nsp, sop, single"),
        ({"short_seq_prob": 1.5}, r"short_seq_prob = 1.5: expected a share in \[0, 1\]"),
        ({"short_seq_prob": float("nan")}, "short_seq_prob = nan: expected a share"),
        ({"cross_documents": True}, "cross_documents = True with kind = 'nsp'"),
    ],
)
def test_options_out_of_range_are_named(values, message):
    with pytest.raises(DataError, match=message):
        ExampleOptions(**values)


def test_short_examples_are_one_in_ten_for_pairs_and_none_for_singles():
    defaults = [ExampleOptions(kind).resolved_short_seq_prob for kind in KINDS]
    assert defaults == [0.1, 0.1, 0.0]
    assert ExampleOptions("single", short_seq_prob=0.3).resolved_short_seq_prob == 0.3
    assert [ExampleOptions(kind).min_documents for kind in KINDS] == [2, 1, 1]


# Next sentence


def test_p01_single_document_is_refused():
    with pytest.raises(DataError, match=r"1 document with text: .* at least 2"):
        make([document(0, sentences=3)])


def test_p01_parts_of_one_document_are_one_document():
    with pytest.raises(DataError, match="1 document"):
        make([document(0), document(1)], keys=[5, 5])


@pytest.mark.parametrize("seed", range(5))
def test_p01_labels_tell_the_truth(seed):
    documents = [document(k, sentences=5 + 3 * k) for k in range(6)] + [document(9)]
    keys = [0, 0, 0, 1, 1, 2, 7]  # most are parts of the same document
    examples, _ = make(documents, keys, seed=seed, num_donors=1)
    seen = set()
    for ids_a, ids_b, is_random in examples:
        a, b = (keys[s] if s < 6 else "donor" for s in map(source, (ids_a, ids_b)))
        assert a != "donor"
        assert (a != b) == is_random
        if not is_random:
            assert ids_b[0] > ids_a[-1]
        seen.add(is_random)
    assert seen == {True, False}


def test_p01_random_segments_come_from_all_other_documents_alike():
    documents = [document(k, sentences=40) for k in range(6)]
    keys = [3, 1, 3, 3, 2, 1]
    lenders = Counter()
    for seed in range(200):
        examples, _ = make(documents, keys, seed=seed)
        lenders.update((source(a), source(b)) for a, b, is_random in examples if is_random)
    for a in range(6):
        others = [lenders[a, b] for b in range(6) if keys[b] != keys[a]]
        assert sum(others) == sum(n for (first, _), n in lenders.items() if first == a)
        assert stats.chisquare(others).pvalue > 1e-4


def test_p03_two_one_word_documents_make_two_pairs():
    examples, counts = make([[[7]], [[8]]], options=ExampleOptions("nsp", 8))
    assert sorted(examples) == [([7], [8], True), ([8], [7], True)]
    assert (counts.written, counts.borrowed) == (2, 2)


@pytest.mark.parametrize("seq_length", [8, 9, 64, 512])
def test_p03_every_token_is_written_or_counted(seq_length):
    documents = [document(k, sentences=20, length=3 + 9 * k) for k in range(8)]
    examples, counts = make(documents, options=ExampleOptions("nsp", seq_length))
    assert counts.written + counts.truncated == tokens(documents)
    borrowed = sum(len(b) for _, b, is_random in examples if is_random)
    total = sum(len(a) + len(b) for a, b, _ in examples)
    assert counts.borrowed == borrowed
    assert counts.written == total - borrowed
    own = [id for a, b, is_random in examples for id in a + ([] if is_random else b)]
    assert len(own) == len(set(own))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seq_length", [8, 65, 128, 512])
def test_p12_a_line_longer_than_a_row_is_kept(kind, seq_length):
    documents = [document(0, sentences=1, length=9_999), document(1, sentences=1, length=5)]
    _, counts = make(documents, options=ExampleOptions(kind, seq_length))
    total = 10_004
    assert counts.written + counts.truncated == total
    assert counts.written >= 0.99 * total or (kind, seq_length) == ("nsp", 8)
    assert counts.split_sentences >= 1


def test_rows_have_room_for_their_special_tokens():
    options = ExampleOptions("nsp", 32)
    examples, _ = make([document(k, sentences=40) for k in range(5)], options=options)
    lengths = [len(a) + len(b) for a, b, _ in examples]
    assert max(lengths) == 29
    assert all(a and b for a, b, _ in examples)
    # Sentences of 11 tokens: the longer segment loses from its front or its back, both at times.
    assert {a[0] % 11 for a, _, _ in examples} > {0}
    assert {a[-1] % 11 for a, _, _ in examples} > {10}


def cut_one_by_one(a, b, room, rng):
    """Google's truncate_seq_pair: token by token, each from the front or the back by chance."""
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if rng.random() < 0.5 else -1)
    return a, b


@given(st.integers(1, 61), st.integers(1, 61), st.integers(8, 64))
def test_segments_lose_as_many_tokens_as_one_by_one(a, b, seq_length):
    room = seq_length - 3
    a, b = min(a, room), min(b, room)  # longer sentences would be split
    text = [list(range(a)), list(range(a, a + b))]
    options = ExampleOptions("sop", seq_length, short_seq_prob=0)
    [(first, second, swapped)], counts = make([text], options=options)
    expected = cut_one_by_one(*(text[::-1] if swapped else text), room, random.Random(0))
    assert (len(first), len(second)) == tuple(map(len, expected))
    assert counts.truncated == a + b - len(first) - len(second)


def test_what_is_cut_off_in_front_is_distributed_as_one_by_one():
    text, room, rng = [list(range(40)), list(range(40, 70))], 45, random.Random(0)
    options = ExampleOptions("sop", room + 3, short_seq_prob=0)
    ours, google = Counter(), Counter()
    for seed in range(4_000):
        [(first, _, swapped)], _ = make([text], options=options, seed=seed)
        if not swapped:
            ours[first[0]] += 1
        google[cut_one_by_one(*text, room, rng)[0][0]] += 1
    common = [k for k in google if ours[k] + google[k] > 60]
    assert len(common) > 8
    table = [[count[k] for k in common] for count in (ours, google)]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_half_of_the_pairs_are_random_where_documents_are_long():
    documents = [document(k, sentences=200, length=12) for k in range(30)]
    examples, _ = make(documents, options=ExampleOptions("nsp", 128))
    share = sum(is_random for _, _, is_random in examples) / len(examples)
    assert share == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("kind", ["nsp", "sop"])
@pytest.mark.parametrize(("prob", "low", "high"), [(None, 2, 20), (0.0, 0, 0), (1.0, 80, 100)])
def test_some_documents_give_short_pairs(kind, prob, low, high):
    documents = [document(k, sentences=100, length=4) for k in range(100)]
    examples, _ = make(documents, options=ExampleOptions(kind, 128, prob))
    of = {}
    for ids_a, ids_b, _ in examples:
        of.setdefault(source(ids_a), []).append(len(ids_a) + len(ids_b))
    short = sum(max(lengths) < 115 for lengths in of.values())
    assert low <= short <= high


@pytest.mark.parametrize("options", [NSP, SOP, ExampleOptions("single", 64, short_seq_prob=0.5)])
def test_examples_depend_on_the_seed_only(options):
    documents = [document(k) for k in range(4)]
    assert make(documents, options=options, seed=1) == make(documents, options=options, seed=1)
    assert make(documents, options=options, seed=1) != make(documents, options=options, seed=2)


# Sentence order


@pytest.mark.parametrize("seed", range(3))
def test_order_labels_tell_the_truth(seed):
    documents = [document(k, sentences=7 + 30 * k) for k in range(4)]
    examples, counts = make(documents, options=SOP, seed=seed)
    for ids_a, ids_b, swapped in examples:
        assert source(ids_a) == source(ids_b)
        assert (ids_a[0] > ids_b[0]) == swapped
    assert counts.borrowed == 0
    share = sum(swapped for _, _, swapped in examples) / len(examples)
    assert share == pytest.approx(0.5, abs=0.25)


def test_order_needs_one_document_only():
    examples, counts = make([document(0)], options=SOP)
    assert examples
    assert counts.written + counts.truncated == 99


def test_order_of_a_lone_sentence_is_that_of_its_parts():
    places = Counter()
    for seed in range(300):
        examples, counts = make([document(0, sentences=1)], options=SOP, seed=seed)
        [(ids_a, ids_b, swapped)] = examples
        first, second = (ids_b, ids_a) if swapped else (ids_a, ids_b)
        assert first + second == list(range(11))
        places[len(first)] += 1
        assert (counts.split_sentences, counts.written) == (1, 11)
    assert set(places) == set(range(1, 11))


def test_order_drops_and_counts_a_lone_token():
    examples, counts = make([[[5]], document(1)], options=SOP)
    assert counts.dropped == 1
    assert 5 not in chain.from_iterable(a + b for a, b, _ in examples)


def test_order_pairs_run_on_over_the_parts_of_a_document():
    parts = [[[1, 2]], [[3, 4]]]
    examples, _ = make(parts, keys=[6, 6], options=ExampleOptions("sop", 16, short_seq_prob=0))
    assert sorted(examples[0][:2]) == [[1, 2], [3, 4]]


# Single segments


def test_single_rows_are_filled_with_whole_sentences():
    examples, counts = make([document(0, sentences=20)], options=ExampleOptions("single", 40))
    assert [(len(a), b) for a, b, _ in examples] == [(33, None)] * 6 + [(22, None)]
    assert [id for a, _, _ in examples for id in a] == list(range(220))
    assert counts == PairCounts(written=220)


def test_p27_single_rows_end_with_their_document():
    documents = [document(k, sentences=4) for k in range(5)]
    examples, _ = make(documents, options=ExampleOptions("single", 40))
    assert [(source(a), len(a)) for a, _, _ in examples] == [
        (k, length) for k in range(5) for length in (33, 11)
    ]


def test_p27_rows_that_cross_documents_separate_them():
    documents = [[[1, 1]], [[2, 2], [3, 3]], [[4]], [[5, 5, 5, 5]], [[6, 6]]]
    options = ExampleOptions("single", 12, cross_documents=True)
    examples, counts = make(documents, options=options)
    assert [a for a, _, _ in examples] == [[1, 1, SEP, 2, 2, 3, 3, SEP, 4], [5, 5, 5, 5, SEP, 6, 6]]
    assert counts == PairCounts(written=13, separators=3)


def test_p27_parts_of_a_document_are_not_separated():
    documents = [[[1, 1]], [[2, 2]], [[3, 3]]]
    for cross, expected in ((False, [[1, 1, 2, 2], [3, 3]]), (True, [[1, 1, 2, 2, SEP, 3, 3]])):
        options = ExampleOptions("single", 12, cross_documents=cross)
        examples, _ = make(documents, keys=[4, 4, 5], options=options)
        assert [a for a, _, _ in examples] == expected


def test_single_rows_leave_donors_alone():
    options = ExampleOptions("single", 12, cross_documents=True)
    examples, counts = make([[[1]], [[2]], [[3]]], options=options, num_donors=1)
    assert [a for a, _, _ in examples] == [[1, SEP, 2]]
    assert counts == PairCounts(written=2, separators=1)


@pytest.mark.parametrize("cross", [False, True])
def test_single_rows_end_early_if_asked_to(cross):
    documents = [document(k, sentences=300, length=3) for k in range(3)]
    plain, _ = make(documents, options=ExampleOptions("single", 64, 0.0, cross))
    short, counts = make(documents, options=ExampleOptions("single", 64, 0.5, cross))
    early = sum(len(a) < 58 for a, _, _ in short) / len(short)
    assert early == pytest.approx(0.45, abs=0.15)
    assert len(short) > len(plain)
    assert counts.written == 2700


# Anything


def texts():
    sentence = st.integers(0, 40) | st.integers(0, 1500)
    part = st.lists(sentence, max_size=12)
    return st.lists(st.tuples(part, st.booleans()), min_size=1, max_size=7)


@settings(max_examples=250, deadline=None)
@given(
    texts(),
    st.sampled_from(KINDS),
    st.integers(8, 600) | st.integers(8, 30),
    st.sampled_from([None, 0.0, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 2**32),
)
def test_any_text_is_accounted_for(text, kind, seq_length, prob, cross, num_donors, seed):
    """No token is lost or used twice, every row fits, and every label is true."""
    keys = np.cumsum([new for _, new in text])
    number, documents = 0, []
    for lengths, _ in text:
        documents.append([])
        for length in lengths:
            documents[-1].append(list(range(number, number + length)))
            number += length
    key_of = np.repeat(keys, [sum(lengths) for lengths, _ in text])
    num_donors = min(num_donors, len(documents))
    own = sum(sum(lengths) for lengths, _ in text[: len(text) - num_donors])
    options = ExampleOptions(kind, seq_length, prob, cross and kind == "single")
    if kind == "nsp" and own and len(set(key_of)) < 2:
        with pytest.raises(DataError, match="at least 2"):
            make(documents, keys, options, seed, num_donors)
        return
    flat, counts = Documents.from_lists(documents, keys, num_donors), PairCounts()
    examples = make_examples(flat, options, random.Random(seed), counts, sep_id=SEP)

    assert counts.written + counts.truncated + counts.dropped == own
    assert (examples.lengths <= seq_length).all()
    used, borrowed, separators = [], 0, 0
    for i, (ids_a, ids_b, label) in enumerate(map(as_lists, examples)):
        segments = [ids_a] if ids_b is None else [ids_a, ids_b]
        assert all(segments)
        assert examples.lengths[i] == 1 + sum(len(s) + 1 for s in segments)
        if kind == "single":
            assert label is False
            assert ids_b is None
            used += [id for id in ids_a if id != SEP]
            separators += ids_a.count(SEP)
            assert_separated(ids_a, key_of, cross)
            continue
        for segment in segments:
            assert segment == list(range(segment[0], segment[0] + len(segment)))
        key_a, key_b = key_of[ids_a[0]], key_of[ids_b[0]]
        used += ids_a
        if kind == "nsp" and label:
            assert key_a != key_b
            borrowed += len(ids_b)
            continue
        used += ids_b
        assert key_a == key_b
        assert (ids_a[-1] < ids_b[0]) == (not label)
    assert len(used) == len(set(used)) == counts.written
    assert all(id < own for id in used)
    assert (counts.borrowed, counts.separators) == (borrowed, separators)
    if kind == "single":
        assert used == list(range(own))


def assert_separated(ids, key_of, cross):
    """A [SEP] stands exactly between documents, and there are several only if rows may cross."""
    assert ids[0] != SEP
    assert ids[-1] != SEP
    own = [id for id in ids if id != SEP]
    expected = own[:1]
    for before, id in pairwise(own):
        expected += [SEP, id] if key_of[before] != key_of[id] else [id]
    assert ids == expected
    assert cross or SEP not in ids
