import random

import pytest

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.pairs import PairMaker


def document(key, sentences=9, length=11):
    """Ids that tell where they come from: 10000 * document + running number."""
    ids = list(range(10_000 * key, 10_000 * key + sentences * length))
    return [ids[i : i + length] for i in range(0, len(ids), length)]


def make(documents, keys=None, seq_length=64, seed=0, donors=()):
    maker = PairMaker(seq_length, random.Random(seed))
    keys = range(len(documents)) if keys is None else keys
    return list(maker.pairs(documents, list(keys), donors)), maker.counts


def source(ids):
    (key,) = {id // 10_000 for id in ids}
    return key


def test_p01_single_document_is_refused():
    with pytest.raises(DataError, match=r"1 document with text: .* at least 2"):
        make([document(0, sentences=3)])


def test_p01_parts_of_one_document_are_one_document():
    with pytest.raises(DataError, match="1 document"):
        make([document(0), document(1)], keys=[5, 5])


@pytest.mark.parametrize("seed", range(5))
def test_p01_labels_tell_the_truth(seed):
    documents = [document(k, sentences=5 + 3 * k) for k in range(6)]
    keys = [0, 0, 0, 1, 1, 2]  # most are parts of the same document
    examples, _ = make(documents, keys, seed=seed, donors=[document(9)])
    seen = set()
    for example in examples:
        a, b = (keys[s] if s < 6 else "donor" for s in map(source, (example.ids_a, example.ids_b)))
        assert a != "donor"
        assert (a != b) == example.is_random
        if not example.is_random:
            assert example.ids_b[0] > example.ids_a[-1]
        seen.add(example.is_random)
    assert seen == {True, False}


def test_p03_two_one_word_documents_make_two_pairs():
    examples, counts = make([[[7]], [[8]]], seq_length=8)
    assert sorted((e.ids_a, e.ids_b, e.is_random) for e in examples) == [
        ([7], [8], True),
        ([8], [7], True),
    ]
    assert (counts.written, counts.borrowed) == (2, 2)


@pytest.mark.parametrize("seq_length", [4, 7, 2**16])
def test_p03_impossible_lengths_are_refused(seq_length):
    with pytest.raises(DataError, match=f"seq_length = {seq_length}: expected 8 to 65535"):
        make([document(0), document(1)], seq_length=seq_length)


@pytest.mark.parametrize("seq_length", [8, 9, 64, 512])
def test_p03_every_token_is_written_or_counted(seq_length):
    documents = [document(k, sentences=20, length=3 + 9 * k) for k in range(8)]
    examples, counts = make(documents, seq_length=seq_length)
    assert counts.written + counts.truncated == sum(len(s) for d in documents for s in d)
    borrowed = sum(len(e.ids_b) for e in examples if e.is_random)
    total = sum(len(e.ids_a) + len(e.ids_b) for e in examples)
    assert counts.borrowed == borrowed
    assert counts.written == total - borrowed
    own = [id for e in examples for id in e.ids_a + ([] if e.is_random else e.ids_b)]
    assert len(own) == len(set(own))


@pytest.mark.parametrize("seq_length", [8, 65, 128, 512])
def test_p12_a_line_longer_than_a_row_is_kept(seq_length):
    documents = [document(0, sentences=1, length=9_999), document(1, sentences=1, length=5)]
    _, counts = make(documents, seq_length=seq_length)
    total = 10_004
    assert counts.written + counts.truncated == total
    assert counts.written >= 0.99 * total or seq_length == 8
    assert counts.split_sentences >= 1


def test_rows_have_room_for_their_special_tokens():
    examples, _ = make([document(k, sentences=40) for k in range(5)], seq_length=32)
    lengths = [len(e.ids_a) + len(e.ids_b) for e in examples]
    assert max(lengths) == 29
    assert all(e.ids_a and e.ids_b for e in examples)
    # Sentences of 11 tokens: the longer segment loses from its front or its back, both at times.
    assert {e.ids_a[0] % 11 for e in examples} > {0}
    assert {e.ids_a[-1] % 11 for e in examples} > {10}


def test_half_of_the_pairs_are_random_where_documents_are_long():
    examples, _ = make([document(k, sentences=200, length=12) for k in range(30)], seq_length=128)
    share = sum(e.is_random for e in examples) / len(examples)
    assert share == pytest.approx(0.5, abs=0.06)


def test_some_documents_give_short_pairs():
    documents = [document(k, sentences=100, length=4) for k in range(100)]
    examples, _ = make(documents, seq_length=128)
    of = {}
    for example in examples:
        of.setdefault(source(example.ids_a), []).append(len(example.ids_a) + len(example.ids_b))
    short = sum(max(lengths) < 115 for lengths in of.values())
    assert 2 <= short <= 20


def test_pairs_depend_on_the_seed_only():
    documents = [document(k) for k in range(4)]
    assert make(documents, seed=1) == make(documents, seed=1)
    assert make(documents, seed=1)[0] != make(documents, seed=2)[0]
