"""Reading records and building batches, against real clients and an independent writer."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.batch_validation import validate_client_batch
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import HEADER_SIZE, Codec, read_header
from echoless.protocol.records import Record, build_batch, read_records
from tests.protocol.sample_batches import CAPTURED_RECORDS, captured_batches, captured_codec
from tests.support.raw_batches import Batch, plain_batch, varint

CAPTURED = captured_batches()
TIMESTAMPS = st.integers(-1, 2**45)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        TIMESTAMPS,
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=80),
        HEADERS.map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def at(base_offset, records):
    """The records at the offsets that a batch gives them."""
    return [
        record._replace(offset=offset) for offset, record in enumerate(records, start=base_offset)
    ]


@pytest.mark.parametrize("name", CAPTURED)
def test_real_clients_records_read(name):
    """Keys, nulls, headers and timestamps come out as real clients put them in."""
    assert read_records(CAPTURED[name]) == CAPTURED_RECORDS


@pytest.mark.parametrize("client", ["librdkafka", "aiokafka", "kafka-python"])
def test_built_batch_equals_real_clients(client):
    """Uncompressed, the same records and producer give byte for byte what the client sent."""
    theirs = CAPTURED[f"{client}-none"]
    header = read_header(theirs)
    ours = build_batch(
        CAPTURED_RECORDS,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    assert _without_leader_epoch(ours) == _without_leader_epoch(theirs)


def _without_leader_epoch(batch):
    """librdkafka sends 0 there, others -1; the leader overwrites it."""
    return batch[:12] + batch[16:]


@settings(max_examples=40)
@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_round_trip(records, codec, base_offset):
    """A built batch reads back, with offsets counted from the base offset."""
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert read_records(batch) == at(base_offset, records)


@settings(max_examples=40)
@given(RECORDS, st.sampled_from(list(Codec)))
def test_built_batches_are_valid(records, codec):
    """A broker takes what we build, and its header sums the records up."""
    batch = build_batch(
        records,
        codec=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
        is_transactional=True,
    )
    header = validate_client_batch(batch, produce_version=9, bytes_max=10**7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 9)
    assert (header.codec_id, header.is_transactional) == (codec, True)
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("name", [name for name in CAPTURED if not name.endswith("none")])
def test_other_clients_read_what_we_compress(name):
    """aiokafka's reader, which is not ours, gets the same records out of every codec."""
    from aiokafka.record.default_records import DefaultRecordBatch

    batch = build_batch(CAPTURED_RECORDS, codec=captured_codec(name))
    found = [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        for each in DefaultRecordBatch(batch)
    ]
    assert found == CAPTURED_RECORDS


def test_a_batch_may_begin_without_a_timestamp():
    """-1 on the first record stays -1 (aiokafka's builder gives it the second one's)."""
    records = at(0, [Record(0, -1, None, b"a"), Record(0, 5, None, b"b")])
    assert read_records(build_batch(records)) == records


def test_an_empty_batch_is_not_built():
    """Only compaction makes batches without records."""
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_log_append_time_stands_for_every_timestamp():
    """With the log-append-time bit the batch's max timestamp is each record's."""
    batch = plain_batch([b"a", b"b"], timestamp=7)
    batch.attributes, batch.max_timestamp = 0x08, 99
    assert [record.timestamp for record in read_records(batch.encode())] == [99, 99]


def test_batch_emptied_by_compaction_has_no_records():
    """A log that another system compacted may hold a batch without records."""
    assert read_records(Batch(payload=b"", record_count=0, last_offset_delta=4).encode()) == []


def test_header_key_that_is_no_utf8_is_read_with_replacements():
    """As in Java, bytes that are not UTF-8 do not make a record unreadable."""
    fields = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(1)
    fields += varint(1) + b"\xff" + varint(-1)
    (record,) = read_records(Batch(payload=varint(len(fields)) + fields, record_count=1).encode())
    assert record.headers == (("�", None),)


def test_every_truncation_is_refused():
    """A batch cut at any byte raises, whether its header or its records are cut."""
    batch = CAPTURED["librdkafka-none"]
    for size in range(len(batch)):
        with pytest.raises(DecodeError):
            read_records(batch[:size])


def test_bytes_behind_a_batch_are_refused():
    """`read_records` takes one batch, whole."""
    with pytest.raises(DecodeError, match="548"):
        read_records(CAPTURED["librdkafka-none"] + b"\0")


def test_decompression_is_bounded():
    """A batch may not grow beyond what the caller allows."""
    batch = build_batch([Record(0, 1, None, bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(DecodeError, match="50000"):
        read_records(batch, bytes_max=50_000)


@given(st.data())
def test_damage_raises_decode_error_and_nothing_else(data):
    """Any bytes may follow a good header."""
    batch = bytearray(CAPTURED[data.draw(st.sampled_from(sorted(CAPTURED)))])
    position = data.draw(st.integers(HEADER_SIZE - 4, len(batch) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=10))
    batch[position : position + len(noise)] = noise[: len(batch) - position]
    with contextlib.suppress(DecodeError):
        read_records(batch)
