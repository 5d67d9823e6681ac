import bz2
import gzip
import http.server
import json
import lzma
import os
import pickle
import subprocess
import sys
import threading

import pytest
import zstandard

from bert_lamb.data.corpus import ReadStats, document, files, open_sources, python_prose
from bert_lamb.data.errors import DataError

PACKINGS = [
    (".gz", gzip.compress),
    (".xz", lzma.compress),
    (".zst", zstandard.compress),
    (".bz2", bz2.compress),
]


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
    [("", bytes), *PACKINGS],
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


@pytest.mark.parametrize(("suffix", "pack"), PACKINGS)
def test_damaged_archive_is_named(tmp_path, suffix, pack):
    file = tmp_path / f"a.txt{suffix}"
    text = "".join(f"Line {i * i}.\n" for i in range(9000)).encode()
    packed = pack(text)
    for damaged in (
        packed[: len(packed) // 2],
        text,
        packed[:-1],
        packed + packed[: len(packed) // 2],  # the second of two cut short
        packed + packed[:3],
        packed + b"something else" + packed,
    ):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"a\.txt\{suffix}: cannot be read"):
            read(str(file))


@pytest.mark.parametrize(("suffix", "pack"), PACKINGS)
def test_archives_of_several_frames_are_read_to_their_end(tmp_path, suffix, pack):
    padding = b"\0" * 8 if suffix in (".gz", ".xz") else b""
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(pack(b"One.\n\n") + padding + pack(b"") + pack(b"Two.\n") + padding)
    assert [d.text for d in read(str(file))[0]] == ["One.", "Two."]


@pytest.mark.parametrize(("suffix", "pack"), PACKINGS)
def test_archives_that_swell_are_read_in_pieces(tmp_path, suffix, pack):
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(pack(b" " * 20_000_000 + b"\nEnd.\n"))
    documents, stats = read(str(file))
    assert [d.text for d in documents] == ["End."]
    assert stats.bytes == 20_000_006


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


def test_ending_or_prefix_says_how_a_file_is_read(tmp_path):
    lines = '{"text": "A."}\n\n{"text": "B."}\n'
    (tmp_path / "wiki_00").write_text(lines)
    (tmp_path / "a.jsonl").write_text(lines)
    file, json_file = str(tmp_path / "wiki_00"), str(tmp_path / "a.jsonl")
    assert [d.text for d in read(f"jsonl:{file}")[0]] == ["A.", "B."]
    assert [d.text for d in read(json_file)[0]] == ["A.", "B."]
    assert [d.text for d in read(file)[0]] == ['{"text": "A."}', '{"text": "B."}']
    assert [d.text for d in read(f"text:{json_file}")[0]] == ['{"text": "A."}', '{"text": "B."}']


def test_whole_file_is_one_document_with_the_file_name_as_title(tmp_path):
    (tmp_path / "My Book.v2.txt.bz2").write_bytes(bz2.compress(b"One.\n\nTwo.\n"))
    (tmp_path / "blank.txt").write_text("\n \n")
    documents, stats = read(f"whole:{tmp_path}")
    assert [(d.title, d.text) for d in documents] == [("My Book.v2", "One.\nTwo.")]
    assert stats.skipped == {"no text": 1}
    assert stats.files == 2


def test_file_whose_name_looks_like_a_kind_is_written_with_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jsonl:notes").write_text("Here.")
    assert [d.text for d in read("./jsonl:notes")[0]] == ["Here."]
    with pytest.raises(DataError, match=r"no file matches.*kinds are text:"):
        open_sources(["jsonl:notes"])


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.7z", "a.pdf"])
def test_archives_and_other_formats_do_not_pass_for_text(tmp_path, name):
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(DataError, match=r"files cannot be read; .* or force a kind"):
        open_sources([str(tmp_path / name)])


def test_pipe_is_refused_since_it_cannot_be_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="a pipe or device"):
        open_sources([str(tmp_path / "pipe")])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("a\u2028b", "a\u2028b"),  # white space to the tokenizer
        ("a\x85b\x0bc\x0cd\0e", "a\x85b\x0bc\x0cd\0e"),  # it removes these and counts them
        ("a\rb\r\n\u2028\x85c\x0b", "a\rb\nc"),
        ("a\n\x0c\nb", None),  # a line of white space of any kind is blank
    ],
)
def test_p20_only_line_feeds_end_lines_and_other_characters_stay(tmp_path, line, text):
    (tmp_path / "a.txt").write_bytes(line.encode())
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": line}))
    documents, _ = read(str(tmp_path / "a.txt"))
    assert [d.text for d in documents] == (["a", "b"] if text is None else [text])
    documents, _ = read(str(tmp_path / "b.jsonl"))
    assert [d.text for d in documents] == ["a\nb" if text is None else text]


