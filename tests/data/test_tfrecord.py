import base64
import contextlib
import gzip
import re
import struct

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_lamb.data.errors import DataError
from bert_lamb.data.records.tf_example import decode_example, encode_example
from bert_lamb.data.records.tfrecord import masked_crc32c, read_tfrecord, write_tfrecord
from tests.reference import tf_example as reference

# Written by TensorFlow (Apache Beam's tfrecordio_test.py, FOO_BAR_RECORD_BASE64).
FOO_BAR = base64.b64decode("AwAAAAAAAACwmUkOZm9vYYq+/gMAAAAAAAAAsJlJDmJhckYA5cg=")
# features { feature { key: "a" value { int64_list { value: [1, 300] } } } }, by hand.
A_1_300 = bytes.fromhex("0a0e 0a0c 0a0161 1207 1a05 0a0301ac02")


def rejected(path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_tfrecord(path))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"123456789", 0xE3069283),  # the check value of CRC-32C
        (bytes(32), 0x8A9136AA),  # RFC 3720, appendix B.4, as are those below
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"", 0),
    ],
    ids=["check", "zeros", "ones", "ascending", "empty"],
)
def test_checksums_are_the_published_ones(data, crc):
    assert reference.crc32c(data) == crc
    assert masked_crc32c(data) == reference.masked(crc)


def test_the_mask_is_tensorflows():
    assert masked_crc32c(b"123456789") == 0xC78AB0E5
    assert struct.pack("<I", masked_crc32c(b"foo")) == FOO_BAR[15:19]


def test_files_are_tensorflows_byte_for_byte(tmp_path):
    assert write_tfrecord(tmp_path / "a", [b"foo", b"bar"]) == 2
    assert (tmp_path / "a").read_bytes() == FOO_BAR
    assert list(read_tfrecord(tmp_path / "a")) == [b"foo", b"bar"]


@pytest.mark.parametrize("compressed", [False, True])
def test_records_read_back(tmp_path, compressed):
    records = [b"", b"x", bytes(5_000_000), np.random.default_rng(0).bytes(3000)]
    assert write_tfrecord(tmp_path / "a", iter(records), compressed=compressed) == 4
    assert list(read_tfrecord(tmp_path / "a")) == records
    assert write_tfrecord(tmp_path / "a", []) == 0
    assert list(read_tfrecord(tmp_path / "a")) == []


def test_gzip_files_are_the_plain_bytes_packed_and_hold_no_time_or_name(tmp_path):
    for name in ("a", "b"):
        write_tfrecord(tmp_path / name, [b"foo", b"bar"], compressed=True)
    packed = (tmp_path / "a").read_bytes()
    assert gzip.decompress(packed) == FOO_BAR
    assert packed == (tmp_path / "b").read_bytes()
    assert packed[3:8] == bytes(5)  # no flags, hence no name; no time


def test_a_length_that_looks_like_gzip_is_a_length(tmp_path):
    data = bytes(0x088B1F)
    write_tfrecord(tmp_path / "a", [data])
    assert (tmp_path / "a").read_bytes()[:3] == b"\x1f\x8b\x08"
    assert list(read_tfrecord(tmp_path / "a")) == [data]


def test_tensorboards_writer_and_grains_reader_agree(tmp_path):
    from grain.experimental import TFRecordIterDataset
    from tensorboardX.record_writer import RecordWriter

    records = [np.random.default_rng(i).bytes(100 * i) for i in range(1, 5)]
    writer = RecordWriter(str(tmp_path / "theirs"))
    for record in records:
        writer.write(record)
    writer.close()
    write_tfrecord(tmp_path / "ours", records)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert list(TFRecordIterDataset(str(tmp_path / "ours"))) == records
    assert reference.read_records(tmp_path / "ours") == records


@pytest.mark.parametrize("compressed", [False, True])
def test_remote_files_are_written_and_read(compressed):
    class Bucket(MemoryFileSystem):
        protocol = "s3"

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(str(path).replace("s3://", "memory://"))

    fsspec.register_implementation("s3", Bucket, clobber=True)
    path = f"s3://bucket/{compressed}.tfrecord"
    write_tfrecord(path, [b"foo", b"bar"], compressed=compressed)
    assert list(read_tfrecord(path)) == [b"foo", b"bar"]


