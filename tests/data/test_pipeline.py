import itertools
import json
import re
import shutil

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.pipeline import (
    eval_batches,
    host_rows,
    read_token_rows,
    train_batches,
)
from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.corpus import open_sources
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import ExampleOptions
from bert_lamb.data.records.manifest import read_manifest

COMMON = {"seq_length": 64, "max_predictions": 10, "masking": MaskingConfig(), "seed": 5}


def train(records, count, host=0, hosts=1, **options):
    options = {**COMMON, "global_batch": 16, **options}
    rows = host_rows(options["global_batch"], host, hosts)
    return list(itertools.islice(train_batches(records, rows=rows, **options), count))


def evaluate(records, host=0, hosts=1, **options):
    options = {**COMMON, "batch": 24, **options}
    return list(eval_batches(records, rows=host_rows(options["batch"], host, hosts), **options))


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for key in first:
        assert np.array_equal(first[key], second[key]), key


def unmasked(batch):
    """The rows as they stand in the records, as hashable values."""
    ids = batch["input_ids"].copy()
    for row, positions, original, weights in zip(
        ids, batch["masked_lm_positions"], batch["masked_lm_ids"], batch["masked_lm_weights"],
        strict=True,
    ):  # fmt: skip
        row[positions[weights > 0]] = original[weights > 0]
    return [row.tobytes() for row in ids]


def test_batches_have_the_promised_shapes_and_types(records):
    (batch,) = train(records, 1)
    T, P, B = 64, 10, 16
    expected = {
        "input_ids": ((B, T), np.int32),
        "input_mask": ((B, T), np.int32),
        "segment_ids": ((B, T), np.int32),
        "masked_lm_positions": ((B, P), np.int32),
        "masked_lm_ids": ((B, P), np.int32),
        "masked_lm_weights": ((B, P), np.float32),
        "next_sentence_labels": ((B,), np.int32),
        "next_sentence_weights": ((B,), np.float32),
        "row": ((B,), np.int32),
    }
    assert {k: (v.shape, v.dtype) for k, v in batch.items()} == expected
    assert batch["row"].tolist() == list(range(B))
    assert batch["next_sentence_weights"].all()


def test_p27_rows_are_one_pair_between_separators(records, tokenizer):
    for batch in train(records, 20):
        restored = [np.frombuffer(row, np.int32) for row in unmasked(batch)]
        for i, ids in enumerate(restored):
            length = batch["input_mask"][i].sum()
            (separators,) = np.nonzero(ids == tokenizer.sep_id)
            assert ids[0] == tokenizer.cls_id
            assert (ids == tokenizer.cls_id).sum() == 1
            assert len(separators) == 2
            assert separators[1] == length - 1
            assert (ids[length:] == tokenizer.pad_id).all()
            assert (batch["input_mask"][i] == (np.arange(64) < length)).all()
            inside_b = (np.arange(64) > separators[0]) & (np.arange(64) < length)
            assert (batch["segment_ids"][i] == inside_b).all()
            assert 1 < separators[0] < separators[1] - 1


