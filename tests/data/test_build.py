import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from bert_lamb.data.building import make
from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.duplicates import ExampleDuplicates
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.pool import local_executor
from bert_lamb.data.building.report import read_report
from bert_lamb.data.corpus import document, open_sources
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import ExampleOptions
from bert_lamb.data.records.format import unpack
from bert_lamb.data.records.manifest import read_manifest
from bert_lamb.data.tokenization import train_wordpiece
from tests.digests import digests

EXAMPLES = {f.name for f in fields(ExampleOptions)}
SMALL = {"block_chars": 16_000, "chunk_chars": 4_000}


def build(files, output, tokenizer, *, on_error="error", weights=None, workers=1, executor=None,
          overwrite=False, progress=None, seq_length=64, **options):  # fmt: skip
    files = [str(files)] if isinstance(files, Path) else [str(f) for f in files]
    examples = {key: options.pop(key) for key in EXAMPLES & options.keys()}
    examples = ExampleOptions(seq_length=seq_length, **examples)
    with local_executor(workers) as local:
        return build_records(
            open_sources(files, on_error=on_error, weights=weights), output, tokenizer,
            BuildOptions(examples, **options), executor=executor or local, overwrite=overwrite,
            progress=progress,
        )  # fmt: skip


def records_of(folder):
    return [
        record
        for shard in read_manifest(folder).shards
        for record in ArrayRecordReader(str(folder / shard.name)).read_all()
    ]


