"""Finished examples of a block, laid down by the shard they will belong to.

Example i of a record set belongs to shard i mod S. A part does not know how many examples come
before its own, so it keeps them by i mod S counted from its own first: whichever shard is written
then finds what it needs in one run of bytes, and all shards can be written at the same time.

    uint64 [S, 2]    of each run, its size and its CRC-32
    the runs: each record as its length (uint32) and its bytes
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from bert_lamb.data.building.storage import DamagedWorkError, replacing

_LENGTH = struct.Struct("<I")
_TABLE = np.dtype([("size", "<u8"), ("crc", "<u8")])


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
    table = np.array([(len(run), zlib.crc32(run)) for run in runs], _TABLE)
    with replacing(file) as out:
        out.write(table.tobytes())
        out.write(b"".join(runs))
    return sum(map(len, records))


def read_run(file: epath.Path, run: int, num_shards: int) -> Iterator[bytes]:
    """Yields the records of one run of a part.

    Raises:
        DamagedWorkError: if the file is not what was written.
    """
    try:
        with file.open("rb") as stream:
            table = np.frombuffer(stream.read(_TABLE.itemsize * num_shards), _TABLE)
            begin = int(table["size"][:run].sum())
            stream.seek(_TABLE.itemsize * num_shards + begin)
            data = stream.read(int(table["size"][run]))
            is_whole = zlib.crc32(data) == int(table["crc"][run])
    except (FileNotFoundError, ValueError, IndexError) as error:
        raise DamagedWorkError(file) from error
    if not is_whole:
        raise DamagedWorkError(file)
    at = 0
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + size
        yield data[at - size : at]
