"""The batch header in place: golden bytes, cut bytes, flipped bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    LEADER_STAMP,
    BatchHeader,
    compute_crc,
    leader_stamp,
    read_header,
    seal_batch,
    walk,
    with_log_append_time,
)
from echoless.protocol.sequence import NO_SEQUENCE, SEQUENCE_MAX
from tests.protocol.sample_batches import captured_batches, captured_codec, header
from tests.support.raw_batches import Batch, plain_batch, split_log

CAPTURED = captured_batches()
SAMPLE = CAPTURED["librdkafka-none"]


def integers(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


HEADERS = st.builds(
    BatchHeader,
    integers(64),
    integers(32),
    integers(32),
    integers(8),
    st.integers(0, 2**32 - 1),
    integers(16),
    integers(32),
    integers(64),
    integers(64),
    integers(64),
    integers(16),
    integers(32),
    integers(32),
)


@given(HEADERS)
def test_header_survives_a_round_trip(original):
    """Every field reads back as it was written."""
    assert read_header(BATCH_HEADER.pack(*original)) == original


@pytest.mark.parametrize("name", CAPTURED)
def test_real_clients_batches_read(name):
    """Batches of librdkafka, aiokafka and kafka-python have the fields that the clients were given."""
    batch = CAPTURED[name]
    found = read_header(batch)
    producer_id = {"librdkafka": 4000, "aiokafka": 4001, "kafka-python": 4002}
    assert found.producer_id == producer_id[name.rpartition("-")[0]]
    assert found.size == len(batch)
    assert found.crc == compute_crc(batch)
    assert (found.magic, found.base_offset, found.record_count) == (2, 0, 5)
    assert found.last_offset_delta == 4
    assert (found.base_timestamp, found.max_timestamp) == (1700000000000, 1700000000100)
    assert found.codec_id == captured_codec(name)
    assert not found.is_transactional
    assert not found.is_control
    assert not found.is_log_append_time


def test_header_reads_in_the_middle_of_a_buffer():
    """A header is read in place, in any kind of buffer."""
    for buffer in (b"abc" + SAMPLE, bytearray(b"abc" + SAMPLE), memoryview(b"abc" + SAMPLE)):
        assert read_header(buffer, 3) == read_header(SAMPLE)


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_cut_header_is_refused(size):
    """A header cut at any byte is refused, and the message says how much is left."""
    with pytest.raises(DecodeError, match=f"{size} are left"):
        read_header(SAMPLE[:size])


@pytest.mark.parametrize(
    ("attributes", "codec", "log_append_time", "transactional", "control"),
    [
        (0x00, 0, False, False, False),
        (0x04, 4, False, False, False),
        (0x07, 7, False, False, False),
        (0x08, 0, True, False, False),
        (0x10, 0, False, True, False),
        (0x20, 0, False, False, True),
        (0x39, 1, True, True, True),
        (-1, 7, True, True, True),
    ],
)
def test_attribute_bits(attributes, codec, log_append_time, transactional, control):
    """Codec, timestamp type, transactional and control bits are in Kafka's positions."""
    found = header(0)._replace(attributes=attributes)
    assert found.codec_id == codec
    assert found.is_log_append_time is log_append_time
    assert found.is_transactional is transactional
    assert found.is_control is control


@pytest.mark.parametrize(
    ("base_sequence", "count", "last_sequence"),
    [
        (0, 1, 0),
        (5, 3, 7),
        (SEQUENCE_MAX, 1, SEQUENCE_MAX),
        (SEQUENCE_MAX - 10, 21, 9),
        (NO_SEQUENCE, 3, NO_SEQUENCE),
    ],
)
def test_last_sequence(base_sequence, count, last_sequence):
    """The last record's sequence wraps, and a batch without sequences has none."""
    assert header(base_sequence, count).last_sequence == last_sequence


def test_offsets_count_from_the_base_offset():
    """`last_offset` belongs to the batch, `next_offset` to what follows it."""
    found = header(0, 3)._replace(base_offset=100)
    assert (found.last_offset, found.next_offset) == (102, 103)


@pytest.mark.parametrize(("producer_id", "expected"), [(0, True), (-1, False), (-5, False)])
def test_any_negative_producer_id_is_none(producer_id, expected):
    """Kafka counts -1 and every other negative id as not idempotent."""
    assert header(0)._replace(producer_id=producer_id).has_producer_id is expected


