"""Data sets of TensorFlow Datasets that were prepared as ArrayRecord, read without TensorFlow.

A source is written tfds:NAME[/CONFIG][:VERSION][@SPLIT][?data_dir=DIR], for example
tfds:wikipedia/20230601.en or tfds:wikipedia/20230601.en:1.0.0@train[:10%]?data_dir=/data/tfds.
Without `data_dir` it is looked for where TFDS looks: $TFDS_DATA_DIR, or ~/tensorflow_datasets.
Only the prepared files are used, none of the data set's own code.
"""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bert_lamb.data.corpus.document import Document, ReadStats
from bert_lamb.data.corpus.packed import stored_size
from bert_lamb.data.corpus.policy import OnError
from bert_lamb.data.corpus.remote import is_remote
from bert_lamb.data.corpus.rows import Rows, check_text_column
from bert_lamb.data.errors import DataError

_SPEC = re.compile(
    r"(?P<name>\w+)(?:/(?P<config>[^:@?]+))?(?::(?P<version>\d+\.\d+\.\d+))?"
    r"(?:@(?P<split>[^?]+))?(?:\?data_dir=(?P<data_dir>.+))?"
)

_BATCH = 64  # examples read at a time


@dataclass(frozen=True)
class TfdsSplit:
    """One shard of a data set, or a stretch of it, a document an example.

    Attributes:
        name: path of the shard, with the stretch where it is not whole.
        folder: of the data set's version, which holds features.json.
        file: path of the shard.
        skip: examples of the shard before the stretch.
        take: examples in the stretch.
        stored: bytes of the shard's file, times the share that is taken.
        on_error: what to do with text that is not UTF-8; see policy.OnError.
        text_field: the feature with the text; "id" and "title" are taken where present.
    """

    name: str
    folder: str
    file: str
    skip: int
    take: int
    stored: int
    on_error: OnError = "error"
    text_field: str = "text"

    @property
    def size(self) -> int:
        """Bytes of the shard as it is stored, times the share that is taken."""
        return self.stored

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields the documents of the stretch.

        Raises:
            DataError: if the shard is damaged or its examples do not fit the features.
        """
        rows = Rows(self.file, self.on_error)
        for row, example in self.examples():
            id, title = _scalar(example.get("id")), _scalar(example.get("title"))
            yield from rows.documents(row, id, title, _scalar(example[self.text_field]), stats)
        stats.files += 1

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of an example."""
        return tuple(_builder(self.folder).info.features)

    def examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the examples of the stretch as TFDS gives them, with their numbers in the shard.

        Raises:
            DataError: as `read`.
        """
        from array_record.python.array_record_module import ArrayRecordReader

        features = _builder(self.folder).info.features
        with _tfds_errors(f"{self.file}: cannot be read"):
            reader = ArrayRecordReader(self.file)
            if reader.num_records() < self.skip + self.take:
                raise ValueError(f"it holds {reader.num_records()} examples")
        try:
            stop = self.skip + self.take
            for first in range(self.skip, stop, _BATCH):
                batch = range(first, min(first + _BATCH, stop))
                with _tfds_errors(f"{self.file}, examples from {first}: cannot be read"):
                    records = reader.read(list(batch))
                    examples = [features.deserialize_example_np(record) for record in records]
                yield from zip(batch, examples, strict=True)
        finally:
            reader.close()


def open_tfds(source: str, on_error: OnError, text_field: str) -> tuple[TfdsSplit, ...]:
    """Returns the shards of the data set that `source` names (without "tfds:").

    Raises:
        DataError: if it cannot be understood, is not prepared, or not as ArrayRecord; the message
            holds the command that prepares it.
    """
    spec = _SPEC.fullmatch(source)
    if spec is None:
        raise DataError(
            f"source 'tfds:{source}': expected tfds:NAME[/CONFIG][:VERSION][@SPLIT][?data_dir=DIR]"
            ", for example tfds:wikipedia/20230601.en@train"
        )
    folder = _find(source, spec)
    info = _builder(folder).info
    split = spec["split"] or "train"
    with _tfds_errors(f"source 'tfds:{source}': split {split!r} cannot be used; it has the splits "
                      f"{', '.join(info.splits) or 'none'}"):  # fmt: skip
        instructions = info.splits[split].file_instructions
    if info.file_format is None or info.file_format.value != "array_record":
        stored = info.file_format.value if info.file_format else "no known format"
        raise DataError(
            f"source 'tfds:{source}': prepared as {stored}; only array_record can be read without "
            f"TensorFlow; prepare it so in another data_dir: {_prepare(spec, '/other/folder')}"
        )
    features = info.features if hasattr(info.features, "keys") else {}
    check_text_column(f"source 'tfds:{source}'", text_field, list(features))
    feature = features[text_field]
    if feature.shape != () or getattr(feature.np_dtype, "kind", "") not in ("O", "S", "U"):
        shown = " ".join(repr(feature).split())
        raise DataError(
            f"source 'tfds:{source}': the feature {text_field!r} is {shown:.80}; expected Text "
            "(--text-field names the feature)"
        )
    if not instructions:
        raise DataError(f"source 'tfds:{source}': split {split!r} holds no example; name another")
    return tuple(_split(folder, part, on_error, text_field) for part in instructions)


def _split(folder: str, part: Any, on_error: OnError, text_field: str) -> TfdsSplit:
    file, total = str(part.filename), int(part.examples_in_shard)
    take = total - part.skip if part.take < 0 else int(part.take)
    stretch = "" if take == total else f"[{part.skip}:{part.skip + take}]"
    stored = stored_size(file) * take // max(1, total)
    return TfdsSplit(file + stretch, folder, file, int(part.skip), take, stored, on_error,
                     text_field)  # fmt: skip


def _find(source: str, spec: re.Match[str]) -> str:
    """Returns the folder of the newest version, or of the one asked for."""
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    root = os.path.expanduser(spec["data_dir"] or default)
    if is_remote(root):
        raise DataError(
            f"source 'tfds:{source}': data sets are read from a local folder, not {root}; copy it, "
            "and name the copy with ?data_dir=DIR"
        )
    parent = os.path.join(root, spec["name"], *filter(None, [spec["config"]]))
    try:
        found = [name for name in os.listdir(parent) if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    except OSError:
        found = []
    found = [name for name in found if os.path.exists(os.path.join(parent, name, "features.json"))]
    version = spec["version"] or max(
        found, key=lambda name: tuple(map(int, name.split("."))), default=""
    )
    if version not in found:
        versions = f"only in version {', '.join(sorted(found))}" if found else "not"
        raise DataError(
            f"source 'tfds:{source}': {versions} prepared in {root} (another folder: "
            f"?data_dir=DIR or TFDS_DATA_DIR); prepare it: {_prepare(spec, root)}"
        )
    return os.path.join(parent, version)


def _prepare(spec: re.Match[str], root: str) -> str:
    """Returns a command that prepares the data set without TensorFlow."""
    name = spec["name"] + (f"/{spec['config']}" if spec["config"] else "")
    name += f":{spec['version']}" if spec["version"] else ""
    # Older data sets, such as wikipedia, are found only once their module is imported.
    return (
        "pip install tensorflow-datasets importlib-resources apache-beam mwparserfromhell mwxml && "
        'python -c "import tensorflow_datasets as tfds, tensorflow_datasets.text; '
        f"tfds.builder({name!r}, data_dir={root!r}, file_format='array_record')"
        '.download_and_prepare()"'
    )


def _builder(folder: str) -> Any:
    """Returns TFDS's view of the prepared data set in `folder`."""
    try:
        with _quiet():
            import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"{folder}: needs tensorflow-datasets ({error}); run `pip install tensorflow-datasets`"
        ) from error
    with _tfds_errors(f"{folder}: is no prepared data set"):
        builder = tfds.builder_from_directory(folder)
        builder.info.features  # noqa: B018 (read here, where a fault is reported)
        return builder


@contextmanager
def _tfds_errors(problem: str) -> Iterator[None]:
    """Says what went wrong in this project's words: TFDS raises exceptions of many kinds."""
    try:
        with _quiet():
            yield
    except Exception as error:
        said = " ".join(str(error).split())
        raise DataError(
            f"{problem} ({type(error).__name__}: {said:.200}); check it, or prepare it again"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Holds back the warnings of TFDS and protobuf about each other's interfaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _scalar(value: Any) -> Any:
    """Returns a feature's value as bytes, int or None."""
    if value is None or isinstance(value, bytes | int):
        return value
    if isinstance(value, str):
        return value.encode()
    item = value.item() if getattr(value, "size", 0) == 1 else None
    return item.encode() if isinstance(item, str) else item
