"""The shards of a record set, written."""

import struct
from pathlib import Path

from array_record.python import array_record_module

from bert_lamb.data.records.manifest import Shard

_LENGTH = struct.Struct("<I")
_SPOOLED_AT_ONCE = 1 << 16  # bytes

# One record per chunk: with the library's default group of records, reading one at random would
# read and unpack them all. So short a chunk of ids hardly compresses, hence not at all.
_WRITER_OPTIONS = "group_size:1,uncompressed"


class ShardWriter:
    """Deals records round-robin to the shards of a directory, so that they differ by one at most.

    An open ArrayRecord file buffers 16 MiB and keeps 50 bytes for each of its records. So the
    records go to plain spool files first, and become ArrayRecord files one shard after the other:
    memory does not grow with the number of shards, and with that of records by one shard's index.

    The bytes depend on the records and their order only: ArrayRecord files hold no time stamps.
    """

    def __init__(self, directory: Path, num_shards: int) -> None:
        names = [f"pairs-{i:05d}-of-{num_shards:05d}.array_record" for i in range(num_shards)]
        self._paths = [directory / name for name in names]
        self._counts = [0] * num_shards
        self._next = 0
        for path in self._paths:
            _spool(path).touch()
        self._waiting: list[bytearray] = [bytearray() for _ in names]

    def write(self, record: bytes) -> None:
        """Appends one record."""
        waiting = self._waiting[self._next]
        waiting += _LENGTH.pack(len(record)) + record
        if len(waiting) >= _SPOOLED_AT_ONCE:
            self._flush(self._next)
        self._counts[self._next] += 1
        self._next = (self._next + 1) % len(self._counts)

    def close(self) -> tuple[Shard, ...]:
        """Finishes the files; returns what they hold."""
        for number, path in enumerate(self._paths):
            self._flush(number)
            writer = array_record_module.ArrayRecordWriter(str(path), _WRITER_OPTIONS)
            with _spool(path).open("rb") as spool:
                while length := spool.read(_LENGTH.size):
                    writer.write(spool.read(*_LENGTH.unpack(length)))
            writer.close()
            _spool(path).unlink()
        return tuple(
            Shard(path.name, count) for path, count in zip(self._paths, self._counts, strict=True)
        )

    def _flush(self, number: int) -> None:
        # Opened for each write, so that thousands of shards need no more than one open file.
        with _spool(self._paths[number]).open("ab") as spool:
            spool.write(self._waiting[number])
        self._waiting[number].clear()


def _spool(path: Path) -> Path:
    return path.with_suffix(".spool")
