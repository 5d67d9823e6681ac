import gzip
import json
import os

import pytest

from bert_lamb.data.corpus import ReadStats, open_sources
from bert_lamb.data.corpus.titles import normalize_title, read_titles
from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import load_tokenizer


@pytest.mark.parametrize(
    ("title", "same"),
    [
        ("super_Bowl_50", "Super Bowl 50"),
        ("  Super   Bowl 50 ", "Super Bowl 50"),
        ("Beyonc%C3%A9_Knowles", "Beyonce\u0301 Knowles"),
        ("%C3%A9cole", "École"),
        ("100%25", "100%"),
        ("100% wool", "100% wool"),
        ("%FF", "%FF"),
        ("ßtraße", "ßtraße"),
    ],
)
def test_titles_of_one_page_are_equal(title, same):
    assert normalize_title(title) == normalize_title(same)


def test_titles_that_differ_stay_different():
    assert normalize_title("Super bowl 50") != normalize_title("Super Bowl 50")
    assert normalize_title("") == ""


def test_titles_come_from_lists_and_squad_files(tmp_path):
    (tmp_path / "titles.txt").write_bytes("\ufeff# A list\nÉcole\r\n\nnew_York\n".encode())
    squad = {"version": "1.1", "data": [{"title": "Super_Bowl_50", "paragraphs": []}]}
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(json.dumps(squad).encode()))
    paths = [str(tmp_path / "titles.txt"), str(tmp_path / "dev.json.gz")]
    assert read_titles(paths) == {"École", "New York", "Super Bowl 50"}
    assert read_titles([]) == frozenset()


def test_titles_of_the_real_squad_files_meet_those_of_wikipedia(shared):
    titles = read_titles([str(shared / "data/squad/dev-v1.1.json")])
    assert len(titles) == 48
    source = open_sources([str(shared / "data/corpus/wiki-00.jsonl.xz")])[0]
    found = {normalize_title(d.title) for d in source.read(ReadStats())}
    assert titles & found


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", b"# nothing\n\n", "no title in it"),
        ("a.txt", b"caf\xe9", "byte 3: not UTF-8"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b'{"data": [{}]}', "no SQuAD file"),
        ("a.json", b"[1]", "no SQuAD file"),
        ("a.json", b'{"data": [{"title": 3}]}', "the title 3 is no string"),
        ("a.json", b'{"data": []}', "no title in it"),
        ("a.txt.gz", b"plain", "cannot be read"),
    ],
)
def test_odd_title_files_are_named(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}.*{problem}"):
        read_titles([str(tmp_path / name)])
    with pytest.raises(DataError, match=r"nowhere\.txt: cannot be read"):
        read_titles([str(tmp_path / "nowhere.txt")])


def test_lists_of_titles_and_tokenizers_in_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for load in (lambda path: read_titles([path]), load_tokenizer):
        with pytest.raises(DataError, match=r"pipe.*: a pipe or device"):
            load(str(tmp_path / "pipe"))
