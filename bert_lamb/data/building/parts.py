"""Finished examples of a block, laid down by the shard they will belong to.

Example i of a record set belongs to shard i mod S. A part does not know how many examples come
before its own, so it keeps them by i mod S counted from its own first: whichever shard is written
then finds what it needs in one run of bytes, and all shards can be written at the same time.

    uint64 [S + 1]   where each run begins, counted from the end of this table
    the runs: each record as its length (uint32) and its bytes
"""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from bert_lamb.data.building.storage import replacing

_LENGTH = struct.Struct("<I")


def write_part(file: epath.Path, records: Sequence[bytes], num_shards: int) -> int:
    """Writes a part.

    Args:
        file: where to.
        records: packed examples in order.
        num_shards: shards S of the record set.

    Returns:
        Bytes of all records.
    """
    pack = _LENGTH.pack
    runs = [
        b"".join([pack(len(record)) + record for record in records[first::num_shards]])
        for first in range(num_shards)
    ]
    begins = np.concatenate([[0], np.cumsum([len(run) for run in runs])]).astype("<u8")
    with replacing(file) as out:
        out.write(begins.tobytes())
        out.write(b"".join(runs))
    return sum(map(len, records))


def read_run(file: epath.Path, run: int, num_shards: int) -> Iterator[bytes]:
    """Yields the records of one run of a part."""
    with file.open("rb") as stream:
        stream.seek(8 * run)
        begin, end = np.frombuffer(stream.read(16), "<u8").tolist()
        stream.seek(8 * (num_shards + 1) + begin)
        data = stream.read(end - begin)
    at = 0
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + size
        yield data[at - size : at]
