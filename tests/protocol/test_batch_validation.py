"""The requirements on a produced batch before its records are looked at: codes and order of Kafka 3.9.

`refused_batches` has the table of faults.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.batch_validation import (
    TimestampRules,
    check_batch,
    check_container,
    validate_client_batch,
)
from protocol.errors import KafkaError
from protocol.record_batch import compute_crc, read_header
from tests.protocol.refused_batches import (
    BATCH,
    BYTES_MAX,
    CONTAINER,
    INVALID,
    ORDER,
    TIMESTAMP,
    good,
    rows,
)
from tests.protocol.sample_batches import captured_batches
from tests.support.raw_batches import LOG_APPEND_TIME, plain_batch

CAPTURED = captured_batches()
GOOD = plain_batch([b"one", b"two", b"three"], producer_id=7, producer_epoch=1, base_sequence=0)


def validate(records, *, produce_version=9, bytes_max=BYTES_MAX, **timestamps):
    return validate_client_batch(
        records, produce_version=produce_version, bytes_max=bytes_max, **timestamps
    )


@rows(CONTAINER + BATCH + ORDER)
def test_refusal(row):
    """Each fault has Kafka's code, the first fault in Kafka's order wins, and a message says why."""
    with pytest.raises(KafkaError) as caught:
        validate(row.records, produce_version=row.produce_version, bytes_max=row.bytes_max)
    assert caught.value.code is row.code
    assert caught.value.message


@rows(CONTAINER)
def test_container_faults_show_before_the_partition_is_looked_at(row):
    """A handler that asks for the container alone gets the same answer (spec 1.2, row 3)."""
    with pytest.raises(KafkaError) as caught:
        check_container(row.records, row.produce_version)
    assert caught.value.code is row.code


@rows(BATCH)
def test_batch_faults_pass_the_container_check(row):
    """A fault inside one whole batch is reported only once the partition is known to lead."""
    header = check_container(row.records, row.produce_version)
    with pytest.raises(KafkaError) as caught:
        check_batch(row.records, header, row.bytes_max)
    assert caught.value.code is row.code


@pytest.mark.parametrize("name", CAPTURED)
def test_real_clients_batches_pass(name):
    """Real clients' batches are valid, in every kind of buffer, and are returned as headers."""
    batch = CAPTURED[name]
    view = memoryview(b"xyz" + batch + b"xyz")[3:-3]
    for records in (batch, bytearray(batch), view):
        assert validate(records) == read_header(batch)


@pytest.mark.parametrize(
    ("records", "options"),
    [
        (good(), {"bytes_max": len(good())}),
        (CAPTURED["aiokafka-zstd"], {"produce_version": 7}),
        (good(producer_id=-1, producer_epoch=-1, base_sequence=-1), {}),
        (good(producer_id=-5, base_sequence=-5), {}),
        (good(base_sequence=2**31 - 1), {}),
        (good(partition_leader_epoch=77), {}),
        (good(producer_epoch=-1), {}),
        (good(attributes=0x10), {}),
        (good(attributes=0x40), {}),
        (good(base_timestamp=-1, max_timestamp=-1), {}),
        (good(payload=bytes.fromhex("0c 00 00 00 01 01 00" * 3)), {}),
    ],
)
def test_unusual_but_good(records, options):
    """Limits are inclusive, and what Kafka does not look at does not matter."""
    assert validate(records, **options) == read_header(records)


NOW_MS = 1_000_000
WINDOW = TimestampRules(before_max_ms=1000, after_max_ms=10)


@pytest.mark.parametrize(
    ("base", "largest", "is_good"),
    [
        (NOW_MS - 1000, NOW_MS + 10, True),
        (NOW_MS - 1001, NOW_MS, False),
        (NOW_MS, NOW_MS + 11, False),
        (-1, -1, True),
        (0, NOW_MS, False),
        (2**63 - 1, 2**63 - 1, False),
        (-(2**63), NOW_MS, False),
    ],
)
def test_timestamp_window(base, largest, is_good):
    """`before_max_ms` and `after_max_ms` are inclusive; a batch without timestamps passes."""
    records = good(base_timestamp=base, max_timestamp=largest)
    if is_good:
        validate(records, timestamp_rules=WINDOW, now_ms=NOW_MS)
        return
    with pytest.raises(KafkaError) as caught:
        validate(records, timestamp_rules=WINDOW, now_ms=NOW_MS)
    assert caught.value.code is TIMESTAMP


def test_log_append_time_topic_takes_any_timestamp():
    """If the broker sets the time, the client's does not matter, but its bit is refused."""
    rules = TimestampRules(log_append_time=True, before_max_ms=1, after_max_ms=1)
    validate(good(base_timestamp=5, max_timestamp=5), timestamp_rules=rules, now_ms=NOW_MS)
    with pytest.raises(KafkaError) as caught:
        validate(good(attributes=LOG_APPEND_TIME), timestamp_rules=rules, now_ms=NOW_MS)
    assert caught.value.code is TIMESTAMP


@pytest.mark.parametrize("name", ["librdkafka-none", "aiokafka-gzip"])
def test_every_truncation_is_refused(name):
    """Cut at any byte, a batch is not complete, so nothing of it is taken."""
    batch = CAPTURED[name]
    for size in range(len(batch)):
        with pytest.raises(KafkaError) as caught:
            validate(batch[:size])
        assert caught.value.code is INVALID


def test_every_flipped_byte_is_refused():
    """No changed byte passes, but those of the leader epoch, which the broker overwrites."""
    batch = CAPTURED["librdkafka-none"]
    for position in range(len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 0x41
        if 12 <= position < 16:
            validate(broken)
            continue
        with pytest.raises(KafkaError):
            validate(broken)


@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    """Random bytes raise KafkaError and nothing else."""
    with pytest.raises(KafkaError):
        validate(noise)


@given(st.integers(0, 60), st.binary(min_size=1, max_size=8), st.booleans())
def test_damaged_headers_are_refused_or_equal(position, noise, fixes_crc):
    """Bytes written over a header raise KafkaError, or give the resulting header."""
    broken = bytearray(GOOD.encode())
    broken[position : position + len(noise)] = noise
    broken = broken[: len(GOOD.encode())]
    if fixes_crc:
        struct.pack_into(">I", broken, 17, compute_crc(broken))
    try:
        header = validate(bytes(broken))
    except KafkaError:
        return
    assert header == read_header(broken)
    assert header.record_count == header.last_offset_delta + 1 > 0
    assert header.base_sequence >= 0 or header.producer_id < 0