def test_a_file_cut_short_anywhere_is_named_with_record_and_byte(tmp_path):
    path = tmp_path / "cut"
    for size in range(1, len(FOO_BAR)):
        path.write_bytes(FOO_BAR[:size])
        if size == 19:
            assert list(read_tfrecord(path)) == [b"foo"]
            continue
        number, offset = (1, 0) if size < 19 else (2, 19)
        message = rejected(path)
        assert message.startswith(f"{path}, record {number}, byte {offset}: the file ends after ")
        assert f" {size - offset} of " in message


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "flipped"
    for bit in range(8 * len(FOO_BAR)):
        data = bytearray(FOO_BAR)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        number, offset = (1, 0) if bit < 8 * 19 else (2, 19)
        assert rejected(path).startswith(f"{path}, record {number}, byte {offset}: ")


def test_a_damaged_gzip_file_is_named_with_record_and_byte(tmp_path):
    path = tmp_path / "a.tfrecord"
    rng = np.random.default_rng(0)
    write_tfrecord(path, [rng.bytes(1000) for _ in range(100)], compressed=True)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    message = rejected(path)
    assert "ended before the end-of-stream marker" in message
    number, offset = map(int, re.findall(r", record (\d+), byte (\d+): ", message)[0])
    assert offset == (number - 1) * 1016
    assert 40 < number < 60
    path.write_bytes(packed[:30] + bytes(10) + packed[40:])
    assert rejected(path).startswith(f"{path}, record 1, byte 0: ")


@settings(deadline=None)
@given(data=st.binary(max_size=200), packed=st.booleans())
def test_random_bytes_raise_data_errors_only(tmp_path_factory, data, packed):
    path = tmp_path_factory.mktemp("random") / "bytes"
    path.write_bytes(b"\x1f\x8b\x08" + data if packed else data)
    if data or packed:
        rejected(path)
    else:
        assert list(read_tfrecord(path)) == []


def test_a_length_beyond_all_memory_is_a_file_cut_short(tmp_path):
    length = struct.pack("<Q", 2**62)
    path = tmp_path / "huge"
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"data")
    assert "the file ends after 16 of 4611686018427387920 bytes" in rejected(path)


def test_files_of_another_kind_are_named(tmp_path):
    (tmp_path / "text").write_text("Once upon a time there was a text file.")
    assert "record 1, byte 0: not a TFRecord file, or damaged" in rejected(tmp_path / "text")
    assert f"{tmp_path / 'nope'}: cannot be read" in rejected(tmp_path / "nope")
    assert f"{tmp_path}: cannot be read" in rejected(tmp_path)


def test_a_message_by_hand():
    assert encode_example({"a": np.array([1, 300])}) == A_1_300
    assert reference.read_example(A_1_300) == {"a": [1, 300]}
    assert reference.write_example({"a": [1, 300]}) == A_1_300
    assert decode_example(A_1_300)["a"].tolist() == [1, 300]


_INTS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20)
_FLOATS = st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=8), _INTS | _FLOATS, min_size=1, max_size=5
    ),
    st.booleans(),
)
def test_messages_agree_with_an_independent_reader_and_writer(features, packed):
    arrays = {
        name: np.array(values, np.float32 if isinstance(values[0], float) else np.int64)
        for name, values in features.items()
    }
    assert reference.read_example(encode_example(arrays)) == features
    decoded = decode_example(reference.write_example(features, packed=packed))
    assert {name: values.tolist() for name, values in decoded.items()} == features
    assert all(decoded[name].dtype == values.dtype for name, values in arrays.items())


def test_messages_do_not_depend_on_the_order_of_features():
    a, b = np.array([1]), np.array([2.0])
    assert encode_example({"a": a, "b": b}) == encode_example({"b": b, "a": a})


def test_text_features_come_as_bytes():
    from tensorflow_datasets.proto.tf_example_generated_pb2 import Example

    example = Example()
    example.features.feature["text"].bytes_list.value.extend([b"one", b"two"])
    assert decode_example(example.SerializeToString())["text"].tolist() == [b"one", b"two"]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.tuples(st.integers(0, len(A_1_300) - 1), st.integers(0, 255)))
def test_damaged_messages_raise_data_errors_only(damage):
    data = damage
    if isinstance(damage, tuple):
        data = A_1_300[: damage[0]] + bytes([damage[1]]) + A_1_300[damage[0] + 1 :]
    with contextlib.suppress(DataError):
        decode_example(data)