def test_faults_are_found_in_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PIECE_BYTES", 16)
    lines = [f"Line {i} here.\n".encode() for i in range(100)]
    lines[70] = b"Line \xe9 here.\n"
    (tmp_path / "a.txt").write_bytes(b"".join(lines))
    offset = sum(map(len, lines[:70])) + 5
    with pytest.raises(DataError, match=rf"line 71, byte {offset}: e9 is not UTF-8"):
        read(str(tmp_path / "a.txt"))
    documents, stats = read(str(tmp_path / "a.txt"), on_error="skip")
    assert len(documents[0].text.split("\n")) == 99
    assert (stats.lines, stats.lines_skipped, stats.bytes_dropped) == (100, 1, len(lines[70]))


def test_json_line_without_end_is_refused_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(files, "_LINE_BYTES", 1 << 14)
    (tmp_path / "a.jsonl").write_text('{"text": "Good."}\n["' + "x" * (1 << 15))
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: longer than 16384 bytes"):
        read(str(tmp_path / "a.jsonl"))


def test_json_records_without_text_or_names(tmp_path):
    rows = [{"text": " \n"}, {"text": "A.", "id": None, "title": None}, {"text": "B.", "id": 0}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documents, stats = read(str(tmp_path / "a.jsonl"))
    assert stats.skipped == {"no text": 1}
    assert [(d.id.rpartition(":")[2], d.title) for d in documents] == [("2", ""), ("0", "")]


def test_json_escapes_of_whole_pairs_are_text(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "A \U0001f600.", "title": "\U0001f600"}))
    documents, stats = read(str(tmp_path / "a.jsonl"))
    assert [(d.title, d.text) for d in documents] == [("\U0001f600", "A \U0001f600.")]
    assert not stats.faults


def test_weights_go_with_their_sources(tmp_path):
    (tmp_path / "a.txt").write_text("A.")
    path = str(tmp_path / "a.txt")
    assert [s.weight for s in open_sources([path, path], [2, 0.5])] == [2.0, 0.5]
    assert [s.weight for s in open_sources([path])] == [1.0]
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(DataError, match=rf"a\.txt': weight {weight}: expected a number above"):
            open_sources([path], [weight])
    with pytest.raises(DataError, match="1 weights for 2 sources"):
        open_sources([path, path], [1.0])


def test_splits_are_files_that_read_alike_after_pickling(tmp_path):
    for name in ("a.txt", "b.jsonl", "c.txt.gz"):
        text = '{"text": "Text."}' if "json" in name else f"Text of {name}.\n\nMore."
        packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        (tmp_path / name).write_bytes(packed)
    source = open_sources([str(tmp_path)])[0]
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert [split.size for split in source.splits] == [
        (tmp_path / name).stat().st_size for name in ("a.txt", "b.jsonl", "c.txt.gz")
    ]
    for split, again in zip(source.splits, copy.splits, strict=True):
        stats, more = ReadStats(), ReadStats()
        assert list(split.read(stats)) == list(again.read(more))
        assert stats.sha256.hexdigest() == more.sha256.hexdigest()


def test_statistics_of_splits_add_up_across_processes(tmp_path):
    (tmp_path / "a.txt").write_bytes(BROKEN)
    (tmp_path / "b.jsonl").write_text('{"text": ""}\n{}\n')
    whole = read(str(tmp_path), on_error="skip")[1]
    total = ReadStats()
    for split in open_sources([str(tmp_path)], on_error="skip")[0].splits:
        stats = ReadStats()
        list(split.read(stats))
        arrived = pickle.loads(pickle.dumps(stats))
        assert arrived.sha256.hexdigest() == stats.sha256.hexdigest()
        with pytest.raises(TypeError, match="through pickle"):
            arrived.sha256.update(b"more")
        total.add(arrived)
    counts = ["files", "bytes", "lines", "lines_skipped", "bytes_dropped", "skipped", "faults"]
    assert {k: getattr(total, k) for k in counts} == {k: getattr(whole, k) for k in counts}
    assert total.skipped == {"no text": 1}


def test_p31_file_addresses_are_local_paths(tmp_path):
    file = tmp_path / "a b?.txt"
    file.write_text("Here.")
    for address in (file.as_uri(), f"text:{file.as_uri()}", f"file://localhost{file}"):
        assert [d.text for d in read(address)[0]] == ["Here."]
    assert [d.text for d in read(f"file://{tmp_path}")[0]] == ["Here."]
    with pytest.raises(DataError, match=r"machine 'home'; a local file has three slashes"):
        open_sources(["file://home/a.txt"])


