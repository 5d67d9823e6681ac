"""The shards of a record set, written."""

from collections.abc import Callable, Iterable
from pathlib import Path

from array_record.python import array_record_module

from bert_lamb.data.errors import KeptWorkError

_REPORTED_AT_ONCE = 1 << 20  # bytes
# One record per chunk: with the library's default group of records, reading one at random would
# read and unpack them all. So short a chunk of ids hardly compresses, hence not at all.
_WRITER_OPTIONS = "group_size:1,uncompressed"


def shard_name(number: int, num_shards: int) -> str:
    """Returns the file name of a shard."""
    return f"pairs-{number:05d}-of-{num_shards:05d}.array_record"


def write_shard(
    file: Path, records: Iterable[bytes], advance: Callable[[int], None] = lambda _: None
) -> int:
    """Writes one ArrayRecord file; its bytes depend on the records and their order only.

    An open file buffers 16 MiB and keeps 50 bytes for each of its records.

    Args:
        file: local path.
        records: packed examples.
        advance: called now and then with the bytes of records written since.

    Returns:
        How many records it holds.

    Raises:
        KeptWorkError: if it cannot be written, for lack of space say.
    """
    count = size = 0
    try:
        writer = array_record_module.ArrayRecordWriter(str(file), _WRITER_OPTIONS)
        for record in records:
            writer.write(record)
            count += 1
            size += len(record)
            if size >= _REPORTED_AT_ONCE:
                advance(size)
                size = 0
        writer.close()
    except RuntimeError as error:  # all that the library raises
        raise KeptWorkError(
            f"{file}: cannot be written ({error}); check the space and the rights there"
        ) from error
    advance(size)
    return count
