import json
import shutil

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import Example, Examples
from bert_lamb.data.records.format import id_dtype, pack, pack_all, unpack
from bert_lamb.data.records.manifest import check_records, read_manifest


def read(records, dtype, seq_length=20):
    return unpack(records, dtype, seq_length, cls_id=2, sep_id=3, pad_id=0)


@pytest.mark.parametrize("vocab_size", [300, 65_536, 65_537])
def test_records_read_back(vocab_size):
    top = vocab_size - 1
    examples = [
        Example([5, top, 7], [8], True),
        Example([9], None),
        Example([9], [10, 11, 12, 13], False),
        Example([], [], False),
        Example(list(range(20, 38)), None),
        Example(list(range(20, 29)), list(range(30, 38)), True),
        Example([7, 3, 8], None),  # [SEP] between documents
    ]
    dtype = id_dtype(vocab_size)
    assert dtype.itemsize == (2 if vocab_size <= 65_536 else 4)
    rows = read([pack(example, dtype) for example in examples], dtype)
    for row, e in enumerate(examples):
        expected = [2, *e.ids_a, 3] + ([] if e.ids_b is None else [*e.ids_b, 3])
        assert rows.tokens[row].tolist() == expected + [0] * (20 - len(expected))
        assert rows.lengths[row] == len(expected)
        assert rows.lengths_a[row] == len(e.ids_a) + 2
        assert rows.labels[row] == e.label
        assert rows.has_pair[row] == (e.ids_b is not None)
    assert [a.dtype for a in (rows.tokens, rows.lengths, rows.lengths_a, rows.labels)] == [
        np.int32
    ] * 4
    assert rows.has_pair.dtype == bool


def test_records_of_pairs_have_the_bytes_they_always_had():
    pairs = [Example([5, 600, 7], [8], True), Example([9], [10, 11], False)]
    records = [bytes.fromhex("010003000500580207000800"), bytes.fromhex("0000010009000a000b00")]
    assert [pack(example, id_dtype(1000)) for example in pairs] == records
    rows = read(records, id_dtype(1000), 8)
    assert rows.tokens.tolist() == [[2, 5, 600, 7, 3, 8, 3, 0], [2, 9, 3, 10, 11, 3, 0, 0]]
    assert rows.labels.tolist() == [1, 0]
    assert rows.has_pair.all()


@pytest.mark.parametrize("vocab_size", [1000, 100_000])
@pytest.mark.parametrize("has_pair", [True, False])
@pytest.mark.parametrize("stored", ["<u2", ">u4", "<i8"])
def test_many_examples_are_packed_as_one_by_one(vocab_size, has_pair, stored):
    spans = np.array([[0, 3, 3, 7], [5, 9, 20, 21], [2, 40, 0, 1], [90, 100, 0, 0]])
    if not has_pair:
        spans[:, 2:] = 0
    labels = np.array([True, False, True, False]) & has_pair
    examples = Examples(np.arange(900, 1000).astype(stored), spans, labels, has_pair)
    dtype = id_dtype(vocab_size)
    assert pack_all(examples, dtype) == [pack(example, dtype) for example in examples]
    assert pack_all(Examples(examples.ids, spans[:0], labels[:0], has_pair), dtype) == []


def test_ids_too_large_for_their_type_are_refused():
    examples = Examples(np.array([65_536]), np.array([[0, 1, 0, 0]]), np.array([False]), False)
    with pytest.raises(DataError, match="token id 65536: expected at most 65535 for uint16"):
        pack_all(examples, id_dtype(300))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("0100", "a record of 2 bytes: damaged"),
        ("0400010009000a00", "with flags 4, 1 ids in the first segment and 2 in all"),
        ("000001000900ff", "a record of 7 bytes with flags 0"),
        ("0000030009000a00", "3 ids in the first segment and 2 in all"),
        ("0200010009000a00", "with flags 2, 1 ids in the first segment and 2 in all"),
        ("00000200" + "0900" * 16, "a record of 19 tokens: expected at most seq_length = 18"),
    ],
)
def test_foreign_records_are_refused(record, message):
    fine = pack(Example([5], [6]), id_dtype(300))
    with pytest.raises(DataError, match=message):
        read([fine, bytes.fromhex(record), fine], id_dtype(300), 18)


