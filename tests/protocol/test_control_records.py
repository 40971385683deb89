"""Transaction markers: Kafka's bytes, and what Kafka makes of other bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker, read_marker
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import compute_crc, read_header, seal_batch
from echoless.protocol.records import Record, build_batch, encode_records, read_records

_CAPTURED = Path(__file__).parents[1] / "golden" / "control_records.txt"
_COMMIT = EndMarker(MarkerType.COMMIT, 3)


def captured() -> Iterator[tuple[EndMarker, list[int], bytes]]:
    """Marker, the other fields, and the batch that Kafka wrote."""
    for line in _CAPTURED.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            name, *numbers, data = line.split()
            *fields, coordinator_epoch = map(int, numbers)
            yield EndMarker(MarkerType[name], coordinator_epoch), fields, bytes.fromhex(data)


def control_batch(*records: tuple[bytes | None, bytes | None]) -> bytes:
    """A control batch with records of this key and value."""
    header = read_header(build_marker(_COMMIT, 7, 0, 1000))
    rows = [Record(0, 1000, key, value) for key, value in records]
    header = header._replace(record_count=len(rows), last_offset_delta=max(len(rows) - 1, 0))
    return seal_batch(header, encode_records(rows) if rows else b"")


@pytest.mark.parametrize(("marker", "fields", "batch"), [*captured()])
def test_markers_are_kafkas_bytes(marker: EndMarker, fields: list[int], batch: bytes) -> None:
    """Kafka 3.9.1 writes the bytes that are built here, and they are read."""
    offset, timestamp, leader_epoch, producer_id, producer_epoch = fields
    built = build_marker(
        marker,
        producer_id,
        producer_epoch,
        timestamp,
        base_offset=offset,
        leader_epoch=leader_epoch,
    )
    assert built == batch
    assert read_marker(batch) == marker


@given(
    st.sampled_from(MarkerType),
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**62),
)
def test_what_is_built_is_read(
    kind: MarkerType, coordinator_epoch: int, producer_id: int, producer_epoch: int, time_ms: int
) -> None:
    """A marker survives its bytes; the batch is sealed, transactional, and without a sequence."""
    marker = EndMarker(kind, coordinator_epoch)
    batch = build_marker(marker, producer_id, producer_epoch, time_ms)
    header = read_header(batch)
    assert read_marker(batch) == marker
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert (header.size, header.crc) == (78, compute_crc(batch))
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("00010001", "000000000003", _COMMIT),
        ("7fff00010909", "000000000003", _COMMIT),
        ("00000001", "00010000000309", _COMMIT),
        ("00000000", "000000000003", EndMarker(MarkerType.ABORT, 3)),
        ("00000002", "", None),
        ("00000006", "0000", None),
        ("00000009", "000000000003", None),
        ("0000ffff", "000000000003", None),
    ],
)
def test_later_versions_and_other_types(key: str, value: str, expected: EndMarker | None) -> None:
    """As Kafka's classes: later versions are read as version 0, other types end no transaction."""
    assert read_marker(control_batch((bytes.fromhex(key), bytes.fromhex(value)))) == expected


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("ffff0000", "000000000003", "key of a control record has version -1"),
        ("000000", "000000000003", "key of a control record takes at least 4 bytes, it has 3"),
        ("", "000000000003", "key of a control record takes at least 4 bytes, it has 0"),
        ("00000001", "ffff00000003", "value of a transaction marker has version -1"),
        ("00000001", "0000000003", "value of a transaction marker takes at least 6 bytes, it has"),
        ("00000000", "", "value of a transaction marker takes at least 6 bytes, it has 0"),
    ],
)
def test_corrupt_control_records(key: str, value: str, problem: str) -> None:
    """An error names the field and its size, as where Kafka's classes raise InvalidRecordException."""
    with pytest.raises(DecodeError, match=problem):
        read_marker(control_batch((bytes.fromhex(key), bytes.fromhex(value))))


def test_null_key_and_null_value_are_corrupt() -> None:
    """A control record without a key or a value cannot be a marker."""
    for pair in ((None, b"\0\0\0\0\0\3"), (b"\0\0\0\1", None)):
        with pytest.raises(DecodeError, match="it has 0"):
            read_marker(control_batch(pair))


def test_empty_control_batch_ends_nothing() -> None:
    """Compaction leaves it where a whole transaction is gone."""
    assert read_marker(control_batch()) is None


def test_only_the_first_record_counts() -> None:
    """As in Kafka's producer state."""
    value = b"\0\0\0\0\0\3"
    batch = control_batch((b"\0\0\0\1", value), (b"\0\0\0\0", value))
    assert read_marker(batch) == _COMMIT


def test_every_cut_and_flipped_bit_is_a_marker_or_an_error() -> None:
    """Hostile bytes never raise anything but `DecodeError`."""
    batch = build_marker(_COMMIT, 7, 0, 1000)
    damaged = [batch[:size] for size in range(len(batch))]
    for place in range(len(batch) * 8):
        copy = bytearray(batch)
        copy[place // 8] ^= 1 << place % 8
        damaged.append(bytes(copy))
    for data in damaged:
        try:
            marker = read_marker(data)
        except DecodeError:
            continue
        assert marker is None or isinstance(marker, EndMarker)


def test_records_of_a_batch_are_encoded_alike() -> None:
    """`encode_records` writes what `build_batch` puts after the header."""
    records = [Record(0, 5, b"k", b"v"), Record(1, 9, None, None, (("h", b"x"),))]
    assert build_batch(records)[61:] == encode_records(records)


@given(st.sampled_from(MarkerType), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_a_number_follows_what_kafka_reads(kind: MarkerType, epoch: int, number: int) -> None:
    """The first six bytes of the value are Kafka's; the batch takes 8 bytes more."""
    marker = EndMarker(kind, epoch, number)
    batch = build_marker(marker, 7, 0, 1000)
    assert read_marker(batch) == marker
    assert read_header(batch).size == len(batch) == 86
    (record,) = read_records(batch)
    assert record.value == struct.pack(">hiq", 0, epoch, number)
