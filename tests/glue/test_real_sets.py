"""The real files of four tasks: counts by a second reading, rows, and what they hold in common."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_lamb.data.tokenization import WordPiece, load_tokenizer
from bert_lamb.glue.dataset import Dataset
from bert_lamb.glue.features import FeatureOptions, make_features
from bert_lamb.glue.metrics import evaluate
from bert_lamb.glue.reading import find_file, read_dataset, read_predictions
from bert_lamb.glue.tasks import find_task
from bert_lamb.glue.writing import write_predictions

# Examples, as the paper and the task's pages publish them; SST-2's training file here is cut.
FILES = {
    ("CoLA", "train"): 8_551, ("CoLA", "dev"): 1_043, ("SST-2", "train"): 20_000,
    ("SST-2", "dev"): 872, ("MRPC", "train"): 4_076, ("MRPC", "dev"): 408, ("MRPC", "test"): 1_725,
    ("RTE", "train"): 2_490, ("RTE", "dev"): 277,
}  # fmt: skip
# Where the label and the texts stand, and whether there is a header: read off the files by eye.
PLACES = {"CoLA": (1, [3], 0), "SST-2": (1, [0], 1), "MRPC": (0, [3, 4], 1), "RTE": (3, [1, 2], 1)}


@pytest.fixture(scope="module")
def glue(shared: Path) -> Path:
    return shared / "data" / "glue"


def read(glue: Path, name: str, split: str) -> Dataset:
    task = find_task(name)
    return read_dataset(find_file(str(glue / name), task, split), task)


@pytest.mark.parametrize(("name", "split"), FILES)
def test_counts_labels_and_texts_are_those_of_a_second_reading(glue, name, split):
    data = read(glue, name, split)
    label, texts, header = PLACES[name]
    content = Path(data.name).read_bytes().decode("utf-8-sig")
    rows = [line.split("\t") for line in content.removesuffix("\n").split("\n")[header:]]
    assert len(data) == len(rows) == FILES[name, split]
    assert list(data.texts) == [row[texts[0]] for row in rows]
    assert (data.pairs is None) == (len(texts) == 1)
    if data.pairs is not None:
        assert list(data.pairs) == [row[texts[1]] for row in rows]
    counts = Counter(row[label] for row in rows)
    found = Counter(data.task.labels[n] for n in data.labels)
    assert found == counts
    assert all(f"{key} {value:,} (" in data.describe() for key, value in counts.items())
    assert not data.faults
    assert not data.blank


def test_a_reader_of_csv_would_lose_pairs_of_mrpc(glue):
    data = read(glue, "MRPC", "train")
    with open(data.name, encoding="utf-8-sig", newline="") as file:
        pairs = sum(1 for _ in csv.reader(file, delimiter="\t")) - 1
    assert (len(data), pairs) == (4_076, 3_962)


def test_the_pairs_of_mrpcs_dev_set_are_taken_out_of_the_microsoft_file(glue):
    train, dev = read(glue, "MRPC", "train"), read(glue, "MRPC", "dev")
    left = train.without(dev)
    assert (len(left), left.left_out) == (3_668, len(dev))  # as many as GLUE's own train.tsv
    assert not set(zip(left.texts, left.pairs, strict=True)) & set(
        zip(dev.texts, dev.pairs, strict=True)
    )
    test = read(glue, "MRPC", "test")
    assert train.without(test) is train


@pytest.fixture(scope="module")
def uncased(shared: Path) -> WordPiece:
    return load_tokenizer(shared / "data" / "vocab" / "bert-base-uncased-vocab.txt")


@pytest.mark.parametrize(("name", "length"), [("RTE", 64), ("RTE", 512), ("CoLA", 16)])
def test_rows_hold_the_tokens_of_their_texts(glue, uncased, name, length):
    data = read(glue, name, "dev")
    made = make_features(data, uncased, FeatureOptions(length))
    rows = made.rows(range(len(data)))
    whole = 0
    for n, (ids, mask) in enumerate(zip(rows["input_ids"], rows["input_mask"], strict=True)):
        parts = [data.texts[n]] if data.pairs is None else [data.texts[n], data.pairs[n]]
        expected = [uncased.cls_id]
        for part in uncased.encode_batch(parts):
            expected += [*part, uncased.sep_id]
        if len(expected) <= length:
            whole += 1
            assert ids[: mask.sum()].tolist() == expected
        else:
            assert mask.all()
            assert ids[-1] == uncased.sep_id
    assert whole == len(data) - len(made.cut)
    assert (rows["label"] == data.labels).all()
    assert (whole == len(data)) == (made.longest <= length)


def test_the_right_predictions_score_one_and_the_commonest_label_its_share(glue, tmp_path):
    for name in PLACES:
        data = read(glue, name, "dev")
        file = write_predictions(tmp_path / f"{name}.tsv", data, data.labels)
        perfect = evaluate(data.task, read_predictions(str(file), data), data.labels)
        assert set(perfect.metrics.values()) == {1.0}
        counts = np.bincount(data.labels)
        common = evaluate(data.task, np.full(len(data), counts.argmax(), np.int32), data.labels)
        if "accuracy" in common.metrics:
            assert common.metrics["accuracy"] == pytest.approx(counts.max() / len(data))
        else:
            assert common.metrics[common.main] == 0.0
            assert common.notes
