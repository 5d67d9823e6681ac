import argparse
import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_lamb.cli.exchange import add_export, add_import
from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.pipeline import eval_batches
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import Example
from bert_lamb.data.exchange import distinct, export_tfrecords, import_tfrecords
from bert_lamb.data.records.format import id_dtype, pack
from bert_lamb.data.records.manifest import Manifest, Shard, read_manifest, write_manifest
from bert_lamb.data.records.shards import shard_name, write_shard
from bert_lamb.data.records.tf_example import decode_example, encode_example
from bert_lamb.data.records.tfrecord import read_tfrecord, write_tfrecord
from bert_lamb.data.tokenization import TextOptions, Tokenizer, load_tokenizer
from tests.reference import tf_example as reference
from tests.reference import wordpiece

T, P = 16, 3
WORDS = range(10, 60)  # ids of ordinary tokens
CLS, SEP = 2, 3
SCHEMA = {
    "input_ids": T, "input_mask": T, "segment_ids": T, "masked_lm_positions": P,
    "masked_lm_ids": P, "masked_lm_weights": P, "next_sentence_labels": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def vocab(tmp_path_factory) -> Path:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{i}]" for i in range(5))]
    tokens += [f"w{id}" for id in WORDS]
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens))
    return path


@pytest.fixture(scope="module")
def tokenizer(vocab) -> Tokenizer:
    return load_tokenizer(vocab)


