"""Whatever the bytes: documents, or a DataError with one line, and counts that add up."""

import bz2
import gzip
import io
import json
import lzma
import random
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_lamb.data.corpus import ReadStats, document, files, open_sources
from bert_lamb.data.corpus.titles import normalize_title, read_titles
from bert_lamb.data.corpus.wikitext import prose
from bert_lamb.data.errors import DataError

quick = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
POLICIES = ("error", "replace", "skip")
PACKERS = {
    ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress, ".bz2": bz2.compress
}  # fmt: skip


def read_file(name, data, kind="", policy="error"):
    """Returns the documents and statistics, or the DataError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(data)
        stats = ReadStats()
        try:
            source = open_sources([f"{kind}{file}"], on_error=policy)[0]
            return list(source.read(stats)), stats, None
        except DataError as error:
            fault = error
    message = str(fault)
    assert "\n" not in message
    assert name in message
    return None, stats, fault


def check(documents, stats, size):
    """Checks what must hold of every file that was read to its end."""
    assert stats.files == 1
    if size is not None:
        assert stats.bytes == size
    seen = None
    for d in documents:
        assert d.text
        assert d.text == "\n".join(line.strip() for line in d.text.split("\n") if line.strip())
        d.text.encode()
        (d.id + d.title).encode()
        assert len(d.text) <= document.PART_CHARS
        assert d.part == 0 or seen == (d.id, d.part - 1)
        seen = (d.id, d.part)


SAMPLES = {
    ".txt": "One é.\nTwo.\n\n\u2028Three\x85.\n".encode(),
    ".jsonl": b'{"text": "One.", "id": 3}\n\n{"text": "\\ud83d\\ude00", "title": "T"}\n',
    ".xml": b"<mediawiki><siteinfo><namespaces><namespace key='6'>Datei</namespace></namespaces>"
    b"</siteinfo><page><title>A</title><ns>0</ns><id>1</id><revision><text>'''A''' [[b|c]] {{d}}"
    b" &lt;ref&gt;e&lt;/ref&gt;\n{|\n|x\n|}\n* y</text></revision></page></mediawiki>",
    ".wiki": b'<doc id="1" url="u" title="A &amp; B">\nA &amp; B\n\nText.\n</doc>\n',
}


def table_samples():
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = ["One.", None, "Three."] * 100
    table = pa.table({"text": texts, "id": list(range(300)), "title": ["a", "b", None] * 100})
    out = {}
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    out[".parquet"] = sink.getvalue()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    out[".arrow"] = sink.getvalue()
    return out


def damage(data, seed):
    """Cuts, repeats, swaps or overwrites a few stretches of `data`."""
    draw = random.Random(seed)
    out = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(out) + 1)
        length = draw.choice((1, 2, 8, 40))
        change = draw.choice(("cut", "repeat", "noise", "noise", "noise", "noise", "end"))
        if change == "cut":
            del out[start : start + length]
        elif change == "repeat":
            out[start:start] = out[start : start + length]
        elif change == "noise":
            out[start : start + length] = draw.randbytes(min(length, len(out) - start))
        else:
            del out[start:]
    return bytes(out)


@quick
@given(st.sampled_from([*SAMPLES]), st.binary(max_size=300), st.sampled_from(POLICIES))
def test_random_bytes_give_documents_or_one_error(ending, data, policy):
    kind = "wikiextractor:" if ending == ".wiki" else ""
    documents, stats, error = read_file(f"a{ending}", data, kind, policy)
    if error is None:
        check(documents, stats, len(data))


@settings(quick, max_examples=300)
@given(st.sampled_from([*SAMPLES]), st.integers(0, 2**32), st.sampled_from(POLICIES))
def test_damaged_files_give_documents_or_one_error(ending, seed, policy):
    data = damage(SAMPLES[ending] * (1 if ending == ".xml" else 2), seed)
    kind = "wikiextractor:" if ending == ".wiki" else ""
    documents, stats, error = read_file(f"a{ending}", data, kind, policy)
    if error is None:
        check(documents, stats, len(data))
        assert stats.bytes_dropped <= len(data)
    if policy == "skip" and ending != ".xml":
        assert error is None


@settings(quick, max_examples=200)
@given(st.sampled_from([".parquet", ".arrow"]), st.integers(0, 2**32), st.sampled_from(POLICIES))
def test_damaged_tables_give_documents_or_one_error(ending, seed, policy):
    data = damage(TABLES[ending], seed)
    documents, stats, error = read_file(f"a{ending}", data, "", policy)
    if error is None:
        check(documents, stats, None)


TABLES = table_samples()


@quick
@given(st.sampled_from([*PACKERS]), st.binary(max_size=200))
def test_random_bytes_are_no_archive(suffix, data):
    documents, stats, error = read_file(f"a.txt{suffix}", data)
    if error is None:
        check(documents, stats, stats.bytes)
        # An empty file is an archive of nothing, as it is to zcat, and so are zeros as padding.
        assert not data.strip(b"\0") or data[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7", b"\x28\xb5")


@settings(quick, max_examples=200)
@given(st.sampled_from([*PACKERS]), st.integers(0, 2**32))
def test_damaged_archives_lose_nothing_silently(suffix, seed):
    draw = random.Random(seed)
    texts = [b"".join(b"%d\n" % draw.getrandbits(40) for _ in range(50)) for _ in range(2)]
    packed = b"".join(map(PACKERS[suffix], texts))
    documents, _, error = read_file(f"a.txt{suffix}", packed[: draw.randrange(1, len(packed))])
    if error is None:  # cut exactly between the two
        assert [d.text + "\n" for d in documents] == [texts[0].decode()]


@settings(quick, max_examples=100)
@given(
    st.lists(st.text(st.characters(exclude_characters="\n"), max_size=30), max_size=12),
    st.integers(1, 40),
    st.integers(8, 64),
)
def test_no_character_is_lost_whatever_the_block_and_part_sizes(lines, part, block):
    lines = [line.encode("utf-8", "replace").decode() for line in lines]
    data = "\n".join(lines).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "PART_CHARS", part)
        patch.setattr(files, "_PIECE_BYTES", block)
        documents, stats, error = read_file("a.txt", data)
        assert error is None
        check(documents, stats, len(data))
    kept = "".join("".join(d.text.split()) for d in documents)
    assert kept == "".join("".join(lines).removeprefix("\ufeff").split())
    assert stats.lines == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
    assert stats.skipped == {}


@settings(quick, max_examples=100)
@given(st.lists(st.text(max_size=40), max_size=8))
def test_json_texts_come_out_as_they_went_in(texts):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    data = "\n".join(json.dumps({"text": text, "title": text}) for text in texts).encode()
    documents, stats, error = read_file("a.jsonl", data)
    assert error is None
    tidy = ["\n".join(s for s in map(str.strip, text.split("\n")) if s) for text in texts]
    assert [d.text for d in documents] == [text for text in tidy if text]
    assert stats.skipped.get("no text", 0) + len(documents) == len(texts) == stats.lines


MARKUP = st.sampled_from(
    ["{{", "}}", "{{{", "}}}", "[[", "]]", "[http://a ", "]", "|", "\n", "\n\n", "{|", "|}", "|-",
     "''", "'''", "<ref>", "</ref>", "<ref/>", "<!--", "-->", "<nowiki>", "</nowiki>", "<table>",
     "</table>", "<br>", "&lt;", "&", "=", "*", "File:", ":", "__TOC__", "(", ")", ",", "word", " "]
)  # fmt: skip


@settings(quick, max_examples=400)
@given(st.lists(MARKUP, max_size=40).map("".join))
def test_any_markup_gives_tidy_prose(page):
    text = prose(page)
    assert "\0" not in text
    assert all(line == " ".join(line.split()) and line for line in text.split("\n")) or not text
    assert "<ref>" not in text
    assert "{{" not in prose(page.replace("<nowiki>", ""))


@quick
@given(st.text(max_size=30))
def test_normalizing_a_title_twice_changes_it_no_more_unless_escaped(title):
    once = normalize_title(title.replace("%", ""))
    assert normalize_title(once) == once


@quick
@given(st.binary(max_size=100), st.sampled_from(["a.txt", "a.json", "a.txt.gz"]))
def test_any_title_file_gives_titles_or_one_error(data, name):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(data)
        try:
            assert read_titles([str(Path(folder, name))])
        except DataError as error:
            message = str(error)
        else:
            return
    assert name in message


def test_two_thousand_small_files_in_one_folder_are_all_read(tmp_path):
    names = [f"{i:04}.txt" for i in range(2000)]
    for name in names:
        (tmp_path / name).write_text(f"Text of {name}.\n\nMore.\n")
    stats = ReadStats()
    source = open_sources([str(tmp_path)])[0]
    documents = list(source.read(stats))
    assert len(source.splits) == stats.files == 2000
    assert [d.text for d in documents[::2]] == [f"Text of {name}." for name in names]
    assert stats.bytes == sum((tmp_path / name).stat().st_size for name in names)
    assert stats.lines == 6000
