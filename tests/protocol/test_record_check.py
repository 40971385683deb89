"""Opening a produced batch: what passes, what is refused, and that hostile bytes end there."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol import records as records_module
from echoless.protocol.compression import decompress
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.record_batch import (
    HEADER_SIZE,
    RECORD_BYTES_MIN,
    RECORDS_MAX,
    Codec,
    compute_crc,
    read_header,
)
from echoless.protocol.record_check import (
    DECOMPRESSED_AT_ONCE_BYTES,
    FIELDS_RECORDS_MAX,
    FRAMED_AT_ONCE_MAX,
    Opening,
    _walk_fields,
    _walk_lengths,
    check_all,
    check_at_once,
    check_framing,
    check_records,
)
from echoless.protocol.records import Record, build_batch, read_records
from echoless.protocol.varint import read_varint
from tests.hostile.bombs import EMPTY, batch_of, empty_records, many_headers
from tests.protocol.refused_batches import (
    COMPRESSED,
    FIELDS,
    FRAMING,
    THREE,
    UNUSUAL_RECORDS,
    rows,
)
from tests.protocol.sample_batches import captured_batches
from tests.support.raw_batches import Batch, records, varint

CAPTURED = captured_batches()
DEPTHS = pytest.mark.parametrize("check", [check_framing, check_records])


def refuses(check, batch):
    """Whether `check` refuses, with the code that Kafka has for broken records and a reason."""
    try:
        check(batch, read_header(batch))
    except KafkaError as error:
        return error.code is ErrorCode.INVALID_RECORD and error.message != ""
    return False


@DEPTHS
@pytest.mark.parametrize("name", CAPTURED)
def test_real_clients_batches_pass(check, name):
    """Real clients' batches are whole, at both depths and from any buffer."""
    batch = CAPTURED[name]
    check(batch, read_header(batch))
    check(memoryview(b"x" + batch)[1:], read_header(batch))


@DEPTHS
@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 63, 64, 8180, 8190, 8192, 70000, 2_000_000])
def test_every_length_of_length_passes(check, size):
    """Records whose lengths take one byte to four are walked alike."""
    batch = build_batch([Record(0, 1, None, bytes(size)), Record(0, 2, bytes(size), b"")])
    check(batch, read_header(batch))


@DEPTHS
def test_many_records_pass(check):
    """Offset deltas of one byte to three, timestamp deltas of one byte to ten."""
    batch = many_records()
    check(batch, read_header(batch))


@functools.cache
def many_records():
    return build_batch([Record(0, 1 << n % 63, b"k", b"v") for n in range(8200)])


@DEPTHS
@rows(FRAMING + COMPRESSED)
def test_broken_framing_is_refused(check, row):
    """Count, lengths and bytes must fit together at both depths, and compressed data decompress."""
    assert refuses(check, row.records)


@rows(FIELDS)
def test_broken_fields_are_refused(row):
    """Every field stays inside its record, and offset deltas count from 0."""
    assert refuses(check_records, row.records)


@pytest.mark.parametrize("payload", UNUSUAL_RECORDS)
def test_unusual_records_pass(payload):
    """Everything that Kafka accepts as a record, however odd, is one."""
    assert not refuses(check_records, Batch(payload=payload, record_count=1).encode())


@DEPTHS
@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_compressed_is_walked(check, codec):
    """A compressed batch with a record too many is refused as an uncompressed one is."""
    batch = bytearray(build_batch([Record(0, 1, None, b"v")] * 3, codec=codec))
    batch[60] = 2
    assert refuses(check, bytes(batch))


@DEPTHS
def test_decompression_is_bounded(check):
    """A batch that grows beyond what the broker allows is refused."""
    batch = build_batch([Record(0, 1, None, bytes(100_000))], codec=Codec.LZ4)
    check(batch, read_header(batch), 101_000)
    with pytest.raises(KafkaError, match="99000"):
        check(batch, read_header(batch), 99_000)


def reads_with_consecutive_offsets(batch):
    """The slow truth: every record reads, null has the length -1, and the offsets are what the header says."""
    lengths = []

    def noted(body, position):
        lengths.append(read_varint(body, position)[0])
        return read_bytes(body, position)

    read_bytes = records_module._read_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_module, "_read_bytes", noted)
        try:
            found = read_records(batch)
        except DecodeError:
            return False
    return min(lengths, default=0) >= -1 and [each.offset for each in found] == list(
        range(len(found))
    )


def damaged_batches(example):
    """Three small records with bytes written over them, or numbers of any width put between."""
    payload = bytearray(example.draw(st.sampled_from([THREE, records([b""] * 5)])))
    for _ in range(example.draw(st.integers(1, 3))):
        position = example.draw(st.integers(0, len(payload)))
        noise = example.draw(st.binary(max_size=4) | st.integers(-(2**63), 2**63 - 1).map(varint))
        overwritten = example.draw(st.integers(0, 3))
        payload[position : position + overwritten] = noise
    return Batch(payload=bytes(payload), record_count=example.draw(st.integers(1, 6))).encode()


def check_against_reading(example):
    batch = damaged_batches(example)
    assert compute_crc(batch) == read_header(batch).crc
    passes = not refuses(check_records, batch)
    assert passes == reads_with_consecutive_offsets(batch)
    assert not passes or not refuses(check_framing, batch)


@settings(max_examples=100)
@given(st.data())
def test_check_passes_exactly_what_reads(example):
    """The fast walk and the plain reader agree on every damage, and the shallow walk is weaker."""
    check_against_reading(example)


