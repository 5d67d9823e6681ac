"""The last stage of a build: shards are written from the parts."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from etils import epath

from bert_lamb.data.building.parts import read_run
from bert_lamb.data.building.pool import advance
from bert_lamb.data.building.storage import DamagedWorkError, load_json, save_json
from bert_lamb.data.records.manifest import Shard
from bert_lamb.data.records.shards import shard_name, write_shard


@dataclass(frozen=True)
class Index:
    """Which parts make up a record set.

    Attributes:
        parts: for each part its file and the number of its first example, in order.
        num_shards: shards S.
    """

    parts: tuple[tuple[str, int], ...]
    num_shards: int

    def save(self, file: epath.Path) -> None:
        """Writes the index for `Deal` to find."""
        save_json(file, {"parts": self.parts, "num_shards": self.num_shards})

    @classmethod
    def load(cls, file: epath.Path) -> "Index":
        """Reads what `save` wrote."""
        values = load_json(file)
        if values is None:
            raise DamagedWorkError(file)
        return cls(tuple((name, first) for name, first in values["parts"]), values["num_shards"])


@dataclass(frozen=True)
class Deal:
    """Writes the shards of a record set.

    Attributes:
        folder: where its Index is, and the summaries of the shards go.
        name: of the record set in `folder`.
        output: folder of the record set.
    """

    folder: str
    name: str
    output: str

    def run(self, number: int) -> None:
        """Writes a shard, unless that was done before."""
        if self._done(number) is not None:
            return
        index = Index.load(epath.Path(self.folder) / f"{self.name}.json")
        name = shard_name(number, index.num_shards)
        records = (
            record
            for part, first in index.parts
            for record in read_run(
                epath.Path(part), (number - first) % index.num_shards, index.num_shards
            )
        )
        # ArrayRecord writes to local files only.
        target = epath.Path(self.output) / name
        local_folder = None if "://" in self.folder else self.folder
        with tempfile.TemporaryDirectory(dir=local_folder) as folder:
            local = Path(folder, name)
            size = write_shard(local, records, advance)
            stored = local.stat().st_size
            if local_folder is None:
                with local.open("rb") as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
            else:
                local.replace(target)
        values = {"name": name, "num_examples": size, "bytes": stored}
        save_json(self._summary(number), values)

    def load(self, number: int) -> Shard:
        """Returns what `run` wrote."""
        shard = self._done(number)
        assert shard is not None, f"shard {number} was not written"
        return shard

    def _done(self, number: int) -> Shard | None:
        """Returns the shard if it is written and still there."""
        values = load_json(self._summary(number))
        if values is None:
            return None
        target = epath.Path(self.output) / values["name"]
        if not target.exists() or target.stat().length != values["bytes"]:
            return None
        return Shard(values["name"], values["num_examples"])

    def _summary(self, number: int) -> epath.Path:
        return epath.Path(self.folder) / f"{self.name}-{number:05d}.json"
