"""TFRecords and tf.train.Example messages by their published rules.

Slow and plain: shares nothing with bert_lamb, google-crc32c or protobuf.
"""

import struct
from pathlib import Path


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit: reflected polynomial 0x82F63B78, all ones before and after."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Rotated right by 15 bits, plus a constant."""
    rotated = crc // 2**15 + crc % 2**15 * 2**17
    return (rotated + 0xA282EAD8) % 2**32


def frame(data: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    crcs = [struct.pack("<I", masked(crc32c(part))) for part in (length, data)]
    return length + crcs[0] + data + crcs[1]


def read_records(path: Path) -> list[bytes]:
    rest, records = path.read_bytes(), []
    while rest:
        (length,) = struct.unpack_from("<Q", rest)
        record = rest[: length + 16]
        assert record == frame(record[12:-4])
        records.append(record[12:-4])
        rest = rest[len(record) :]
    return records


def read_example(data: bytes) -> dict[str, list[int] | list[float]]:
    """Features by name. Example{1: Features{1: map entry{1: name, 2: Feature}}}."""
    features = {}
    for entry in _fields(_only(data, 1), 1):
        name, feature = _only(entry, 1).decode(), _only(entry, 2)
        [(kind, body)] = _split(feature)
        assert isinstance(body, bytes)
        features[name] = _floats(body) if kind == 2 else _ints(body)
        assert kind in (2, 3), f"{name}: kind {kind}"
    return features


def write_example(features: dict[str, list[int] | list[float]], packed: bool = True) -> bytes:
    """The message of `features`; with `packed` off each number has a tag of its own."""
    entries = b""
    for name, values in features.items():
        if any(isinstance(value, float) for value in values):
            kind, wire = 2, [struct.pack("<f", value) for value in values]
        else:
            kind, wire = 3, [_varint(value % 2**64) for value in values]
        tag = b"\x0d" if kind == 2 else b"\x08"
        body = _field(1, b"".join(wire)) if packed else b"".join(tag + value for value in wire)
        entries += _field(1, _field(1, name.encode()) + _field(2, _field(kind, body)))
    return _field(1, entries)


def _ints(body: bytes) -> list[int]:
    numbers: list[int] = []
    for _, value in _split(body):
        if isinstance(value, bytes):  # packed
            while value:
                number, value = _read_varint(value)
                numbers.append(number)
        else:
            numbers.append(value)
    return [n - 2**64 if n >= 2**63 else n for n in numbers]


def _floats(body: bytes) -> list[float]:
    data = b"".join(value for _, value in _split(body) if isinstance(value, bytes))
    return [value for (value,) in struct.iter_unpack("<f", data)]


def _only(data: bytes, number: int) -> bytes:
    [field] = _fields(data, number)
    return field


def _fields(data: bytes, number: int) -> list[bytes]:
    return [value for n, value in _split(data) if n == number and isinstance(value, bytes)]


def _split(data: bytes) -> list[tuple[int, bytes | int]]:
    """Fields of a message: number, and the bytes (types 2 and 5) or the integer (type 0)."""
    found: list[tuple[int, bytes | int]] = []
    while data:
        tag, data = _read_varint(data)
        value: bytes | int
        if tag & 7 == 0:
            value, data = _read_varint(data)
        else:
            size = 4
            if tag & 7 == 2:
                size, data = _read_varint(data)
            assert len(data) >= size
            value, data = data[:size], data[size:]
        found.append((tag >> 3, value))
    return found


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _read_varint(data: bytes) -> tuple[int, bytes]:
    number = shift = 0
    for i, byte in enumerate(data):
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, data[i + 1 :]
    raise AssertionError("varint without end")
