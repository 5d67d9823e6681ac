import gzip
import json
import lzma
import os
import subprocess
import sys

import pytest
import zstandard

from bert_lamb.data.corpus import ReadStats, document, files, open_sources, python_prose
from bert_lamb.data.errors import DataError


def read(*patterns, **options):
    stats = ReadStats()
    documents = [d for s in open_sources(patterns, **options) for d in s.read(stats)]
    return documents, stats


def test_blank_lines_divide_documents_and_line_ends_stay(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n \t\r\n\r\nThree.")
    documents, stats = read(str(file))
    assert [d.text for d in documents] == ["One.\nTwo.", "Three."]
    assert len({d.id for d in documents}) == 2
    assert stats.bytes == file.stat().st_size
    assert stats.lines == 5


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.compress)],
)
def test_json_lines_plain_and_packed(tmp_path, suffix, pack):
    lines = [{"id": 7, "title": "T", "text": "Ünïcode.\nNext."}, {"text": "Bare."}]
    data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(pack(data.encode()))
    documents, _ = read(str(tmp_path / "*.jsonl*"))
    assert [(d.title, d.text) for d in documents] == [("T", "Ünïcode.\nNext."), ("", "Bare.")]
    assert documents[0].id == "7"


def test_folder_means_its_visible_files_in_order(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden"):
        (tmp_path / name).write_text(f"{name} here.")
    assert [d.text for d in read(str(tmp_path))[0]] == ["a.txt here.", "b.txt here."]


def test_a_name_with_glob_characters_is_a_file(tmp_path):
    (tmp_path / "a[1].txt").write_text("Here.")
    assert len(read(str(tmp_path / "a[1].txt"))[0]) == 1


def test_p04_pattern_without_file_is_named(tmp_path):
    pattern = str(tmp_path / "nope*.txt")
    with pytest.raises(DataError, match=r"nope\*\.txt.*no file matches"):
        open_sources([pattern])
    with pytest.raises(DataError, match="no visible file"):
        open_sources([str(tmp_path)])


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.compress)],
)
def test_damaged_archive_is_named(tmp_path, suffix, pack):
    file = tmp_path / f"a.txt{suffix}"
    text = "".join(f"Line {i * i}.\n" for i in range(9000)).encode()
    packed = pack(text)
    for damaged in (packed[: len(packed) // 2], text):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"a\.txt\{suffix}: cannot be read"):
            read(str(file))


def test_zst_of_several_frames_is_read_to_its_end(tmp_path):
    (tmp_path / "a.txt.zst").write_bytes(
        zstandard.compress(b"One.\n\n") + zstandard.compress(b"Two.\n")
    )
    assert [d.text for d in read(str(tmp_path / "a.txt.zst"))[0]] == ["One.", "Two."]


BROKEN = b"Fine.\nBad \xff\xfe here.\nFine again.\n"


def test_p10_bad_bytes_stop_with_file_line_and_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes(BROKEN)
    with pytest.raises(DataError, match=r"a\.txt, line 2, byte 10: ff is not UTF-8"):
        read(str(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("policy", "text", "skipped", "dropped"),
    [
        ("replace", "Fine.\nBad \ufffd\ufffd here.\nFine again.", 0, 2),
        ("skip", "Fine.\nFine again.", 1, 13),
    ],
)
def test_p10_bad_bytes_are_counted(tmp_path, policy, text, skipped, dropped):
    (tmp_path / "a.txt").write_bytes(BROKEN)
    documents, stats = read(str(tmp_path / "a.txt"), on_error=policy)
    assert [d.text for d in documents] == [text]
    assert (stats.lines_skipped, stats.bytes_dropped) == (skipped, dropped)
    assert "line 2, byte 10" in stats.faults[0]


def test_p10_locale_does_not_matter(tmp_path):
    (tmp_path / "a.txt").write_text("Zoë.\n", "utf-8")
    code = (
        "import sys; from bert_lamb.data.corpus import *\n"
        "text = next(open_sources([sys.argv[1]])[0].read(ReadStats())).text\n"
        "assert text == 'Zo\\xeb.', ascii(text)"
    )
    environment = {**os.environ, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"}
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.txt")], env=environment, check=True
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [("{oops", "not a JSON record"), ("[1]", "got list"), ('{"body": "x"}', "'text'.*has 'body'")],
)
def test_bad_json_lines_are_named_or_skipped(tmp_path, line, problem):
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"text": "Good."}}\n{line}\n')
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{problem}"):
        read(str(file))
    documents, stats = read(str(file), on_error="skip")
    assert (len(documents), stats.lines_skipped) == (1, 1)


def test_p05_long_documents_and_lines_come_in_parts_without_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "PART_CHARS", 50)
    monkeypatch.setattr(files, "_PIECE_BYTES", 64)
    words = [f"wörd{i}" for i in range(300)]
    (tmp_path / "a.txt").write_text(
        " ".join(words) + "\n" + "\n".join(words) + "\n\nEnd.\n" + "é" * 150, "utf-8"
    )
    documents, stats = read(str(tmp_path / "a.txt"))
    first = [d for d in documents if d.id == documents[0].id]
    assert [d.part for d in first] == list(range(len(first)))
    assert max(len(d.text) for d in documents) <= 50
    assert " ".join(d.text for d in first).split() == words + words
    assert "".join(d.text.replace("\n", "") for d in documents[len(first) :]) == "End." + "é" * 150
    assert stats.lines == 304


def test_python_source_is_prose_without_repeats():
    texts = dict(python_prose.documents())
    size = sum(map(len, texts.values()))
    assert size > 1_000_000
    everything = "\n".join(texts.values())
    lines = everything.split("\n")
    assert len(lines) == len(set(lines))
    assert ">>>" not in everything
    letters = sum(c.isalpha() or c == " " for c in everything)
    assert letters > 0.93 * size


@pytest.mark.parametrize(
    ("policy", "texts"), [("replace", ["ok \ufffd.", "fine"]), ("skip", ["fine"])]
)
def test_json_escapes_without_a_utf8_form_are_faults(tmp_path, policy, texts):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "ok \\ud800."}\n{"text": "fine"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: the text holds half of a surrogate"):
        read(str(file))
    documents, stats = read(str(file), on_error=policy)
    assert [d.text for d in documents] == texts
    assert len(stats.faults) == 1


def test_deeply_nested_json_is_a_bad_line(tmp_path):
    (tmp_path / "a.jsonl").write_text("[" * 200_000)
    with pytest.raises(DataError, match="line 1: not a JSON record"):
        read(str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("source", ["", "a://b/c.txt"])
def test_sources_that_cannot_be_meant_are_refused(source):
    with pytest.raises(DataError, match=r"empty|cannot be read here"):
        read(source)