def test_walk_yields_each_batch_with_its_position():
    """A log is walked batch by batch."""
    log = b"".join(CAPTURED.values())
    found = list(walk(log))
    assert [each.crc for _, each in found] == [read_header(each).crc for each in CAPTURED.values()]
    assert [log[position : position + each.size] for position, each in found] == list(
        CAPTURED.values()
    )


def test_walk_stops_before_an_incomplete_batch():
    """Cut at every byte, the second batch is left out and the first stays."""
    for size in range(len(SAMPLE), 2 * len(SAMPLE)):
        assert [position for position, _ in walk((SAMPLE + SAMPLE)[:size])] == [0]


@pytest.mark.parametrize(
    ("position", "bytes_", "message"),
    [(16, b"\x01", "magic 1"), (8, struct.pack(">i", 48), "48"), (8, b"\xff" * 4, "-1")],
)
def test_walk_refuses_what_is_no_batch(position, bytes_, message):
    """Another magic or an impossible length raises, naming what was found."""
    broken = bytearray(SAMPLE)
    broken[position : position + len(bytes_)] = bytes_
    with pytest.raises(DecodeError, match=message):
        list(walk(broken))


@settings(max_examples=50)
@given(st.integers(21, len(SAMPLE) - 1), st.integers(1, 255))
def test_crc_notices_every_flipped_byte(position, flip):
    """From the attributes on, no changed byte goes unnoticed."""
    broken = bytearray(SAMPLE)
    broken[position] ^= flip
    assert compute_crc(broken) != read_header(broken).crc


def test_crc_takes_any_buffer():
    """Bytes, bytearray and a view into a larger buffer give the same CRC."""
    view = memoryview(b"xx" + SAMPLE)[2:]
    assert compute_crc(SAMPLE) == compute_crc(bytearray(SAMPLE)) == compute_crc(view)


def test_leader_stamp_leaves_the_crc_valid():
    """The leader writes offset and epoch over the first 16 bytes, and nothing the CRC covers."""
    stamp = leader_stamp(read_header(SAMPLE), 12345, 7)
    stamped = stamp + SAMPLE[LEADER_STAMP.size :]
    found = read_header(stamped)
    assert (found.base_offset, found.partition_leader_epoch) == (12345, 7)
    assert found[3:] == read_header(SAMPLE)[3:]
    assert found.size == len(SAMPLE)
    assert compute_crc(stamped) == found.crc


def test_log_append_time_is_written_with_a_new_crc():
    """The copy says when it was appended, its CRC holds, and the original is untouched."""
    original = bytes(SAMPLE)
    copy = with_log_append_time(SAMPLE, read_header(SAMPLE), 1234)
    found = read_header(copy)
    assert (found.is_log_append_time, found.max_timestamp) == (True, 1234)
    assert compute_crc(copy) == found.crc
    assert found.base_timestamp == read_header(SAMPLE).base_timestamp
    assert original == SAMPLE


@given(HEADERS, st.binary(max_size=50))
def test_sealed_batch_has_its_length_and_crc(original, records):
    """Whatever the header said, a sealed batch can be split and checked by an independent reader."""
    sealed = seal_batch(original, records)
    (stored,) = split_log(sealed)
    assert stored.crc_is_right
    assert stored.data == sealed
    found = read_header(sealed)
    assert found._replace(batch_length=0, crc=0) == original._replace(batch_length=0, crc=0)


def test_independent_writer_agrees():
    """The oracle's own encoder and `read_header` mean the same fields."""
    batch = Batch(
        payload=b"payload",
        record_count=3,
        producer_id=2**62,
        producer_epoch=12,
        base_sequence=99,
        base_timestamp=-5,
        max_timestamp=77,
        attributes=0x13,
        base_offset=2**40,
        partition_leader_epoch=6,
    )
    found = read_header(batch.encode())
    for name in ("producer_id", "producer_epoch", "base_sequence", "base_timestamp"):
        assert getattr(found, name) == getattr(batch, name)
    for name in ("max_timestamp", "attributes", "base_offset", "partition_leader_epoch"):
        assert getattr(found, name) == getattr(batch, name)
    assert read_header(plain_batch([b"x"]).encode()).record_count == 1
