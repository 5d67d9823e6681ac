"""Weights of sources, duplicate documents and excluded titles."""

import json

import numpy as np
import pytest

from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.duplicates import repeated_documents
from bert_lamb.data.building.gather import HASH
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.report import read_report
from bert_lamb.data.corpus import open_sources
from bert_lamb.data.corpus.titles import read_titles
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import ExampleOptions


def build(files, output, tokenizer, weights=None, **options):
    build_records(
        open_sources(list(map(str, files)), weights=weights), output, tokenizer,
        BuildOptions(ExampleOptions(seq_length=64), **options),
    )  # fmt: skip
    return read_report(output)


def write_json_lines(path, documents):
    lines = (json.dumps({"id": str(i), **d}) for i, d in enumerate(documents))
    path.write_text("\n".join(lines), "utf-8")
    return path


@pytest.mark.parametrize("weight", [0.25, 1.0, 1.5, 2.0])
def test_weight_is_the_number_of_uses(tmp_path, tokenizer, make_text, weight):
    files = [make_text(tmp_path / f"{i}.txt", documents=200, seed=i) for i in range(2)]
    report = build(files, tmp_path / "out", tokenizer, weights=[1.0, weight], copies=2)
    plain, weighted = (source.counts for source in report.sources)
    assert plain.used == 2 * plain.tokens
    assert weighted.used / weighted.tokens == pytest.approx(2 * weight, rel=0.15)
    if weight == int(weight):
        assert weighted.used == 2 * weight * weighted.tokens
    for counts in (plain, weighted):
        assert counts.written + counts.truncated + counts.dropped == counts.used


def test_equal_documents_are_used_once_and_counted(tmp_path, tokenizer):
    texts = [f"Ba ce {i}. Di fo gu." for i in (1, 2, 1, 3, 2, 1)]
    first = write_json_lines(tmp_path / "a.jsonl", [{"text": t} for t in texts])
    second = write_json_lines(tmp_path / "b.jsonl", [{"text": t} for t in [*texts, "Ka le."]])
    report = build([first, second], tmp_path / "out", tokenizer)
    assert [s.duplicates for s in report.sources] == [3, 6]
    assert [s.documents for s in report.sources] == [3, 1]
    assert report.counts.documents == 4
    assert any("9 of 13 documents are equal" in warning for warning in report.warnings)


def test_a_document_repeated_in_the_held_out_part_is_not_held_out(tmp_path, tokenizer):
    texts = [f"Ba ce {i}. Di fo gu." for i in range(18)]
    file = write_json_lines(tmp_path / "a.jsonl", [{"text": t} for t in [*texts, *texts[:2]]])
    with pytest.raises(DataError, match=r"heldout = 0\.1: holds out 0 of 18 documents"):
        build([file], tmp_path / "out", tokenizer, heldout=0.1)


def test_repeated_documents_are_those_of_a_dictionary():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 500, 2_000)
    values = rng.integers(0, 2**64, (500, 2), np.uint64)
    hashes = np.empty(len(keys), HASH)
    hashes["high"], hashes["low"] = values[keys].T
    seen, expected = set(), []
    for number, key in enumerate(keys.tolist()):
        if key in seen:
            expected.append(number)
        seen.add(key)
    parts = np.array_split(hashes, 7)
    assert repeated_documents(parts).tolist() == expected


def test_articles_of_squad_are_kept_out_by_title(tmp_path, tokenizer):
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"version": "1.1", "data": [
        {"title": "Super_Bowl_50", "paragraphs": []}, {"title": "Beyonc%C3%A9", "paragraphs": []},
    ]}))  # fmt: skip
    titles = ["Super Bowl 50", "Beyonc\u00e9", "Warsaw", "super Bowl 50", "Normans"]
    file = write_json_lines(
        tmp_path / "wiki.jsonl",
        [{"title": t, "text": f"Ba ce {i}. Di fo."} for i, t in enumerate(titles)],
    )
    report = build([file], tmp_path / "out", tokenizer, excluded_titles=read_titles([str(squad)]))
    assert report.sources[0].excluded == 3
    assert report.sources[0].documents == 2
    assert "3 excluded by title" in report.table()


def test_titles_that_cannot_work_are_told(tmp_path, tokenizer, text_file):
    file = write_json_lines(
        tmp_path / "wiki.jsonl", [{"title": t, "text": f"Ba ce {t}. Di fo."} for t in "xyz"]
    )
    report = build(
        [file, text_file], tmp_path / "one", tokenizer, excluded_titles=frozenset(("X", "Nobody"))
    )
    assert (report.titles, report.titles_found) == (2, 1)
    assert "1 of 2 were met" in report.table()
    (warning,) = (w for w in report.warnings if "have no titles" in w)
    assert warning.startswith(f"{text_file}: its documents have no titles")
    report = build([file], tmp_path / "two", tokenizer, excluded_titles=frozenset(("Nobody",)))
    assert any("none of the 1 titles" in warning for warning in report.warnings)


def test_copies_that_would_be_equal_are_refused():
    with pytest.raises(DataError, match="copies = 3: nothing is drawn at random"):
        BuildOptions(ExampleOptions("single"), copies=3)
    assert BuildOptions(ExampleOptions("single", short_seq_prob=0.1), copies=3).copies == 3
