"""Records by their number, out of shards that may be damaged."""

import logging
from collections.abc import Sequence
from pathlib import Path

import grain
import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.data.records.manifest import Manifest, Shard

_MEND = (
    "copy the shard again, make the records again, or pretrain without it "
    "(--config.data.on_damage=skip)"
)
_SHOWN = 10
_log = logging.getLogger(__name__)


class RecordSource:
    """The records of a record set by number.

    Attributes:
        skipped: how many records were asked for so far that could not be read.
    """

    def __init__(self, folder: str | Path, manifest: Manifest, on_damage: str = "stop") -> None:
        """Opens the shards, which reads the end of each.

        Args:
            folder: of the record set.
            manifest: of the record set.
            on_damage: what to do about records that cannot be read: stop with their place
                ("stop"), or give None for each and go on ("skip").

        Raises:
            DataError: if a shard is damaged or does not hold what the manifest says, unless
                `on_damage` is "skip"; or if no shard can be read at all.
        """
        self.skipped = self._faults = 0
        self._folder, self._on_damage = epath.Path(folder), on_damage
        self._shards = [shard for shard in manifest.shards if shard.num_examples]
        sizes = [shard.num_examples for shard in self._shards]
        self._first = np.cumsum([0, *sizes])
        source, problem = self._opened(self._shards)
        usable = np.ones(len(sizes), bool)
        if problem:
            usable = np.array([not self._damaged(shard) for shard in self._shards])
            good = [s for s, is_usable in zip(self._shards, usable, strict=True) if is_usable]
            source, problem = self._opened(good) if good else (None, "no shard can be read")
        if source is None or problem:
            raise DataError(f"records {str(folder)!r}: {problem}; {_MEND}")
        self._source = source
        # Where a shard's records begin in the source, which lacks the damaged ones; -1 for those.
        begins = np.cumsum(np.where(usable, sizes, 0)) - sizes
        self._begins = np.where(usable, begins, -1)

    def __len__(self) -> int:
        return int(self._first[-1])

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[bytes | None]:
        """Returns records by number, None for those that cannot be read.

        Raises:
            DataError: for a record that cannot be read, unless `on_damage` is "skip".
        """
        numbers = np.asarray(numbers, np.int64)
        shard = np.searchsorted(self._first, numbers, side="right") - 1
        begins = self._begins[shard]
        places = np.flatnonzero(begins >= 0)
        inside = (begins + numbers - self._first[shard])[places].tolist()
        records: list[bytes | None] = [None] * len(numbers)
        for place, record in zip(places.tolist(), self._read(inside, numbers[places]), strict=True):
            records[place] = record
        if missing := records.count(None):
            self._count(missing)
        return records

    def _count(self, missing: int) -> None:
        before, self.skipped = self.skipped, self.skipped + missing
        if self.skipped.bit_length() > before.bit_length():  # at 1, 2, 4, 8 ...: not without end
            _log.warning("%s: %s rows left empty so far", self._folder, f"{self.skipped:,}")

    def _read(self, inside: list[int], numbers: np.ndarray) -> Sequence[bytes | None]:
        if not inside:
            return []
        try:
            return self._source.__getitems__(inside)
        except (RuntimeError, ValueError) as error:
            if len(inside) > 1:
                each = zip(inside, numbers, strict=True)
                return [self._read([i], np.array([number]))[0] for i, number in each]
            shard = int(np.searchsorted(self._first, numbers[0], side="right")) - 1
            self._damage(
                f"{self._folder / self._shards[shard].name}: record "
                f"{int(numbers[0] - self._first[shard])} cannot be read ({error})"
            )
            return [None]

    def _opened(
        self, shards: Sequence[Shard]
    ) -> tuple[grain.sources.ArrayRecordDataSource | None, str]:
        """Returns a source over `shards`, or what is wrong with them."""
        try:
            source = grain.sources.ArrayRecordDataSource(
                [str(self._folder / shard.name) for shard in shards]
            )
            size = len(source)
        except (RuntimeError, ValueError) as error:
            return None, f"cannot be opened ({str(error) or 'cut short'})"
        wanted = sum(shard.num_examples for shard in shards)
        return source, "" if size == wanted else f"{size} records, the manifest says {wanted}"

    def _damaged(self, shard: Shard) -> bool:
        _, problem = self._opened([shard])
        if problem:
            share = shard.num_examples / len(self)
            lost = f"{shard.num_examples:,} of {len(self):,} examples ({share:.1%}) are in it"
            self._damage(f"{self._folder / shard.name}: {problem}; {lost}")
        return bool(problem)

    def _damage(self, message: str) -> None:
        if self._on_damage == "stop":
            raise DataError(f"{message}; {_MEND}")
        self._faults += 1
        if self._faults <= _SHOWN:
            _log.warning("%s; skipped", message)
