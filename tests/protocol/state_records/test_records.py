"""Records of `__consumer_offsets`: every version is read, and no bytes end a reader but with `DecodeError`."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.classic_group_value import (
    ClassicMemberValue,
    GroupValue,
    read_group_value,
    write_group_value,
)
from echoless.protocol.state_records.group_keys import (
    OffsetKey,
    OtherKey,
    read_key,
    write_offset_key,
)
from echoless.protocol.state_records.offset_value import (
    OffsetValue,
    read_offset_value,
    write_offset_value,
)
from echoless.protocol.state_records.partitioner import partition_of
from echoless.protocol.state_records.subscription import subscribed_topics

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=12)
MEMBERS = st.builds(
    ClassicMemberValue, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, st.binary(), st.binary()
)
GROUPS = st.builds(
    GroupValue,
    TEXT,
    INT32,
    st.none() | TEXT,
    st.none() | TEXT,
    INT64,
    st.lists(MEMBERS, max_size=3).map(tuple),
    st.booleans(),
)
READERS = (read_key, read_offset_value, read_group_value)


@given(GROUPS)
def test_groups_come_back(value: GroupValue):
    """Any group is read as it was written, in both versions that are written."""
    assert read_group_value(write_group_value(value)) == value


@given(TEXT, INT64, INT32, INT64)
def test_offsets_come_back(metadata: str, offset: int, leader_epoch: int, timestamp: int):
    """Any offset is read as it was written; one with a time to expire at loses its leader epoch, as in Kafka."""
    value = OffsetValue(offset, leader_epoch, metadata, timestamp)
    assert read_offset_value(write_offset_value(value)) == value
    expiring = value._replace(leader_epoch=-1, expire_timestamp=5)
    assert read_offset_value(write_offset_value(expiring)) == expiring


@given(TEXT, TEXT, INT32)
def test_keys_come_back(group_id: str, topic: str, partition: int):
    """Any key is read as it was written; version 0 is version 1."""
    key = OffsetKey(group_id, topic, partition)
    packed = write_offset_key(key)
    assert read_key(packed) == read_key(b"\x00\x00" + packed[2:]) == key


@pytest.mark.parametrize(
    ("packed", "value"),
    [
        (b"\0\0" + struct.pack(">qh1sq", 5, 1, b"m", 9), OffsetValue(5, -1, "m", 9)),
        (b"\0\1" + struct.pack(">qh1sqq", 5, 1, b"m", 9, 11), OffsetValue(5, -1, "m", 9, 11)),
        (b"\0\2" + struct.pack(">qh1sq", 5, 1, b"m", 9), OffsetValue(5, -1, "m", 9)),
        (b"\0\3" + struct.pack(">qih1sq", 5, 3, 1, b"m", 9), OffsetValue(5, 3, "m", 9)),
        (b"\0\4" + struct.pack(">qiB1sqB", 5, 3, 2, b"m", 9, 0), OffsetValue(5, 3, "m", 9)),
    ],
)
def test_every_version_of_an_offset_is_read(packed: bytes, value: OffsetValue):
    """Old versions lack the leader epoch; version 1 has a time to expire at."""
    assert read_offset_value(packed) == value


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_a_group_is_read(version: int):
    """Old versions lack the rebalance timeout (the session's), the time and the instance id."""
    packed = struct.pack(">hh1sih1sh1s", version, 1, b"t", 6, 1, b"p", 1, b"m")
    packed += struct.pack(">q", 77) if version >= 2 else b""
    packed += struct.pack(">ih1s", 1, 1, b"m")
    packed += struct.pack(">h1s", 1, b"i") if version >= 3 else b""
    packed += struct.pack(">h1sh1s", 1, b"c", 1, b"h")
    packed += struct.pack(">i", 60) if version >= 1 else b""
    packed += struct.pack(">ii1si1s", 10, 1, b"s", 1, b"a")
    member = ClassicMemberValue(
        *("m", "i" if version >= 3 else None, "c", "h"),
        *(60 if version >= 1 else 10, 10, b"s", b"a"),
    )
    value = GroupValue("t", 6, "p", "m", 77 if version >= 2 else -1, (member,))
    assert read_group_value(packed) == value


def test_other_types_are_named_and_newer_versions_refused():
    """A record of a share group is skipped by its number; an unknown version of a value is not guessed at."""
    assert read_key(b"\x00\x0brest") == OtherKey(11)
    with pytest.raises(DecodeError, match="version 5"):
        read_offset_value(b"\x00\x05")
    with pytest.raises(DecodeError, match="version 5"):
        read_group_value(b"\x00\x05")


@pytest.mark.parametrize("reader", READERS)
@given(data=st.binary(max_size=60), version=st.integers(0, 4))
def test_any_bytes_are_read_or_refused(
    reader: Callable[[bytes], object], data: bytes, version: int
):
    """Hostile lengths, cut fields and text that is not UTF-8 are a `DecodeError`, and take no memory."""
    for candidate in (data, struct.pack(">h", version) + data):
        try:
            reader(candidate)
        except DecodeError:
            continue


@given(GROUPS, st.data())
def test_a_record_that_is_cut_off_is_refused(value: GroupValue, data: st.DataObject):
    """No beginning of a record passes for a record."""
    packed = write_group_value(value)
    end = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(DecodeError):
        read_group_value(packed[:end])


@pytest.mark.parametrize(
    ("group_id", "hashed"),
    [("orders", 1008770331), ("my-group", 1906497762), ("", 0), ("é", 233), ("😀", 1772899)],
)
def test_a_group_has_the_partition_that_kafka_gives_it(group_id: str, hashed: int):
    """Java's `String.hashCode`, over UTF-16 units."""
    for count in (1, 8, 50):
        assert partition_of(group_id, count) == hashed % count


def test_the_smallest_hash_counts_as_nothing():
    """|-2^31| does not exist in 32 bits: Kafka takes 0."""
    assert partition_of("polygenelubricants", 50) == 0


def test_subscriptions_are_read_whatever_follows():
    """Later versions only add fields; bytes of another format, or too many topics, are no subscription."""
    packed = b"\x00\x03\x00\x00\x00\x02\x00\x01a\x00\x02bc and more"
    assert subscribed_topics(packed) == ("a", "bc")
    for flawed in (b"", b"\xff\xff\x00\x00\x00\x00", b"\x00\x01\x00\x00\xff\xff", packed[:9]):
        assert subscribed_topics(flawed) is None
    assert subscribed_topics(b"\x00\x01\x00\x00\x27\x11" + b"\x00\x00" * 10_001) is None