def test_each_epoch_holds_every_example_once_in_a_new_order(records):
    size = read_manifest(records).num_examples
    rows = [row for batch in train(records, 2 * size // 16 + 1) for row in unmasked(batch)]
    everything = sorted(row for batch in evaluate(records, batch=size) for row in unmasked(batch))
    assert sorted(rows[:size]) == everything
    assert sorted(rows[size : 2 * size]) == everything
    assert rows[:size] != rows[size : 2 * size]


def test_p09_an_example_gets_other_masks_in_each_epoch(records):
    size = read_manifest(records).num_examples
    first, second = train(records, 2, global_batch=size)
    masks = [
        dict(zip(unmasked(b), map(bytes, b["masked_lm_positions"]), strict=True))
        for b in (first, second)
    ]
    same = sum(masks[0][row] == masks[1][row] for row in masks[0])
    assert same < 0.1 * size


def test_p37_batch_t_is_reached_directly(records):
    straight = train(records, 40)
    for t in (0, 1, 17, 39):
        assert_equal(train(records, 1, start=t)[0], straight[t])
    far = train(records, 1, start=10**9)[0]
    assert far["input_ids"].shape == (16, 64)


@pytest.mark.parametrize("processes", [2, 4])
def test_p37_processes_share_the_same_batches(records, processes):
    whole = train(records, 6)
    shares = [train(records, 6, host=i, hosts=processes) for i in range(processes)]
    for t in range(6):
        joined = {key: np.concatenate([share[t][key] for share in shares]) for key in whole[t]}
        assert_equal(joined, whole[t])


def test_p37_run_goes_on_with_another_number_of_processes(records):
    straight = [sorted(unmasked(batch)) for batch in train(records, 10)]
    resumed = []
    for start, count, processes in ((0, 5, 4), (5, 5, 2)):
        shares = [
            train(records, count, start=start, host=i, hosts=processes) for i in range(processes)
        ]
        resumed += [
            sorted(r for b in step for r in unmasked(b)) for step in zip(*shares, strict=True)
        ]
    assert resumed == straight


@pytest.mark.parametrize("processes", [4, 8])
def test_p08_p32_each_process_reads_its_share_and_all_read_everything(records, processes):
    batch = 16
    size = read_manifest(records).num_examples
    steps = size // batch
    rows = []
    for i in range(processes):
        for b in train(records, steps, host=i, hosts=processes):
            assert len(b["row"]) == batch // processes
            rows += zip(itertools.repeat(i), b["row"].tolist(), unmasked(b))
    assert len({content for _, _, content in rows}) == steps * batch
    owners = {}
    for process, row, _ in rows:
        owners.setdefault(row, set()).add(process)
    assert set(owners) == set(range(batch))
    assert all(len(owner) == 1 for owner in owners.values())


def test_seed_decides_order_and_masks(records):
    (one,), (two,) = train(records, 1), train(records, 1, seed=6)
    assert unmasked(one) != unmasked(two)
    assert_equal(train(records, 1)[0], one)


def test_records_fewer_than_a_batch_repeat_with_other_masks(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("Bace difo guka lemi.\n\nNopu rase tivo bace.\n")
    build_records(
        open_sources([str(tmp_path / "a.txt")]), tmp_path / "set", tokenizer,
        BuildOptions(ExampleOptions(seq_length=64)),
    )  # fmt: skip
    assert read_manifest(tmp_path / "set").num_examples == 2
    (batch,) = train(tmp_path / "set", 1)
    assert len(set(unmasked(batch))) == 2
    assert len({row.tobytes() for row in batch["input_ids"]}) > 2


@pytest.mark.parametrize("processes", [1, 4])
def test_p33_p35_p70_evaluation_takes_every_example_once(records, processes):
    size = read_manifest(records).num_examples
    assert size % 24
    shares = [evaluate(records, host=i, hosts=processes) for i in range(processes)]
    assert {len(share) for share in shares} == {-(-size // 24)}
    batches = [b for step in zip(*shares, strict=True) for b in step]
    assert sum(b["next_sentence_weights"].sum() for b in batches) == size
    weights = np.concatenate([b["next_sentence_weights"] for b in batches])
    rows = [row for b in batches for row in unmasked(b)]
    assert len({row for row, weight in zip(rows, weights, strict=True) if weight}) == size


def test_p35_p70_batch_size_changes_nothing(records):
    def joined(batch):
        batches = evaluate(records, batch=batch)
        real = np.concatenate([b["next_sentence_weights"] for b in batches]) > 0
        return {k: np.concatenate([b[k] for b in batches])[real] for k in batches[0] if k != "row"}

    one = joined(1)
    for batch in (7, 24, 1000):
        assert_equal(joined(batch), one)


def test_padding_rows_weigh_nothing_and_are_not_blank(records, tokenizer):
    last = evaluate(records)[-1]
    padding = last["next_sentence_weights"] == 0
    assert padding.any()
    assert not last["masked_lm_weights"][padding].any()
    assert (last["input_mask"][padding].sum(axis=1) == 3).all()
    assert last["row"].tolist() == list(range(24))


def test_evaluation_of_the_first_examples(records):
    batches = evaluate(records, max_examples=30)
    assert [b["next_sentence_weights"].sum() for b in batches] == [24, 6]
    assert_equal(batches[0], evaluate(records)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_length": 128}, "seq_length = 128: the records were made for 64"),
        ({"max_predictions": 99}, "max_predictions = 99"),
        ({"rows": np.array([15, 16])}, "rows = [15, 16]: expected numbers below global_batch = 16"),
        ({"global_batch": 0}, "global_batch = 0: expected at least 1 row"),
        ({"start": -1}, "start = -1"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_p14_arguments_are_checked_before_the_first_batch(records, options, message):
    arguments = {**COMMON, "global_batch": 16, **options}
    with pytest.raises(DataError, match=re.escape(message)):
        train_batches(records, **arguments)


def test_p32_a_batch_that_hosts_cannot_share_evenly_is_refused():
    assert host_rows(16, 1, 4).tolist() == [4, 5, 6, 7]
    with pytest.raises(DataError, match="16 rows: expected a positive multiple of 3 hosts"):
        host_rows(16, 0, 3)
    with pytest.raises(DataError, match="host = 4: expected 0 to 3"):
        host_rows(16, 4, 4)


def test_foreign_tokenizer_and_short_shards_are_refused(tmp_path, records):
    folder = tmp_path / "set"
    shutil.copytree(records, folder)
    shards = read_manifest(folder).shards
    manifest = folder / "manifest.json"
    text = manifest.read_text("utf-8")
    values = json.loads(text)
    values["num_examples"] = 9
    manifest.write_text(json.dumps(values))
    with pytest.raises(DataError, match="num_examples = 9: the shards hold"):
        train(folder, 1)
    values["shards"] = [{"name": shards[0].name, "num_examples": 9}]
    manifest.write_text(json.dumps(values))
    with pytest.raises(DataError, match="the manifest says 9"):
        train(folder, 1)
    manifest.write_text(text)
    damaged = folder / shards[0].name
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cannot be opened"):
        train(folder, 1)
    damaged.write_bytes(data)
    core = (folder / "tokenizer.json").read_text("utf-8")
    (folder / "tokenizer.json").write_text(core.replace('"lowercase": true', '"lowercase": false'))
    with pytest.raises(DataError, match=r"hash of the tokenizer, .* is not that of the records"):
        train(folder, 1)


@pytest.fixture
def damaged(tmp_path, records):
    """A copy of the records whose second shard is cut short and whose third has a wrong byte."""
    folder = tmp_path / "damaged"
    shutil.copytree(records, folder)
    paths = [folder / shard.name for shard in read_manifest(folder).shards]
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    data = bytearray(paths[2].read_bytes())
    record = ArrayRecordReader(str(paths[2])).read([3])[0]
    at = bytes(data).index(record)
    data[at + 6] ^= 1
    paths[2].write_bytes(data)
    return folder


def test_damage_is_named_and_stops(damaged):
    cut, flipped = (read_manifest(damaged).shards[i].name for i in (1, 2))
    with pytest.raises(DataError, match=rf"{cut}: cannot be opened .*on_damage=skip"):
        train(damaged, 1)
    shutil.copy(damaged / read_manifest(damaged).shards[0].name, damaged / cut)
    with pytest.raises(DataError, match=rf"{flipped}: record 3 cannot be read"):
        train(damaged, -(-read_manifest(damaged).num_examples // 16))


def test_skipped_damage_leaves_empty_rows_and_is_counted(damaged, records, caplog):
    manifest = read_manifest(damaged)
    sizes = [shard.num_examples for shard in manifest.shards]
    count = -(-manifest.num_examples // 16)
    whole, holed = train(records, count), train(damaged, count, on_damage="skip")
    empty = 0
    for first, second in zip(whole, holed, strict=True):
        there = second["next_sentence_weights"] > 0
        empty += int((~there).sum())
        for key in first:
            assert np.array_equal(first[key][there], second[key][there]), key
        assert not second["masked_lm_weights"][~there].any()
    # The last batch may reach into the next epoch.
    assert sizes[1] + 1 <= empty <= sizes[1] + 1 + 16
    names = [manifest.shards[i].name for i in (1, 2)]
    for name in names:
        assert any(name in message and "skipped" in message for message in caplog.messages)


def test_rows_of_one_segment_have_no_sentence_label(tmp_path, tokenizer, text_file):
    options = BuildOptions(ExampleOptions("single", 64, cross_documents=True))
    build_records(open_sources([str(text_file)]), tmp_path / "set", tokenizer, options)
    for batch in train(tmp_path / "set", 4):
        assert not batch["next_sentence_weights"].any()
        assert not batch["segment_ids"].any()
        assert (batch["masked_lm_weights"].sum(axis=1) >= 1).all()


def test_whole_words_are_those_of_the_tokenizer(records, tokenizer):
    masking = MaskingConfig(whole_word=True)
    for batch in train(records, 4, masking=masking, max_predictions=30):
        ids = batch["input_ids"].copy()
        rows, slots = np.nonzero(batch["masked_lm_weights"])
        ids[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
        hidden = np.zeros(ids.shape, bool)
        hidden[rows, batch["masked_lm_positions"][rows, slots]] = True
        inner = tokenizer.continues[ids[:, 1:]] & np.isin(ids[:, :-1], tokenizer.ordinary_ids)
        assert np.array_equal(hidden[:, 1:][inner], hidden[:, :-1][inner])


def test_token_rows_hold_every_id_once(records, tokenizer):
    counts = sum(np.bincount(ids, minlength=300) for ids in read_token_rows(records))
    expected = np.zeros(300, int)
    for batch in evaluate(records):
        for row in unmasked(batch):
            expected += np.bincount(np.frombuffer(row, np.int32), minlength=300)
    expected[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]] = 0
    assert np.array_equal(counts, expected)