def test_manifest_tells_what_is_inside(records, tokenizer):
    manifest = read_manifest(records)
    assert (manifest.seq_length, manifest.vocab_size, manifest.seed) == (64, 300, 3)
    assert manifest.tokenizer_hash == tokenizer.hash
    assert manifest.max_token_id < 300
    assert manifest.num_examples == sum(shard.num_examples for shard in manifest.shards)
    assert manifest.sources[0]["name"].endswith("made up.txt")
    assert len(manifest.sources[0]["sha256"]) == 64
    options = manifest.options
    assert (options["copies"], options["num_shards"], options["heldout"]) == (1, 4, 0.0)
    assert options["examples"]["kind"] == "nsp"
    assert 0 < manifest.num_random_next < manifest.num_examples


def test_missing_or_foreign_directories_say_how_to_make_records(tmp_path, records):
    with pytest.raises(DataError, match=r"nope.*no such directory; make records with `bert-lamb"):
        read_manifest(tmp_path / "nope")
    with pytest.raises(DataError, match=r"no manifest\.json inside; make records with"):
        read_manifest(tmp_path)
    shutil.copytree(records, tmp_path / "train")
    with pytest.raises(DataError, match=r"did you mean .*train"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, "format_version = 99: expected 1"),
        ({"colour": 1}, "missing or unknown keys: colour"),
        (None, "not a manifest"),
    ],
)
def test_damaged_manifests_are_refused(tmp_path, records, change, message):
    shutil.copytree(records, tmp_path / "set")
    file = tmp_path / "set" / "manifest.json"
    values = json.loads(file.read_text("utf-8"))
    file.write_text("{" if change is None else json.dumps({**values, **change}), "utf-8")
    with pytest.raises(DataError, match=message):
        read_manifest(tmp_path / "set")


def test_missing_shard_is_named(tmp_path, records):
    shutil.copytree(records, tmp_path / "set")
    name = read_manifest(records).shards[2].name
    (tmp_path / "set" / name).unlink()
    with pytest.raises(DataError, match=f"shard {name} is missing"):
        read_manifest(tmp_path / "set")


def test_p14_other_row_length_names_both(records):
    with pytest.raises(DataError, match=r"seq_length = 512: the records were made for 64"):
        check_records(read_manifest(records), seq_length=512, vocab_size=300, max_predictions=80)


def test_p14_impossible_predictions_are_named(records):
    with pytest.raises(DataError, match="max_predictions = 63: expected 1 to seq_length - 2 = 62"):
        check_records(read_manifest(records), seq_length=64, vocab_size=300, max_predictions=63)


def test_p15_small_vocabulary_names_id_and_size(records):
    manifest = read_manifest(records)
    with pytest.raises(
        DataError, match=f"vocab_size = 50: the records hold token id {manifest.max_token_id}"
    ):
        check_records(manifest, seq_length=64, vocab_size=50, max_predictions=10)
    check_records(manifest, seq_length=64, vocab_size=512, max_predictions=10)


def test_shards_are_read_at_random_one_record_at_a_time(records):
    reader = ArrayRecordReader(str(records / read_manifest(records).shards[0].name))
    options = reader.writer_options_string()
    reader.close()
    assert "group_size:1," in options
    assert "uncompressed" in options


def test_max_token_id_is_that_of_the_records(records):
    manifest = read_manifest(records)
    highest = 0
    for shard in manifest.shards:
        reader = ArrayRecordReader(str(records / shard.name))
        ids = [np.frombuffer(record, "<u2", offset=4) for record in reader.read_all()]
        highest = max(highest, *(int(row.max()) for row in ids))
        reader.close()
    assert highest == manifest.max_token_id
