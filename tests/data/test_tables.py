import importlib.util
import json
import pickle
import subprocess
import sys

import pytest

from bert_lamb.data.corpus import ReadStats, open_sources
from bert_lamb.data.errors import DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [
    {"id": 7, "title": "One", "text": "Ünïcode.\nNext."},
    {"id": 8, "title": None, "text": None},
    {"id": None, "title": "Three", "text": " \n"},
    {"id": 10, "title": "Four", "text": "Last."},
]


def read(*patterns, **options):
    stats = ReadStats()
    documents = [d for s in open_sources(patterns, **options) for d in s.read(stats)]
    return documents, stats


def write_stream(file, table, rows_per_batch=2):
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_per_batch)


def write_file(file, table):
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


WRITERS = {"a.parquet": lambda file, table: pq.write_table(table, file, row_group_size=3),
           "a.arrow": write_stream, "b.arrow": write_file}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_rows_are_documents(tmp_path, name):
    WRITERS[name](str(tmp_path / name), pa.Table.from_pylist(ROWS))
    documents, stats = read(str(tmp_path / name))
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("7", "One", "Ünïcode.\nNext."), ("10", "Four", "Last.")
    ]  # fmt: skip
    assert stats.skipped == {"no text": 2}
    assert (stats.files, stats.lines) == (1, 4)
    assert stats.bytes == sum(len((row["text"] or "").encode()) for row in ROWS)


@pytest.mark.parametrize("name", WRITERS)
def test_hash_depends_on_the_rows_and_splits_read_alike(tmp_path, name):
    digests = set()
    for text in ("a", "b"):
        WRITERS[name](str(tmp_path / name), pa.Table.from_pylist([{"text": "x"}, {"text": text}]))
        split = open_sources([str(tmp_path / name)])[0].splits[0]
        assert split.size == (tmp_path / name).stat().st_size
        results = []
        for copy in (split, pickle.loads(pickle.dumps(split))):
            stats = ReadStats()
            results.append((list(copy.read(stats)), stats.sha256.hexdigest()))
        assert results[0] == results[1]
        digests.add(results[0][1])
    assert len(digests) == 2


def test_hash_tells_where_a_row_ends(tmp_path):
    digests = set()
    for number, texts in enumerate((["ab", "c"], ["a", "bc"], ["abc", ""], ["abc", None], ["abc"])):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"text": texts, "id": list(range(len(texts)))}), file)
        digests.add(read(str(file))[1].sha256.hexdigest())
    assert len(digests) == 5


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
     pa.dictionary(pa.int32(), pa.string())],
)  # fmt: skip
@pytest.mark.parametrize("write", [write_file, write_stream])
def test_text_may_be_stored_in_any_way(tmp_path, kind, write):
    column = pa.array([b"\xc3\xa9.", None] if kind == pa.binary() else ["é.", None])
    encoded = pa.types.is_dictionary(kind)
    column = column.dictionary_encode() if encoded else column.cast(kind)
    write(str(tmp_path / "a.arrow"), pa.table({"body": column}))
    documents, _ = read(str(tmp_path / "a.arrow"), text_field="body")
    assert [d.text for d in documents] == ["é."]
    assert documents[0].id.endswith("a.arrow:0")


def test_missing_or_odd_columns_are_named(tmp_path):
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"body": ["x"], "n": [1]}), file)
    with pytest.raises(DataError, match=r"a\.parquet: no column 'text'; it has 'body', 'n'"):
        read(file)
    with pytest.raises(DataError, match="column 'n' holds int64; expected text"):
        read(file, text_field="n")