def random_examples(count: int, seed: int = 0) -> list[Example]:
    """Pairs of at most T - 3 ordinary tokens, full rows and short ones."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        size = int(rng.integers(2, T - 2))
        ids = rng.choice(WORDS, size).tolist()
        a = int(rng.integers(1, size))
        examples.append(Example(ids[:a], ids[a:], bool(rng.integers(2))))
    return examples


def plain(example: Example) -> tuple[list[int], list[int] | None, bool]:
    ids_b = None if example.ids_b is None else list(example.ids_b)
    return list(example.ids_a), ids_b, example.label


def make_records(folder: Path, tokenizer: Tokenizer, *shards: list[Example]) -> Path:
    """A record set of these examples."""
    tokenizer.save(folder)
    dtype = id_dtype(tokenizer.vocab_size)
    files = []
    for i, examples in enumerate(shards):
        name = shard_name(i, len(shards))
        files.append(Shard(name, write_shard(folder / name, (pack(e, dtype) for e in examples))))
    manifest = Manifest(
        format_version=1, seq_length=T, vocab_size=tokenizer.vocab_size, max_token_id=max(WORDS),
        tokenizer_hash=tokenizer.hash, id_dtype=dtype.name, num_examples=sum(map(len, shards)),
        shards=tuple(files), num_random_next=sum(e.label for s in shards for e in s), seed=0,
        sources=(), options={}, report={},
    )  # fmt: skip
    write_manifest(folder, manifest)
    return folder


def stored(folder: Path) -> list[list[bytes]]:
    """The packed examples of each shard of a record set."""
    shards = []
    for shard in read_manifest(folder).shards:
        reader = ArrayRecordReader(str(folder / shard.name))
        shards.append(reader.read_all() if shard.num_examples else [])
        reader.close()
    return shards


def masked_row(a=(10, 11, 12), b=(13, 14), predict=(2,), label=0) -> dict[str, list]:
    """The features of one row as the script writes them; what is predicted is shown as [MASK]."""
    ids = [CLS, *a, SEP, *b, SEP]
    room, slots = T - len(ids), P - len(predict)
    return {
        "input_ids": [4 if i in predict else id for i, id in enumerate(ids)] + [0] * room,
        "input_mask": [1] * len(ids) + [0] * room,
        "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * room,
        "masked_lm_positions": [*predict] + [0] * slots,
        "masked_lm_ids": [ids[i] for i in predict] + [0] * slots,
        "masked_lm_weights": [1.0] * len(predict) + [0.0] * slots,
        "next_sentence_labels": [label],
    }


def write_rows(path: Path, rows: list[dict[str, list]], packed: bool = True) -> Path:
    path.write_bytes(b"".join(reference.frame(reference.write_example(r, packed)) for r in rows))
    return path


def unmask(row: dict[str, list]) -> list[int]:
    ids = list(row["input_ids"])
    for position, id, weight in zip(
        row["masked_lm_positions"], row["masked_lm_ids"], row["masked_lm_weights"], strict=True
    ):
        if weight == 1:
            ids[position] = id
    return ids


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    steps = parser.add_subparsers()
    add_export(steps)
    add_import(steps)
    args = parser.parse_args([str(argument) for argument in arguments])
    return args.verb(args)


def test_the_export_has_the_published_schema(tmp_path, tokenizer):
    shards = [random_examples(7, seed=1), random_examples(4, seed=2)]
    records = make_records(tmp_path / "records", tokenizer, *shards)
    out = tmp_path / "out"
    names = export_tfrecords(records, out, max_predictions=P)
    assert names == ["pairs-00000-of-00002.tfrecord", "pairs-00001-of-00002.tfrecord"]
    for name, examples in zip(names, shards, strict=True):
        rows = [reference.read_example(data) for data in reference.read_records(out / name)]
        for row, example in zip(rows, examples, strict=True):
            assert {key: len(values) for key, values in row.items()} == SCHEMA
            floats = {key for key in row if isinstance(row[key][0], float)}
            assert floats == {"masked_lm_weights"}
            whole = [CLS, *example.ids_a, SEP, *example.ids_b, SEP]
            room = T - len(whole)
            assert unmask(row) == whole + [0] * room
            assert row["input_mask"] == [1] * len(whole) + [0] * room
            second = len(example.ids_b) + 1
            assert row["segment_ids"] == [0] * (T - room - second) + [1] * second + [0] * room
            assert row["next_sentence_labels"] == [example.label]
            used = int(sum(row["masked_lm_weights"]))
            assert row["masked_lm_weights"] == [1.0] * used + [0.0] * (P - used)
            assert used >= 1
            for key in ("masked_lm_positions", "masked_lm_ids"):
                assert row[key][used:] == [0] * (P - used)
            assert (
                sorted(set(row["masked_lm_positions"][:used])) == row["masked_lm_positions"][:used]
            )


def test_p09_each_copy_follows_with_other_masks_and_the_first_has_those_of_evaluation(
    tmp_path, tokenizer
):
    examples = random_examples(600)
    records = make_records(tmp_path / "records", tokenizer, examples[:550], examples[550:])
    recipe = MaskingConfig(probability=0.3)
    export_tfrecords(records, tmp_path / "out", max_predictions=P, copies=3, seed=9, masking=recipe)
    first = list(read_tfrecord(tmp_path / "out/pairs-00000-of-00002.tfrecord"))
    rows = [{k: v.tolist() for k, v in decode_example(data).items()} for data in first]
    assert len(rows) == 3 * 550
    copies = [rows[:550], rows[550:1100], rows[1100:]]
    for one, two, three in zip(*copies, strict=True):
        assert unmask(one) == unmask(two) == unmask(three)
    masks = [[row["masked_lm_positions"] for row in copy] for copy in copies]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert np.mean([a != b for a, b in zip(masks[i], masks[j], strict=True)]) > 0.5
    [batch] = eval_batches(
        records, seq_length=T, max_predictions=P, batch=600, masking=recipe, seed=9
    )
    for key in SCHEMA:
        assert np.ravel(batch[key][:550]).tolist() == np.ravel([r[key] for r in copies[0]]).tolist()

    manifest = import_tfrecords([str(tmp_path / "out/*.tfrecord")], tmp_path / "back", tokenizer)
    distinct_pairs = len({str(plain(example)) for example in examples})
    assert manifest.num_examples == distinct_pairs
    assert manifest.report["duplicates"] == 1800 - distinct_pairs


@pytest.mark.parametrize("compressed", [False, True])
def test_export_and_import_give_the_same_examples_in_the_same_order(
    tmp_path, tokenizer, compressed
):
    shards = [random_examples(5, seed=1), [], random_examples(3, seed=2)]
    records = make_records(tmp_path / "records", tokenizer, *shards)
    out = tmp_path / "out"
    names = export_tfrecords(records, out, max_predictions=P, copies=2, compressed=compressed)
    assert all((out / name).exists() for name in names)
    # The folder holds the tokenizer, so it can stand for the vocabulary.
    manifest = import_tfrecords([str(out / "pairs-*")], tmp_path / "back", load_tokenizer(out))
    assert stored(tmp_path / "back") == stored(records)
    assert read_manifest(tmp_path / "back") == manifest
    before = read_manifest(records)
    for key in ("seq_length", "vocab_size", "tokenizer_hash", "id_dtype", "num_examples", "shards",
                "num_random_next"):  # fmt: skip
        assert getattr(manifest, key) == getattr(before, key), key
    ids = [id for shard in shards for e in shard for id in (*e.ids_a, *e.ids_b)]
    assert manifest.max_token_id == max(ids)
    assert [source["records"] for source in manifest.sources] == [10, 0, 6]
    for source, name in zip(manifest.sources, names, strict=True):
        data = (out / name).read_bytes()
        assert source["name"] == str(out / name)
        assert (source["bytes"], source["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert manifest.report == {
        "records": 16,
        "duplicates": 8,
        "label_ones_share": manifest.num_random_next / 8,
    }
    batches = eval_batches(
        tmp_path / "back", seq_length=T, max_predictions=P, batch=8, masking=MaskingConfig(), seed=0
    )
    assert sum(len(batch["row"]) for batch in batches) == 8


_IDS = st.lists(st.sampled_from([1, *WORDS]), min_size=1, max_size=6)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.builds(Example, _IDS, _IDS, st.booleans()), min_size=1, max_size=20),
    st.integers(1, 8),
    st.sampled_from([0.02, 0.15, 0.9]),
)
def test_any_examples_survive_the_round_trip(
    tmp_path_factory, tokenizer, examples, slots, probability
):
    folder = tmp_path_factory.mktemp("trip")
    records = make_records(folder / "records", tokenizer, examples)
    recipe = MaskingConfig(probability=probability, any_random_id=True, random_share=0.2)
    export_tfrecords(records, folder / "out", max_predictions=slots, masking=recipe)
    import_tfrecords([str(folder / "out/*.tfrecord")], folder / "back", tokenizer)
    assert stored(folder / "back") == [list(dict.fromkeys(stored(records)[0]))]


def test_rows_of_one_segment_survive_the_round_trip(tmp_path, tokenizer):
    examples = [
        Example([10, 11, 12], None),
        Example([20, 21, SEP, 22], None),  # crosses documents
        Example(list(WORDS)[: T - 2], None),
        Example([10, 11], [12]),
    ]
    records = make_records(tmp_path / "records", tokenizer, examples)
    export_tfrecords(records, tmp_path / "out", max_predictions=P)
    data = reference.read_records(tmp_path / "out/pairs-00000-of-00001.tfrecord")
    rows = [reference.read_example(record) for record in data]
    assert [sum(row["segment_ids"]) for row in rows] == [0, 0, 0, 2]
    assert [row["next_sentence_labels"] for row in rows] == [[0]] * 4
    import_tfrecords([str(tmp_path / "out/*.tfrecord")], tmp_path / "back", tokenizer)
    assert stored(tmp_path / "back") == stored(records)


def test_equal_exports_give_equal_bytes(tmp_path, tokenizer):
    records = make_records(tmp_path / "records", tokenizer, random_examples(20))
    folders = []
    for name, seed in (("one", 4), ("two", 4), ("other", 5)):
        export_tfrecords(records, tmp_path / name, max_predictions=P, seed=seed, compressed=True)
        folders.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
    assert folders[0] == folders[1]
    file = "pairs-00000-of-00001.tfrecord.gz"
    assert folders[0].keys() == {
        file,
        "export.json",
        *(p.name for p in _saved(tmp_path, tokenizer)),
    }
    assert folders[0][file] != folders[2][file]
    arguments = json.loads(folders[0]["export.json"])
    assert arguments.pop("masking") == dataclasses.asdict(MaskingConfig())
    assert arguments == {
        "seq_length": T, "max_predictions": P, "seed": 4, "copies": 1, "num_examples": 20,
        "tokenizer_hash": tokenizer.hash, "record_options": {},
    }  # fmt: skip


def _saved(tmp_path: Path, tokenizer: Tokenizer) -> list[Path]:
    tokenizer.save(tmp_path / "saved")
    return list((tmp_path / "saved").iterdir())


def test_nothing_is_overwritten_and_nothing_is_left_of_a_failure(tmp_path, tokenizer):
    records = make_records(tmp_path / "records", tokenizer, random_examples(5))
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("precious")
    bad = write_rows(tmp_path / "bad", [masked_row(), masked_row(label=7)])
    good = write_rows(tmp_path / "good", [masked_row()])
    before = sorted(tmp_path.iterdir())
    for output in (full, full / "mine.txt"):
        with pytest.raises(DataError, match="exists and is not an empty folder"):
            export_tfrecords(records, output, max_predictions=P)
        with pytest.raises(DataError, match="exists and is not an empty folder"):
            import_tfrecords([str(good)], output, tokenizer)
    for output in ("", "gs://bucket/out"):
        with pytest.raises(DataError, match=r"output '.*': e"):
            export_tfrecords(records, output, max_predictions=P)
    with pytest.raises(DataError, match="record 2: next_sentence_labels holds 7"):
        import_tfrecords([str(bad)], tmp_path / "out", tokenizer)
    with pytest.raises(DataError, match="max_predictions = 0"):
        export_tfrecords(records, tmp_path / "out", max_predictions=0)
    with pytest.raises(DataError, match="copies = 0: expected at least 1"):
        export_tfrecords(records, tmp_path / "out", max_predictions=P, copies=0)
    static = MaskingConfig(static=True)
    with pytest.raises(DataError, match="the copies would be equal"):
        export_tfrecords(records, tmp_path / "out", max_predictions=P, copies=2, masking=static)
    shard = next(records.glob("pairs-*"))
    [[*_, last]], data = stored(records), shard.read_bytes()
    shard.write_bytes(data.replace(last, last[:-1] + b"\x7f"))
    with pytest.raises(DataError, match=shard.name):
        export_tfrecords(records, tmp_path / "out", max_predictions=P)
    assert sorted(tmp_path.iterdir()) == before
    assert [p.name for p in full.iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    import_tfrecords([str(good)], tmp_path / "empty", tokenizer)
    assert read_manifest(tmp_path / "empty").num_examples == 1


@pytest.mark.parametrize("packed", [True, False])
def test_other_spellings_are_read(tmp_path, tokenizer, packed):
    rows = [masked_row(), masked_row(b=(20,), predict=(1, 2, 6), label=1)]
    for row in rows:  # the names of the TensorFlow Model Garden, and a feature of somebody else
        row["input_word_ids"] = row.pop("input_ids")
        row["input_type_ids"] = row.pop("segment_ids")
        row["extra"] = [1.5]
    write_rows(tmp_path / "[1].tfrecord", rows, packed=packed)
    import_tfrecords([str(tmp_path / "[1].tfrecord")], tmp_path / "out", tokenizer)
    examples = [Example([10, 11, 12], [13, 14], False), Example([10, 11, 12], [20], True)]
    assert stored(tmp_path / "out") == [[pack(e, np.dtype("<u2")) for e in examples]]


def changed(**features: list) -> dict[str, list]:
    return masked_row() | features


def at(key: str, index: int, value: float) -> dict[str, list]:
    row = masked_row()
    row[key][index] = value
    return row


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (at("input_ids", 1, 60), "input_ids holds 60, expected ids from 0 to 59"),
        (at("input_ids", 1, -1), "input_ids holds -1, expected ids"),
        (at("masked_lm_ids", 0, 2**40), "masked_lm_ids holds 1099511627776, expected ids"),
        (at("input_ids", 0, 10), r"id 10 at position 0, where this vocabulary needs \[CLS\] = 2"),
        (at("input_ids", 4, 10), r"id 10 at position 4, where this vocabulary needs \[SEP\] = 3"),
        (at("input_ids", 7, 10), r"id 10 at position 7, where this vocabulary needs \[SEP\] = 3"),
        (at("input_ids", 1, 6), r"id 6 among the words, which is \[unused1\] in this vocabulary"),
        (at("masked_lm_ids", 0, 4), r"id 4 among the words, which is \[MASK\] in this vocabulary"),
        (at("input_ids", 6, 3), r"id 3 among the words, which is \[SEP\] in this vocabulary"),
        (at("input_mask", 1, 0), "input_mask is not ones, then zeros"),
        (at("input_mask", 1, 2), "input_mask is not ones, then zeros"),
        (at("segment_ids", 1, 1), "segment_ids is not zeros, ones, then zeros"),
        (at("segment_ids", T - 1, 1), "segment_ids is not zeros, ones, then zeros"),
        (changed(input_mask=[0] * T, segment_ids=[0] * T), "0 tokens of the first and 0 of the"),
        (masked_row(a=(), predict=()), "2 tokens of the first and 3 of the second segment"),
        (masked_row(b=()), "5 tokens of the first and 1 of the second segment"),
        (at("masked_lm_weights", 0, 0.5), "masked_lm_weights holds other values than 0 and 1"),
        (at("masked_lm_weights", 1, float("nan")), "masked_lm_weights holds other values"),
        (at("masked_lm_positions", 0, 8), r"masked_lm_positions holds \[8\], expected positions"),
        (at("masked_lm_positions", 0, -1), r"masked_lm_positions holds \[-1\], expected pos"),
        (masked_row(predict=(2, 2)), r"masked_lm_positions holds a position twice: \[2, 2\]"),
        (at("next_sentence_labels", 0, 2), "next_sentence_labels holds 2, expected 0 or 1"),
        (changed(next_sentence_labels=[0, 1]), "next_sentence_labels holds 2 values, expected 1"),
        (changed(input_ids=[2] * 17), "input_ids holds 17 values, expected 16 as in .*record 1;"),
        (changed(masked_lm_ids=[1, 1]), "masked_lm_ids holds 2 values, expected 3 as in"),
        (changed(masked_lm_weights=[1, 0, 0]), "masked_lm_weights holds int64 values, expected fl"),
        (changed(input_ids=[2.0] * T), "input_ids holds float32 values, expected int64"),
        ({"text": [1]}, r"no feature input_ids, .* \(the record has text\)"),
        ({}, r"no feature .* \(the record has none\)"),
    ],
)  # fmt: skip
def test_p15_a_row_that_is_not_what_it_should_be_is_named(tmp_path, tokenizer, row, message):
    good = write_rows(tmp_path / "good", [masked_row()])
    path = write_rows(tmp_path / "bad", [masked_row(), masked_row(), row, masked_row()])
    with pytest.raises(DataError, match=f"^{path}, record 3: .*{message}") as caught:
        import_tfrecords([str(good), str(path)], tmp_path / "out", tokenizer)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_row_is_found_far_inside_a_file(tmp_path, tokenizer):
    rows = [masked_row()] * 1300 + [at("input_ids", 1, 99)] + [masked_row()] * 9
    path = write_rows(tmp_path / "bad", rows)
    with pytest.raises(DataError, match="record 1301: input_ids holds 99"):
        import_tfrecords([str(path)], tmp_path / "out", tokenizer)


def test_a_damaged_file_and_a_foreign_record_are_named(tmp_path, tokenizer):
    path = write_rows(tmp_path / "a", [masked_row()] * 3)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(DataError, match=rf"a, record 3, byte {len(data) * 2 // 3}: the file ends"):
        import_tfrecords([str(path)], tmp_path / "out", tokenizer)
    write_tfrecord(path, [b"\x0a\xff"])
    with pytest.raises(DataError, match=r"a, record 1: not a tf\.train\.Example \(2 bytes\)"):
        import_tfrecords([str(path)], tmp_path / "out", tokenizer)
    write_rows(path, [masked_row() | {"input_ids": [2] * 7}])
    with pytest.raises(DataError, match=r"a, record 1: seq_length = 7: expected 8 to 65535"):
        import_tfrecords([str(path)], tmp_path / "out", tokenizer)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="no record in 1 files"):
        import_tfrecords([str(path)], tmp_path / "out", tokenizer)
    for pattern in (str(tmp_path / "*.nope"), str(tmp_path), "", "ftp://host/x"):
        with pytest.raises(DataError, match=rf"input '{pattern[:3]}".replace("*", ".")):
            import_tfrecords([pattern], tmp_path / "out", tokenizer)


_GOOD = reference.write_example(masked_row())


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=80)
    | st.tuples(st.integers(0, len(_GOOD) - 1), st.integers(0, 255)).map(
        lambda change: _GOOD[: change[0]] + bytes([change[1]]) + _GOOD[change[0] + 1 :]
    )
)
def test_damaged_records_with_right_checksums_raise_data_errors_only(
    tmp_path_factory, tokenizer, data
):
    folder = tmp_path_factory.mktemp("damaged")
    write_tfrecord(folder / "a", [_GOOD, data])
    try:
        manifest = import_tfrecords([str(folder / "a")], folder / "out", tokenizer)
    except DataError as error:
        message = str(error)
        assert message.startswith(f"{folder / 'a'}, record 2: ")
    else:
        assert manifest.report["records"] == 2


def test_files_given_twice_are_read_once_and_equal_examples_are_found_across_files(
    tmp_path, tokenizer
):
    one, two = masked_row(predict=(1,)), masked_row(a=(33,), predict=(1,))
    write_rows(tmp_path / "a.tfrecord", [one, two, masked_row(predict=(2, 3))])
    write_rows(tmp_path / "b.tfrecord", [masked_row(label=1), masked_row(predict=(6,))])
    manifest = import_tfrecords(
        [str(tmp_path / "*.tfrecord"), str(tmp_path / "a.tfrecord")], tmp_path / "out", tokenizer
    )
    assert [shard.num_examples for shard in manifest.shards] == [2, 1]
    assert (manifest.report["records"], manifest.report["duplicates"]) == (5, 2)
    assert manifest.num_random_next == 1


def test_distinct_keeps_its_answers_when_it_sorts(monkeypatch):
    monkeypatch.setattr(distinct, "_RECENT", 7)
    seen, known = distinct.Distinct(), set()
    for number in np.random.default_rng(0).integers(0, 300, 2000).tolist():
        data = bytes(number)
        assert seen.add(data) == (data not in known)
        known.add(data)


def test_the_other_published_vocabulary_is_refused(tmp_path, shared):
    """Both have the same [CLS], [SEP] and [MASK]."""
    golden = json.loads((shared / "data/peer_golden/golden_sample_text_seed12345.json").read_text())
    path = write_rows(tmp_path / "uncased", golden)
    cased_file = shared / "data/vocab/bert-base-cased-vocab.txt"
    cased = load_tokenizer(cased_file, TextOptions(lowercase=False))
    with pytest.raises(DataError, match=r"uncased, record \d+: .*give the vocabulary the file"):
        import_tfrecords([str(path)], tmp_path / "out", cased)
    vocab = {token: id for id, token in enumerate(cased_file.read_text("utf-8").splitlines())}
    ids = [vocab[word] for word in ("The", "cat", "sat", ".")]
    row = dict(golden[0], input_ids=[101, *ids, 102, *ids, 102] + [0] * 117)
    row |= {"input_mask": [1] * 11 + [0] * 117, "segment_ids": [0] * 6 + [1] * 5 + [0] * 117}
    row["masked_lm_weights"] = [0.0] * 20
    path = write_rows(tmp_path / "cased", [row])
    uncased = load_tokenizer(shared / "data/vocab/bert-base-uncased-vocab.txt")
    with pytest.raises(DataError, match=r"id 119 among the words, which is \[unused114\]"):
        import_tfrecords([str(path)], tmp_path / "out", uncased)
    assert import_tfrecords([str(path)], tmp_path / "out", cased).num_examples == 1


def test_googles_sample_comes_back_as_the_text_it_was_made_of(tmp_path, shared, capsys):
    golden = json.loads((shared / "data/peer_golden/golden_sample_text_seed12345.json").read_text())
    arrays = [
        {k: np.array(v, np.float32 if k == "masked_lm_weights" else None) for k, v in row.items()}
        for row in golden
    ]
    write_tfrecord(tmp_path / "sample.tfrecord", map(encode_example, arrays))
    vocab_file = shared / "data/vocab/bert-base-uncased-vocab.txt"
    code = run(
        "import", "--input", tmp_path / "*.tfrecord", "--vocab", vocab_file, "--output",
        tmp_path / "out",
    )  # fmt: skip
    assert code == 0
    [records] = stored(tmp_path / "out")
    assert f"{len(records)} examples of 128 tokens" in capsys.readouterr().out

    vocab = wordpiece.read_vocab(vocab_file)
    text = (shared / "data/peer_golden/sample_text.txt").read_text("utf-8")
    documents = [
        "".join(f" {id}" for line in part.splitlines() for id in wordpiece.ids(line, vocab)) + " "
        for part in text.split("\n\n")
    ]
    expected: dict[tuple, None] = {}
    for row in golden:
        whole = unmask(row)[: sum(row["input_mask"])]
        b = len(whole) - sum(row["segment_ids"])
        ids_a, ids_b = whole[1 : b - 1], whole[b:-1]
        expected[tuple(ids_a), tuple(ids_b), row["next_sentence_labels"][0]] = None
        for ids in (ids_a, ids_b):
            assert any("".join(f" {id}" for id in ids) + " " in doc for doc in documents)
    found = []
    for record in records:
        a = int.from_bytes(record[2:4], "little")
        ids = np.frombuffer(record[4:], "<u2").tolist()
        found.append((tuple(ids[:a]), tuple(ids[a:]), record[0]))
    assert found == list(expected)
    assert read_manifest(tmp_path / "out").report["duplicates"] == 60 - len(expected)


def test_the_command_line_exports_and_imports(tmp_path, tokenizer, vocab, capsys):
    records = make_records(
        tmp_path / "records", tokenizer, random_examples(6), random_examples(2, 5)
    )
    code = run(
        "export", "--records", records, "--output", tmp_path / "out", "--max-predictions", P,
        "--copies", 2, "--seed", 3, "--gzip", "--mask-share", 1, "--random-share", 0,
    )  # fmt: skip
    assert code == 0
    assert "2 files" in capsys.readouterr().out
    for data in read_tfrecord(tmp_path / "out/pairs-00000-of-00002.tfrecord.gz"):
        row = decode_example(data)
        used = row["masked_lm_weights"] == 1
        assert (row["input_ids"][row["masked_lm_positions"][used]] == tokenizer.mask_id).all()
    code = run(
        "import", "--input", tmp_path / "out/*0-of*", "--input", tmp_path / "out/*1-of*",
        "--vocab", vocab, "--output", tmp_path / "back",
    )  # fmt: skip
    assert code == 0
    assert "8 examples of 16 tokens" in capsys.readouterr().out
    assert stored(tmp_path / "back") == stored(records)