def left_behind(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def small_parts(monkeypatch):
    """Documents come in parts of 1,000 characters; in this process only."""
    monkeypatch.setattr(document, "PART_CHARS", 1_000)


def test_p01_single_document_is_refused_before_work(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("Ba ce.\nDi fo.\nGu ka.\n")
    with pytest.raises(DataError, match=r"1 document to train on .* at least 2"):
        build(tmp_path / "a.txt", tmp_path / "out", tokenizer)
    assert left_behind(tmp_path) == ["a.txt"]


def test_p01_documents_without_tokens_do_not_count(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("Ba ce.\n\n\u200b\n\n\u200b\u200b\n")
    with pytest.raises(DataError, match="1 document with text"):
        build(tmp_path / "a.txt", tmp_path / "out", tokenizer)
    assert left_behind(tmp_path) == ["a.txt"]


def test_p01_random_next_never_stays_in_a_book(tmp_path, tokenizer, small_parts):
    """Two books of many chunks each: most chunks see one of them, and borrow from the other."""
    for name, word in (("a", "baba"), ("b", "cece")):
        (tmp_path / f"{name}.txt").write_text(f"{word} {word} {word} {word}.\n" * 2_000)
    build([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "out", tokenizer, **SMALL)
    manifest = read_manifest(tmp_path / "out")
    pairs = unpack(
        records_of(tmp_path / "out"), np.dtype(manifest.id_dtype), 64, cls_id=2, sep_id=3, pad_id=0
    )
    words = [set(tokenizer.encode_batch([w])[0]) for w in ("baba", "cece")]
    first_a = pairs.tokens[:, 1]
    last_b = pairs.tokens[np.arange(len(first_a)), pairs.lengths - 3]
    of = [[int(id) in words[1] for id in column] for column in (first_a, last_b)]
    same = np.array(of[0]) == np.array(of[1])
    assert words[0].isdisjoint(words[1])
    assert np.mean(same == (pairs.labels == 0)) > 0.97  # a "." may stand in either place


def test_p02_one_sentence_documents_are_flagged(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("".join(f"Ba ce di {i}.\n\n" for i in range(30)))
    build(tmp_path / "a.txt", tmp_path / "out", tokenizer)
    report = read_report(tmp_path / "out")
    assert report.figures["mean_sentences"] == 1
    assert report.figures["label_ones_share"] == 1
    assert any("sentences per document" in warning for warning in report.warnings)
    assert any("expected 40-60 %" in warning for warning in report.warnings)
    assert "WARNING: 1.00 sentences per document" in report.table()


def test_p03_impossible_arguments_are_named(tmp_path, tokenizer, text_file):
    for key, value in [("workers", 0), ("num_shards", 0), ("copies", 0), ("heldout", 1.0)]:
        with pytest.raises(DataError, match=f"{key} = {value}"):
            build(text_file, tmp_path / "out", tokenizer, **{key: value})
    with pytest.raises(DataError, match="seq_length = 4"):
        build(text_file, tmp_path / "out", tokenizer, seq_length=4)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("text", ["", "\n\n \n\t\n"])
def test_p04_text_without_words_is_named_and_nothing_left(tmp_path, tokenizer, text):
    (tmp_path / "blank.txt").write_text(text)
    with pytest.raises(DataError, match=r"blank\.txt'?: no text in it"):
        build(tmp_path / "blank.txt", tmp_path / "out", tokenizer)
    assert left_behind(tmp_path) == ["blank.txt"]


def test_p03_p12_report_accounts_for_every_token(tmp_path, tokenizer, text_file):
    (tmp_path / "long.txt").write_text("bace " * 20_000 + "\n\nDi fo. Gu ka.\n")
    build([text_file, tmp_path / "long.txt"], tmp_path / "out", tokenizer, copies=2)
    c = read_report(tmp_path / "out").counts
    assert c.written + c.truncated == c.used == 2 * c.tokens
    assert c.row_tokens == c.written + c.borrowed + 3 * c.examples
    assert sum(c.lengths) == c.examples == len(records_of(tmp_path / "out"))


def test_p12_line_of_20000_words_is_kept(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("bace difo " * 10_000 + "\n\nGu ka.\n")
    build(tmp_path / "a.txt", tmp_path / "out", tokenizer, seq_length=128)
    report = read_report(tmp_path / "out")
    assert report.figures["kept_share"] >= 0.99
    assert report.counts.split_sentences == 1


def test_p06_any_number_of_workers_gives_the_same_bytes(tmp_path, tokenizer, make_text):
    file = make_text(tmp_path / "a.txt", documents=400, seed=1)
    assert file.stat().st_size > 10 * SMALL["block_chars"]
    found = []
    for workers in (1, 2, 4):
        output = tmp_path / f"out{workers}"
        build(file, output, tokenizer, workers=workers, heldout=0.02, num_shards=3, **SMALL)
        found.append(digests(output))
    assert found[0] == found[1] == found[2]
    assert {name.split("/")[0] for name in found[0]} == {"train", "heldout"}


def test_p06_a_failing_worker_fails_the_build(tmp_path, tokenizer):
    """That the second document has no tokens is noticed in a worker first."""
    (tmp_path / "a.txt").write_text("Ba ce.\n\n\u200b\n")
    with pytest.raises(DataError, match="1 document with text"):
        build(tmp_path / "a.txt", tmp_path / "out", tokenizer, workers=2)
    assert left_behind(tmp_path) == ["a.txt"]


def test_p09_copies_differ_and_duplicates_are_counted(tmp_path, tokenizer, text_file):
    build(text_file, tmp_path / "one", tokenizer, num_shards=4)
    build(text_file, tmp_path / "five", tokenizer, num_shards=4, copies=5)
    one, five = read_manifest(tmp_path / "one"), read_manifest(tmp_path / "five")
    assert five.num_examples == pytest.approx(5 * one.num_examples, rel=0.05)
    sizes = [shard.num_examples for shard in five.shards]
    assert max(sizes) - min(sizes) <= 1
    records = records_of(tmp_path / "five")
    assert len(records) == five.num_examples
    assert five.report["duplicates"] == len(records) - len(set(records))
    assert set(records_of(tmp_path / "one")) < set(records)


def test_p10_faulty_bytes_reach_the_report(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"Ba ce.\nBad \xff\xfe.\n\nDi fo.\nGu ka.\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2, byte 11"):
        build(tmp_path / "a.txt", tmp_path / "out", tokenizer, workers=2)
    assert left_behind(tmp_path) == ["a.txt"]
    build(tmp_path / "a.txt", tmp_path / "out", tokenizer, on_error="replace")
    report = read_report(tmp_path / "out")
    assert report.sources[0].bytes_dropped == 2
    assert any("2 bytes of faulty text" in warning for warning in report.warnings)
    assert "line 2, byte 11" in report.table()


def test_p20_removed_characters_are_counted(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("Ba\u0085ce di\u200bfo.\n\nGu ka.\n", "utf-8")
    build(tmp_path / "a.txt", tmp_path / "out", tokenizer)
    report = read_report(tmp_path / "out")
    assert report.counts.removed_characters == 2
    assert any("control characters removed" in warning for warning in report.warnings)


def test_heldout_is_the_end_of_each_source(tmp_path, tokenizer):
    for name in ("ba", "ce"):
        (tmp_path / name).write_text("".join(f"{name} di {i}. Fo gu.\n\n" for i in range(20)))
    made = build([tmp_path / "ba", tmp_path / "ce"], tmp_path / "out", tokenizer, heldout=0.1)
    assert list(made) == [str(tmp_path / "out" / name) for name in ("train", "heldout")]
    assert [m.report["counts"]["documents"] for m in made.values()] == [36, 4]
    with pytest.raises(DataError, match=r"heldout = 0\.01: holds out 0 of 40"):
        build([tmp_path / "ba", tmp_path / "ce"], tmp_path / "no", tokenizer, heldout=0.01)


def test_existing_output_is_kept_unless_asked(tmp_path, tokenizer, text_file):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"mine.*is not a record set"):
            build(text_file, tmp_path / "mine", tokenizer, overwrite=overwrite)
    build(text_file, tmp_path / "out", tokenizer)
    before = digests(tmp_path / "out")
    with pytest.raises(DataError, match="holds records already"):
        build(text_file, tmp_path / "out", tokenizer)
    assert digests(tmp_path / "out") == before
    build(text_file, tmp_path / "out", tokenizer, seed=1, overwrite=True)
    assert digests(tmp_path / "out") != before
    assert left_behind(tmp_path) == ["mine", "out"]


def test_builds_of_one_process_do_not_mix(tmp_path, tokenizer, text_file, make_text):
    """Another vocabulary, other text and other shards in the same place as before."""
    other = make_text(tmp_path / "other.txt", documents=40, seed=9)
    texts = [other.read_text()]
    build(text_file, tmp_path / "out", tokenizer, num_shards=3)
    for name in ("out", "fresh"):
        build(other, tmp_path / name, train_wordpiece(texts, 200), num_shards=2, seed=4,
              overwrite=True)  # fmt: skip
    assert digests(tmp_path / "out") == digests(tmp_path / "fresh")


def test_a_failure_half_way_leaves_the_old_records_and_goes_on(
    tmp_path, tokenizer, text_file, monkeypatch
):
    build(text_file, tmp_path / "out", tokenizer, seed=1)
    before = digests(tmp_path / "out")

    def fail(pieces, limit):
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(make, "chunks", fail)
        with pytest.raises(MemoryError):
            build(text_file, tmp_path / "out", tokenizer, overwrite=True)
    assert digests(tmp_path / "out") == before
    assert left_behind(tmp_path) == [".out.building", "out"]
    build(text_file, tmp_path / "out", tokenizer, overwrite=True)
    assert digests(tmp_path / "out") != before
    assert left_behind(tmp_path) == ["out"]


def test_progress_ends_at_the_total(tmp_path, tokenizer, text_file):
    seen = []
    build(text_file, tmp_path / "out", tokenizer, progress=seen.append, **SMALL)
    stages = {p.stage: p for p in seen}  # the last of each
    assert list(stages) == ["read", "make", "write"]
    assert stages["read"].done == text_file.stat().st_size
    for stage in ("make", "write"):
        assert stages[stage].done == stages[stage].total > 0
    assert len([p for p in seen if p.stage == "make"]) > 3


def test_report_file_reads_back(records):
    values = json.loads((records / "data_report.json").read_text("utf-8"))
    report = read_report(records)
    assert json.loads(json.dumps(report.to_dict())) == values
    table = report.table()
    for figure in (f"{report.counts.tokens:,}", f"{report.figures['label_ones_share']:.1%}"):
        assert figure in table
    with pytest.raises(DataError, match=r"data_report\.json"):
        read_report(records / "nothing")


def test_duplicates_are_estimated_once_there_are_too_many_to_keep(monkeypatch):
    monkeypatch.setattr("bert_lamb.data.building.duplicates._KEPT_HASHES", 1000)
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 50_000, np.uint64)
    counter = ExampleDuplicates()
    for part in np.array_split(np.concatenate([hashes, hashes[:20_000]]), 50):
        counter.add(part)
    assert counter.share < 0.05
    assert counter.duplicates == pytest.approx(20_000, rel=0.2)


# VmHWM and not getrusage: the latter's peak includes that of the process it was forked from.
PEAK = """
import re, sys
from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.corpus import open_sources
from bert_lamb.data.examples import ExampleOptions
from bert_lamb.data.tokenization import load_tokenizer
options = BuildOptions(ExampleOptions(), block_chars=1 << 17, chunk_chars=1 << 16)
build_records(open_sources(sys.argv[1:2]), sys.argv[2], load_tokenizer(sys.argv[3]), options)
assert "jax" not in sys.modules
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_p05_memory_does_not_grow_with_the_corpus(tmp_path, tokenizer, make_text):
    tokenizer.save(tmp_path)
    text = make_text(tmp_path / "a.txt", documents=5_000).read_bytes()
    peaks = []
    for times in (1, 4):
        file = tmp_path / f"{times}.txt"
        file.write_bytes(text * times)
        command = [sys.executable, "-c", PEAK, str(file), str(tmp_path / f"out{times}"),
                   str(tmp_path)]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        peaks.append(float(run.stdout))
    assert peaks[1] < 1.2 * peaks[0], peaks
    assert peaks[1] < 300, peaks


def segments(folder, tokenizer):
    """Yields (first segment, second segment, label) of all rows, as texts."""
    manifest = read_manifest(folder)
    rows = unpack(
        records_of(folder), np.dtype(manifest.id_dtype), manifest.seq_length,
        cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id, pad_id=tokenizer.pad_id,
    )  # fmt: skip
    for tokens, length, a, label in zip(
        rows.tokens.tolist(), rows.lengths, rows.lengths_a, rows.labels, strict=True
    ):
        yield tokenizer.decode(tokens[:a]), tokenizer.decode(tokens[a:length]), int(label)


def test_p01_a_dropped_duplicate_lends_nothing(tmp_path, tokenizer):
    same = "".join(f"Baba {'ba ' * (i % 5 + 1)}.\n" for i in range(40))
    other = "".join(f"Cece {'ce ' * (i % 5 + 1)}.\n" for i in range(40))
    (tmp_path / "a.txt").write_text(f"{same}\n{same}\n{other}")
    build(tmp_path / "a.txt", tmp_path / "out", tokenizer)
    rows = list(segments(tmp_path / "out", tokenizer))
    assert {label for *_, label in rows} == {0, 1}
    for first, second, label in rows:
        assert (
            ("b" in first) == ("b" in second) if label == 0 else ("b" in first) != ("b" in second)
        )


def test_nothing_held_out_is_lent_to_training_nor_back(tmp_path, tokenizer):
    syllables = ["ba", "ce", "di", "fo"]
    texts = ["".join(f"{s} {s}{s} {s}.\n" for _ in range(30)) for s in syllables]
    texts = [text + f"{i}.\n" for i, text in enumerate(texts)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    build(tmp_path / "a.txt", tmp_path / "out", tokenizer, heldout=0.5, **SMALL)
    for name, own, others in (("train", "bc", "df"), ("heldout", "df", "bc")):
        text = "".join(a + b for a, b, _ in segments(tmp_path / "out" / name, tokenizer))
        assert any(letter in text for letter in own)
        assert not any(letter in text for letter in others)