@pytest.mark.slow
@settings(max_examples=5_000)
@given(st.data())
def test_check_passes_exactly_what_reads_for_long(example):
    """The same, on many more damages."""
    check_against_reading(example)


def opened(batch: bytes, opening: Opening) -> bool:
    """Whether the batch is stored, after both steps of `broker/records/produce.py`."""
    header = read_header(batch)
    try:
        if not check_at_once(batch, header, opening):
            check_all(batch, header, opening)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_RECORD:
            raise
        return False
    return True


@st.composite
def expanding_batches(draw: st.DrawFn) -> bytes:
    """A few records or many, each codec, counts that are honest or not, first batches or later."""
    record = draw(st.sampled_from([EMPTY, b"\x0c\0\0\0\1\1\0", records([b"x" * 50])]))
    count = draw(st.sampled_from([1, 2, 100, 3000, 9000, 30_000]))
    claimed = draw(st.sampled_from([count, count, count + 1, 2**20, 2**20 + 1, 100_000_000]))
    sequence = draw(st.sampled_from([-1, 0, 5]))
    return batch_of(
        record * count, claimed, draw(st.sampled_from(list(Codec))), base_sequence=sequence
    )


@settings(max_examples=60)
@given(st.lists(expanding_batches(), max_size=6), st.integers(0, 400_000))
def test_what_is_opened_for_a_request_is_bounded(batches, decompressed_max):
    """Whatever a request sends: each record of a stored batch has its bytes, and all fit the bound."""
    opening = Opening()
    opening.decompressed_bytes = decompressed_max
    stored = [batch for batch in batches if opened(batch, opening)]
    expanded = 0
    for batch in stored:
        header = read_header(batch)
        data = decompress(header.codec_id, memoryview(batch)[HEADER_SIZE:])
        assert header.record_count * RECORD_BYTES_MIN <= len(data)
        if header.codec_id != Codec.NONE:
            expanded += len(data)
    assert expanded <= decompressed_max
    assert opening.decompressed_bytes == decompressed_max - expanded


@settings(max_examples=60)
@given(expanding_batches())
def test_both_steps_together_decide_as_one(batch):
    """A batch passes at once or in a thread exactly if it passes the whole check."""
    header = read_header(batch)
    is_read = header.base_sequence == 0 and header.record_count <= FIELDS_RECORDS_MAX
    whole = check_records if is_read else check_framing
    is_bounded = header.codec_id == Codec.NONE or header.record_count <= RECORDS_MAX
    assert opened(batch, Opening()) == (is_bounded and not refuses(whole, batch))


@settings(max_examples=60)
@given(st.lists(expanding_batches(), min_size=1, max_size=6))
def test_little_is_opened_at_once(batches):
    """The records walked and the bytes expanded on the loop are bounded for the whole request."""
    opening = Opening()
    walked = 0
    for batch in batches:
        header = read_header(batch)
        before = opening.framed_at_once
        try:
            check_at_once(batch, header, opening)
        except KafkaError:
            walked += before - opening.framed_at_once
            continue
        walked += before - opening.framed_at_once
    assert 0 <= walked <= FRAMED_AT_ONCE_MAX
    assert opening.decompressed_at_once > -DECOMPRESSED_AT_ONCE_BYTES


@DEPTHS
@pytest.mark.parametrize("length", [b"\0", b"\x80\0", b"\x0a", b"\x8a\0", b"\x80\x80\0"])
def test_a_record_shorter_than_any_is_refused(check, length):
    """Its length in one byte or more: nothing shorter than its six fields is a record."""
    assert refuses(check, batch_of(length * 3 + b"\1" * 30, 3, Codec.NONE))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_million_claimed_records_of_no_length_are_refused(codec):
    """3 KB that once held the loop for a minute, and were stored."""
    assert not opened(empty_records(codec), Opening())


def test_headers_of_a_first_batch_are_bounded():
    """They are the one thing inside a record that is looked at one by one."""
    assert opened(many_headers(1000, Codec.ZSTD), Opening())
    batch = many_headers(1000, Codec.ZSTD)
    with pytest.raises(DecodeError, match="headers"):
        _walk_fields(
            decompress(Codec.ZSTD, batch[HEADER_SIZE:]).replace(b"\xd0\x0f", b"\xff\xff\x7f"), 1, 0
        )


def padded(number: bytes) -> bytes:
    """The same varint with a byte more than it needs."""
    return bytes((*number[:-1], number[-1] | 0x80, 0))


@given(
    lengths=st.lists(st.integers(-3, 300) | st.integers(8000, 20_000) | st.just(2**20), max_size=6),
    count=st.integers(1, 7),
    cut=st.integers(0, 3),
    encoded=st.sampled_from([varint, lambda length: padded(varint(length))]),
)
def test_lengths_are_walked_in_place_as_varints_are_read(lengths, count, cut, encoded):
    """The walk reads usual lengths in place, and finds the end, or the fault, that reading each varint finds."""
    data = b"".join(encoded(length) + bytes(max(length, 0)) for length in lengths)
    data = data[: len(data) - cut]
    batch = bytes(HEADER_SIZE) + data
    found = outcome(_walk_lengths, batch, count, HEADER_SIZE)
    assert found == outcome(walk_plainly, batch, count, HEADER_SIZE)


def walk_plainly(data, record_count, position):
    """The position after the last record."""
    for _ in range(record_count):
        length, position = read_varint(data, position)
        if length < 6:
            raise DecodeError
        position += length
    return position


def outcome(walk, *arguments):
    """The position; None for a fault, which is a `DecodeError`, or an `IndexError` past the data."""
    try:
        return walk(*arguments)
    except (DecodeError, IndexError):
        return None
