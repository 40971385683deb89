"""The requirements on a produced batch before its records are looked at: codes and order of Kafka 3.9.

`refused_batches` has the table of faults.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.batch_validation import (
    ANY_TIMESTAMP,
    TimestampRules,
    check_batch,
    check_container,
    validate_client_batch,
)
from echoless.protocol.errors import KafkaError
from echoless.protocol.known.batch import sound_header
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, compute_crc, read_header
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
        (good(attributes=0x80), {}),
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


NUMBERS = {
    "base_offset": st.sampled_from([0, 0, 0, 1, -1]),
    "magic": st.sampled_from([2, 2, 2, 0, 1, 3]),
    "attributes": st.one_of(
        st.just(0), st.integers(0, 7), st.integers(16, 23), st.integers(-(2**15), 2**15 - 1)
    ),
    "last_offset_delta": st.integers(-2, 3),
    "producer_id": st.sampled_from([-1, 7, -2]),
    "base_sequence": st.sampled_from([0, -1, 5]),
    "record_count": st.integers(-2, 4),
}


@given(
    fields=st.fixed_dictionaries(NUMBERS),
    usual=st.sets(st.sampled_from(list(NUMBERS))),
    version=st.sampled_from([3, 6, 7, 13]),
    bytes_max=st.sampled_from([BYTES_MAX, 70, 80]),
    end=st.sampled_from([None, None, None, -1, 40, 61]),
    behind=st.sampled_from([b"", b"", b"x", GOOD.encode()]),
    crc=st.sampled_from([None, None, 1]),
)
def test_what_is_sound_at_a_glance_passes_every_step(  # noqa: PLR0917 - drawn one by one
    fields, usual, version, bytes_max, end, behind, crc
):
    """`sound_header` accepts nothing that the steps refuse, and reads the same header."""
    batch = replace(GOOD, **{k: v for k, v in fields.items() if k not in usual}, crc=crc)
    data = batch.encode()[:end] + behind
    sound = sound_header(data, version, bytes_max, ANY_TIMESTAMP)
    if sound is not None:
        assert sound == validate(data, produce_version=version, bytes_max=bytes_max)


@pytest.mark.parametrize("transactional", [0, TRANSACTIONAL_BIT])
@pytest.mark.parametrize("codec", range(5))
def test_the_usual_batch_is_sound_at_a_glance(codec, transactional):
    """Otherwise every request would take the steps as well."""
    data = replace(GOOD, attributes=codec | transactional).encode()
    assert sound_header(data, 9, BYTES_MAX, ANY_TIMESTAMP) == read_header(data)
    assert sound_header(data, 9, BYTES_MAX, TimestampRules(after_max_ms=1)) is None
