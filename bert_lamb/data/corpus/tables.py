"""Parquet files, and Hugging Face data sets in Arrow files, read with pyarrow.

The package `datasets` is not needed: what `Dataset.save_to_disk` writes is a list of files in the
Arrow streaming format and two small JSON files. Leaving it out spares its dependencies, a second
cache of the text on disk, and requests to a hub.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from bert_lamb.data.corpus.document import Document, ReadStats
from bert_lamb.data.corpus.packed import open_raw, stored_size
from bert_lamb.data.corpus.policy import OnError
from bert_lamb.data.corpus.remote import is_remote
from bert_lamb.data.corpus.rows import Rows, check_text_column
from bert_lamb.data.errors import DataError

if TYPE_CHECKING:
    import pyarrow

_BATCH_ROWS = 64  # of Parquet: read at a time; a row of text is seldom over a megabyte
_BUFFER_BYTES = 1 << 20
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True)
class _TableSplit:
    """A file that holds a table.

    Attributes:
        name: its path, local or remote.
        on_error: what to do with text that is not UTF-8; see policy.OnError.
        text_field: the column with the text; "id" and "title" are taken where present.
    """

    name: str
    on_error: OnError = "error"
    text_field: str = "text"

    @property
    def size(self) -> int:
        """Bytes of the file as it is stored."""
        return stored_size(self.name)


@dataclass(frozen=True)
class ParquetSplit(_TableSplit):
    """A Parquet file, a document a row.

    Memory holds a few pages of each column read, not a row group.
    """

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of the file.

        Raises:
            DataError: for a file that is not Parquet or damaged, without the column, or with text
                that is not UTF-8.
        """
        with _arrow_errors(self.name, "a Parquet file"), open_raw(self.name) as raw:
            from pyarrow import parquet

            # Without pre_buffer and with a buffer, column chunks are streamed.
            file = parquet.ParquetFile(raw, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            schema = file.schema_arrow
            columns = _columns(self.name, schema, self.text_field)
            batches = file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
            yield from _documents(self, batches, stats)
        stats.files += 1


@dataclass(frozen=True)
class ArrowSplit(_TableSplit):
    """An Arrow file, in the streaming or the random-access format, a document a row.

    Memory holds one of its record batches, which `datasets` writes of 1,000 rows.
    """

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of the file.

        Raises:
            DataError: for a file that is not Arrow or cut short, without the column, or with text
                that is not UTF-8.
        """
        with _arrow_errors(self.name, "an Arrow file"), open_raw(self.name) as raw:
            from pyarrow import ipc

            if raw.read(6) == b"ARROW1":
                file = ipc.open_file(raw)
                schema = file.schema
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
            else:
                # The reader takes a stream that lacks its end mark for a complete one.
                raw.seek(-min(len(_STREAM_END), raw.seek(0, 2)), 2)
                if raw.read() != _STREAM_END:
                    raise EOFError("it does not end like an Arrow stream: cut short?")
                raw.seek(0)
                stream = ipc.open_stream(raw)
                schema, batches = stream.schema, iter(stream)
            columns = _columns(self.name, schema, self.text_field)
            yield from _documents(self, (batch.select(columns) for batch in batches), stats)
        stats.files += 1


def saved_dataset(folder: str) -> tuple[str, ...]:
    """Returns the Arrow files of a data set that `Dataset.save_to_disk` made, in their order.

    Raises:
        DataError: if `folder` is no such data set, or holds several splits; the message lists them.
    """
    splits = _read_json(folder, "dataset_dict.json")
    if splits is not None:
        names = [str(name) for name in splits.get("splits", [])]
        raise DataError(
            f"source 'hf:{folder}': holds the splits {', '.join(names) or 'none'}; name one, for "
            f"example hf:{PurePosixPath(folder) / (names[0] if names else 'train')}"
        )
    state = _read_json(folder, "state.json")
    if state is None:
        raise DataError(
            f"source 'hf:{folder}': no state.json in it; expected a folder that `save_to_disk` of "
            "Hugging Face datasets made"
        )
    try:
        names = [entry["filename"] for entry in state["_data_files"]]
        whole = not state.get("_indices_data_files")
        good = whole and names and all(PurePosixPath(name).name == name for name in names)
    except (KeyError, TypeError):
        good = False
    if not good:
        raise DataError(
            f"source 'hf:{folder}': its state.json lists no files of its own under '_data_files', "
            "or a selection of rows; save it again with flatten_indices() and save_to_disk"
        )
    return tuple(f"{folder.rstrip('/')}/{name}" for name in names)


def _read_json(folder: str, name: str) -> dict[str, Any] | None:
    """Returns a JSON object in `folder`, or None where there is no such file."""
    path = f"{folder.rstrip('/')}/{name}"
    try:
        with open_raw(path) as file:
            value = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DataError:
        if is_remote(path):
            return None
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error}); save the data set again") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no JSON object; save the data set again")
    return value


@contextmanager
def _arrow_errors(file: str, kind: str) -> Iterator[None]:
    """Says what went wrong in this project's words."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f"{file}: needs pyarrow; run `pip install pyarrow`") from error
    try:
        yield
    except DataError:
        raise
    except (
        OSError,
        EOFError,
        LookupError,
        MemoryError,
        ValueError,
        pyarrow.ArrowException,
    ) as error:
        said = " ".join(str(error).split())
        raise DataError(
            f"{file}: cannot be read as {kind} ({said:.200}); check that it is one and complete"
        ) from error


def _columns(file: str, schema: "pyarrow.Schema", text_field: str) -> list[str]:
    """Returns the columns to read: the text, and id and title where they can be used."""
    import pyarrow as pa

    check_text_column(file, text_field, schema.names)
    if len(set(schema.names)) < len(schema.names):
        raise DataError(f"{file}: has two columns of one name; rename one")
    kind = schema.field(text_field).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not _is_text(value):
        raise DataError(
            f"{file}: column {text_field!r} holds {kind}; expected text (--text-field names the "
            "column)"
        )
    usable = [
        name for name in ("id", "title")
        if name in schema.names and name != text_field
        and (_is_text(schema.field(name).type) or pa.types.is_integer(schema.field(name).type))
    ]  # fmt: skip
    return [text_field, *usable]


def _is_text(kind: "pyarrow.DataType") -> bool:
    import pyarrow as pa

    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary,
        pa.types.is_large_binary, pa.types.is_binary_view,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _documents(
    split: _TableSplit, batches: Iterator["pyarrow.RecordBatch"], stats: ReadStats
) -> Iterator[Document]:
    rows = Rows(split.name, split.on_error)
    number = 0
    for batch in batches:
        texts = _bytes(batch.column(split.text_field))
        none = [None] * batch.num_rows
        ids, titles = (
            _values(batch.column(name)) if name in batch.schema.names and name != split.text_field
            else none
            for name in ("id", "title")
        )  # fmt: skip
        for id, title, text in zip(ids, titles, texts, strict=True):
            yield from rows.documents(number, id, title, text, stats)
            number += 1


def _values(column: "pyarrow.Array") -> list[Any]:
    """Returns bytes for text, since text may turn out not to be UTF-8, and integers as they are."""
    if _is_text(column.type):
        return _bytes(column)
    column.validate(full=True)
    return column.to_pylist()


def _bytes(column: "pyarrow.Array") -> list[bytes | None]:
    """Returns the values of a column of text undecoded.

    Arrow trusts the offsets in a file, and following wrong ones ends the process; so they are
    checked first. They are checked as bytes, since a check of text refuses all that is not UTF-8.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column.indices.validate(full=True)
        values = pa.array(_bytes(column.dictionary), pa.large_binary())
        return pa.DictionaryArray.from_arrays(column.indices, values, safe=True).to_pylist()
    as_bytes = {
        pa.string(): pa.binary(), pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }  # fmt: skip
    column = column.view(as_bytes.get(column.type, column.type))
    column.validate(full=True)
    return column.to_pylist()