class _Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = gzip.compress(b"One.\n\nTwo.\n")
        if "missing" in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + 5 * ("cut" in self.path)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    with http.server.HTTPServer(("localhost", 0), _Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_p31_web_addresses_are_read_and_faults_name_the_next_step(web):
    documents, stats = read(f"{web}/a.txt.gz")
    assert [d.text for d in documents] == ["One.", "Two."]
    assert stats.files == 1
    assert open_sources([f"{web}/a.txt.gz"])[0].splits[0].size > 20
    with pytest.raises(DataError, match=r"cannot be fetched \(status 404.*name the local file"):
        open_sources([f"{web}/missing.txt"])
    with pytest.raises(DataError, match=r"cut\.txt\.gz: cannot be read .*ended 5 bytes early"):
        read(f"{web}/cut.txt.gz")
    with pytest.raises(DataError, match="fetch it first"):
        read(f"{web}/a.parquet")


def test_p31_unreachable_address_ends_the_command_with_the_next_step(tmp_path):
    command = [sys.executable, "-m", "bert_lamb.cli", "data", "vocab", "--output", str(tmp_path)]
    done = subprocess.run(
        [*command, "--source", "http://localhost:1/wiki.txt"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "cannot be fetched" in done.stderr
    assert "name the local file" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_bucket_addresses_name_the_missing_package():
    for address, package in (("gs://bucket/a.txt", "gcsfs"), ("s3://bucket/*.txt", "s3fs")):
        pytest.importorskip("fsspec")
        try:
            __import__(package)
        except ImportError:
            with pytest.raises(DataError, match=f"pip install {package}"):
                open_sources([address])


def test_bucket_addresses_are_read_through_fsspec():
    # A process of its own, since the file system is put in the place of Amazon's.
    code = """if True:
        import fsspec
        from fsspec.implementations.memory import MemoryFileSystem

        class Bucket(MemoryFileSystem):
            protocol, store, pseudo_dirs = "s3", {}, [""]

            @classmethod
            def _strip_protocol(cls, path):
                return MemoryFileSystem._strip_protocol(path.replace("s3://", "memory://"))

        fsspec.register_implementation("s3", Bucket, clobber=True)
        bucket = fsspec.filesystem("s3")
        for name in ("b.txt", "a.txt", ".hidden"):
            with bucket.open(f"s3://bucket/in/{name}", "wb") as file:
                file.write(f"Text of {name}.".encode())
        from bert_lamb.data.corpus import ReadStats, open_sources
        for pattern in ("s3://bucket/in/*.txt", "s3://bucket/in", "text:s3://bucket/in/?.txt"):
            source = open_sources([pattern])[0]
            texts = [d.text for d in source.read(ReadStats())]
            assert texts == ["Text of a.txt.", "Text of b.txt."], texts
            assert source.splits[0].size == 14
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_wikiextractor_output_without_its_prefix_is_noticed(tmp_path):
    (tmp_path / "wiki_00").write_text('<doc id="12" url="u" title="T">\nT\n\nBody.\n</doc>\n')
    with pytest.raises(DataError, match=r"wiki_00: begins as WikiExtractor's output; write wikiex"):
        read(str(tmp_path / "wiki_00"))
    documents, _ = read(f"text:{tmp_path / 'wiki_00'}")
    assert documents[0].text.startswith("<doc id")


def test_a_folder_of_folders_says_how_to_reach_deeper_files(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(DataError, match=r"for those deeper down, '.*a/\*\*"):
        read(str(tmp_path / "a"))


def test_what_would_be_left_out_unseen_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "good.txt").write_text("Text.")
    (tmp_path / "a" / "gone.txt").symlink_to(tmp_path / "nowhere")
    for pattern in (tmp_path / "a", tmp_path / "a" / "*.txt"):
        with pytest.raises(DataError, match=r"gone\.txt is a link to nowhere"):
            read(str(pattern))
    (tmp_path / "a" / "gone.txt").unlink()
    os.mkfifo(tmp_path / "a" / "pipe")
    with pytest.raises(DataError, match=r"pipe is a pipe or device"):
        read(str(tmp_path / "a"))


def test_folders_that_link_to_themselves_end(tmp_path):
    (tmp_path / "wiki_00").write_text('<doc id="1" url="u" title="T">\nT\n\nBody.\n</doc>\n')
    for name in ("x", "y"):
        (tmp_path / name).symlink_to(tmp_path)
    documents, _ = read(f"wikiextractor:{tmp_path}")
    assert len(documents) == 1
