import shutil

import pytest

from bert_lamb.data.batches.pipeline import eval_batches
from bert_lamb.data.building.report import read_report
from bert_lamb.data.errors import DataError
from bert_lamb.data.inspection import describe_records, describe_report, show_examples
from bert_lamb.data.records.manifest import read_manifest


def test_examples_are_shown_as_text(records, tokenizer):
    shown = list(show_examples(records, start=3, number=2))
    assert [text.splitlines()[0] for text in shown] == ["--- example 3", "--- example 4"]
    for text in shown:
        _, head, a, b = text.splitlines()
        assert a.startswith("A: [CLS] ")
        assert a.endswith(" [SEP]")
        assert b.endswith(" [SEP]")
        assert head.endswith(("next", "random next"))
        tokens = a.removeprefix("A: ").split() + b.removeprefix("B: ").split()
        assert head.startswith(f"{len(tokens)} tokens")
        assert "[MASK]" not in tokens


def test_masked_examples_name_what_is_hidden(records):
    plain, masked = (next(show_examples(records, 0, 1, masked=m)) for m in (False, True))
    words = [" ".join(text.splitlines()[2:4]).replace("A: ", "").replace("B: ", "").split()
             for text in (plain, masked)]  # fmt: skip
    hidden = dict(part.split() for part in masked.splitlines()[-1][len("hidden: ") :].split(", "))
    differing = {i for i, pair in enumerate(zip(*words, strict=True)) if pair[0] != pair[1]}
    assert differing <= {int(place) for place in hidden}
    assert {words[0][int(place)] == token for place, token in hidden.items()} == {True}


def test_description_holds_the_manifest(records):
    manifest = read_manifest(records)
    text = describe_records(records)
    for figure in (f"{manifest.num_examples:,}", manifest.tokenizer_hash[:12], "seed 3"):
        assert figure in text


@pytest.mark.parametrize(("start", "number"), [(-1, 1), (10**6, 1), (0, 0)])
def test_examples_that_are_not_there_are_named(records, start, number):
    with pytest.raises(DataError, match=r"start = |number = "):
        list(show_examples(records, start, number))


def test_first_example_of_an_evaluation_can_be_chosen(records):
    from bert_lamb.config import MaskingConfig

    common = {"seq_length": 64, "max_predictions": 10, "masking": MaskingConfig(), "seed": 0}
    all_rows = next(eval_batches(records, batch=12, **common))
    some = next(eval_batches(records, batch=4, first=5, max_examples=4, **common))
    assert (some["input_ids"] == all_rows["input_ids"][5:9]).all()


def test_records_without_a_report_show_their_counts(tmp_path, records):
    folder = tmp_path / "set"
    shutil.copytree(records, folder)
    (folder / "data_report.json").unlink()
    assert describe_report(folder).startswith("no data report, as of imported records; counts: ")
    assert describe_report(records) == read_report(records).table()