@pytest.mark.parametrize("name", WRITERS)
def test_bytes_that_are_not_utf8_are_named_mended_or_skipped(tmp_path, name):
    column = pa.array([b"Good.", b"Bad \xff here."])
    text = pa.Array.from_buffers(pa.string(), 2, column.buffers())
    WRITERS[name](str(tmp_path / name), pa.table({"text": text}))
    with pytest.raises(DataError, match=rf"{name}, row 1, byte 4: ff is not UTF-8"):
        read(str(tmp_path / name))
    documents, stats = read(str(tmp_path / name), on_error="replace")
    assert [d.text for d in documents] == ["Good.", "Bad \ufffd here."]
    assert stats.bytes_dropped == 1
    documents, stats = read(str(tmp_path / name), on_error="skip")
    assert [d.text for d in documents] == ["Good."]
    assert (stats.lines_skipped, stats.bytes_dropped) == (1, 11)


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_tables_are_named(tmp_path, name):
    rows = [{"text": f"Row {i * i}."} for i in range(1000)]
    WRITERS[name](str(tmp_path / name), pa.Table.from_pylist(rows))
    data = (tmp_path / name).read_bytes()
    for damaged in (b"", b"PAR1", b"text", data[: len(data) // 2], data[:-1], data[:-8], data[9:]):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{name}: cannot be read as an? (Parquet|Arrow) file"):
            read(str(tmp_path / name))


def test_tables_are_not_packed_from_outside(tmp_path):
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be packed; unpack it first"):
        open_sources([str(tmp_path / "a.parquet.gz")])


def test_memory_does_not_grow_with_a_row_group(tmp_path):
    def peak(rows):
        file = str(tmp_path / f"{rows}.parquet")
        texts = [f"{i} " * 500 for i in range(rows)]
        options = {"use_dictionary": False, "compression": "zstd", "data_page_size": 1 << 16}
        pq.write_table(pa.table({"text": texts}), file, row_group_size=rows, **options)
        del texts
        before = pool.bytes_allocated()
        highest = 0
        for _ in open_sources([file])[0].read(ReadStats()):
            highest = max(highest, pool.bytes_allocated() - before)
        return highest

    pool = pa.default_memory_pool()
    small, large = peak(1_000), peak(10_000)
    assert large < small + 2_000_000 < 10_000_000


def test_tables_in_buckets_are_read_at_random(tmp_path):
    code = """if True:
        import io
        import fsspec, pyarrow as pa, pyarrow.parquet as pq
        from fsspec.implementations.memory import MemoryFileSystem

        class Bucket(MemoryFileSystem):
            protocol, store, pseudo_dirs = "s3", {}, [""]

            @classmethod
            def _strip_protocol(cls, path):
                return MemoryFileSystem._strip_protocol(path.replace("s3://", "memory://"))

        fsspec.register_implementation("s3", Bucket, clobber=True)
        bucket = fsspec.filesystem("s3")
        table = pa.table({"text": ["One.", "Two."]})
        with bucket.open("s3://bucket/a.parquet", "wb") as file:
            pq.write_table(table, file)
        with bucket.open("s3://bucket/set/data.arrow", "wb") as file:
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
        with bucket.open("s3://bucket/set/state.json", "wb") as file:
            file.write(b'{"_data_files": [{"filename": "data.arrow"}]}')
        from bert_lamb.data.corpus import ReadStats, open_sources
        for pattern in ("s3://bucket/a.parquet", "hf:s3://bucket/set"):
            texts = [d.text for d in open_sources([pattern])[0].read(ReadStats())]
            assert texts == ["One.", "Two."], texts
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def save_dataset(folder, tables):
    """Writes what `Dataset.save_to_disk` of Hugging Face datasets writes."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(tables):05}.arrow" for i in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        write_stream(str(folder / name), table)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0",
             "_format_columns": None, "_format_kwargs": {}, "_format_type": None,
             "_output_all_columns": False, "_split": None}  # fmt: skip
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def test_saved_hugging_face_data_sets_are_read_by_shard(tmp_path):
    tables = [pa.table({"text": [f"Row {i}."], "title": [f"T{i}"]}) for i in range(12)]
    save_dataset(tmp_path / "set" / "train", tables)
    save_dataset(tmp_path / "set" / "test", tables[:1])
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    source = open_sources([f"hf:{tmp_path}/set/train"])[0]
    assert len(source.splits) == 12
    documents = list(source.read(ReadStats()))
    assert [(d.title, d.text) for d in documents] == [(f"T{i}", f"Row {i}.") for i in range(12)]
    with pytest.raises(DataError, match=r"splits train, test; name one, .* hf:.*/set/train"):
        open_sources([f"hf:{tmp_path}/set"])
    with pytest.raises(DataError, match=r"looks like a Hugging Face data set; write hf:"):
        open_sources([f"{tmp_path}/set/train"])


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (None, "no state.json"),
        ("{", "cannot be read"),
        ("[]", "no JSON object"),
        ("{}", "lists no files"),
        ('{"_data_files": []}', "lists no files"),
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "lists no files"),
        ('{"_data_files": [{"filename": "x"}], "_indices_data_files": [{}]}', "selection of rows"),
    ],
)
def test_folders_that_are_no_saved_data_set_are_refused(tmp_path, state, problem):
    if state is not None:
        (tmp_path / "state.json").write_text(state)
    with pytest.raises(DataError, match=problem):
        open_sources([f"hf:{tmp_path}"])


needs_tfds = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_datasets") is None, reason="needs tensorflow-datasets"
)

BUILDER = """if True:
    import sys
    import numpy as np
    import tensorflow_datasets as tfds

    class MyProse(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.2.0")

        def _info(self):
            text = tfds.features.Text()
            features = {"title": text, "text": text, "n": np.int64}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, manager):
            counts = {"train": 20, "test": 3}
            return {name: self._generate_examples(count) for name, count in counts.items()}

        def _generate_examples(self, count):
            for i in range(count):
                yield i, {"title": f"Tïtle {i}", "text": f"Text {i}.\\nÜnïcode." * (i != 5), "n": i}

    MyProse(data_dir=sys.argv[1], file_format=sys.argv[2]).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=2)
    )
    assert "tensorflow" not in sys.modules
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    subprocess.run(
        [sys.executable, "-c", BUILDER, str(folder), "array_record"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@needs_tfds
def test_prepared_tfds_data_sets_are_read_by_shard_without_tensorflow(prepared):
    code = """if True:
        import pickle, sys
        from bert_lamb.data.corpus import ReadStats, open_sources
        source = open_sources([f"tfds:my_prose?data_dir={sys.argv[1]}"])[0]
        source = pickle.loads(pickle.dumps(source))
        assert len(source.splits) == 2, source
        texts, total = [], ReadStats()
        for split in source.splits:
            stats = ReadStats()
            documents = list(split.read(stats))
            assert documents == list(split.read(ReadStats())) and split.size > 0
            texts += [(d.title, d.text) for d in documents]
            total.add(stats)
        numbers = [i for i in range(20) if i != 5]
        assert sorted(texts) == sorted((f"Tïtle {i}", f"Text {i}.\\nÜnïcode.") for i in numbers)
        assert (total.files, total.lines, total.skipped) == (2, 20, {"no text": 1}), total
        found = [name for name in ("tensorflow", "torch", "jax") if name in sys.modules]
        assert not found, found
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "utf8", "-c", code, str(prepared)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@needs_tfds
def test_tfds_splits_versions_and_stretches(prepared, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    assert len(read("tfds:my_prose:1.2.0@test")[0]) == 3
    everything = read("tfds:my_prose")[0]
    halves = [read(f"tfds:my_prose@train[{part}]")[0] for part in (":40%", "40%:")]
    assert all(halves)
    assert [d.text for half in halves for d in half] == [d.text for d in everything]
    assert [d.id for half in halves for d in half] == [d.id for d in everything]


@needs_tfds
@pytest.mark.parametrize(
    ("source", "field", "problem"),
    [
        ("my_prose@valid", "text", r"split 'valid' cannot be used; it has the splits train, test"),
        ("my_prose:3.0.0", "text", r"only in version 1\.2\.0 prepared"),
        ("my_prose", "body", r"no column 'body'; it has .*'text'"),
        ("my_prose", "n", r"the feature 'n' is .*; expected Text"),
        ("my prose", "text", r"expected tfds:NAME\["),
        ("wikipedia/20230601.en", "text", r"not prepared in .*; prepare it: pip install .* python"),
    ],
)
def test_tfds_sources_that_cannot_be_read_say_what_to_do(
    prepared, monkeypatch, source, field, problem
):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    with pytest.raises(DataError, match=problem):
        open_sources([f"tfds:{source}"], text_field=field)
    with pytest.raises(DataError, match="local folder, not gs://"):
        open_sources(["tfds:x?data_dir=gs://bucket/tfds"])


@needs_tfds
def test_tfds_data_sets_in_another_format_name_the_command(tmp_path):
    subprocess.run(
        [sys.executable, "-c", BUILDER, str(tmp_path), "parquet"], check=True, capture_output=True
    )
    with pytest.raises(DataError, match=r"prepared as parquet; only array_record .*'array_record'"):
        open_sources([f"tfds:my_prose?data_dir={tmp_path}"])


@needs_tfds
def test_tfds_shards_that_are_damaged_are_named(prepared, tmp_path):
    import shutil

    shutil.copytree(prepared / "my_prose", tmp_path / "my_prose")
    source = f"tfds:my_prose@test?data_dir={tmp_path}"
    shard = next((tmp_path / "my_prose" / "1.2.0").glob("*test*"))
    data = shard.read_bytes()
    for damaged in (data[: len(data) // 2], b"x" * len(data)):
        shard.write_bytes(damaged)
        with pytest.raises(DataError, match=r"my_prose-test\..*: cannot be read"):
            read(source)
    shard.unlink()
    with pytest.raises(DataError, match=r"my_prose-test\..*: cannot be read .*No such file"):
        open_sources([source])


@needs_tfds
def test_tfds_wikipedia_is_found_by_the_command_of_the_message(tmp_path):
    # Up to the download, which needs a network and packages that are not wanted here.
    code = """if True:
        import sys, tensorflow_datasets as tfds, tensorflow_datasets.text
        builder = tfds.builder("wikipedia/20230601.en", data_dir=sys.argv[1],
                               file_format="array_record")
        assert set(builder.info.features) == {"title", "text"}
        assert builder.info.file_format.value == "array_record"
        assert str(builder.version) == "1.0.0" and builder.builder_config.name == "20230601.en"
        assert "tensorflow" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True)
    with pytest.raises(DataError) as caught:
        open_sources([f"tfds:wikipedia/20230601.en?data_dir={tmp_path}"])
    assert "import tensorflow_datasets as tfds, tensorflow_datasets.text;" in str(caught.value)
    assert "tfds.builder('wikipedia/20230601.en'" in str(caught.value)
    assert "file_format='array_record'" in str(caught.value)
