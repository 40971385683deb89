"""Fetch requests that are known again mean what the general reader says."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.fetch_request import FetchPartition, FetchRequest, decode_fetch_request
from echoless.protocol.known.fetch import TOPICS_AT_ONCE, read_fetch_request
from echoless.protocol.known.memory import SeenBytes
from echoless.protocol.request_fields import ManyElementsError
from tests.protocol.test_fetch_request import SAMPLE, VERSIONS, encode, int64, requests

OFFSETS = st.one_of(int64, st.integers(0, 300))


def read(seen: SeenBytes, version: int, frame: bytes) -> FetchRequest | None:
    """Returns what the general reader finds, None for an error; fails if the quick one finds anything else."""
    try:
        found = decode_fetch_request(version, frame, 6)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_fetch_request(seen, version, frame, 6)
        return None
    known = read_fetch_request(seen, version, frame, 6)
    assert known == found
    assert type(known) is FetchRequest
    assert all(type(row) is FetchPartition for topic in known.topics for row in topic.partitions)
    return found


def usual(version: int, name: str, row: FetchPartition, session_epoch: int = -1) -> bytes:
    """A request as a consumer of one partition sends it."""
    topics = [(name, SAMPLE["topics"][0][1], [row], [])]
    body = encode(
        version, {**SAMPLE, "session_epoch": session_epoch, "topics": topics, "rack_id": ""}
    )
    if version < 7:
        return b"header" + body
    # kio writes what is usually left out: the topic forgotten, without a partition, and tags
    end = bytes(6 if version == 11 else 4) if version < 12 else b"\x01\x01\x00"
    place = body.rindex(struct.pack(">i", row.bytes_max)) + 4
    tags = b"\0\0" if version >= 12 else b""
    return b"header" + body[:place] + tags + end


@pytest.mark.parametrize("version", VERSIONS)
@given(name=st.text(max_size=150), offsets=st.lists(OFFSETS, min_size=3, max_size=3))
def test_the_usual_consumer_is_known(version, name, offsets):
    """Its requests after the first, whatever their offsets."""
    seen = SeenBytes()
    for count, offset in enumerate(offsets):
        row = FetchPartition(7, offset, 1_048_576, 5 if version >= 9 else -1, 2)
        assert read(seen, version, usual(version, name, row)) is not None
        assert len(seen.fetches) == 1, count


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=30)
def test_any_requests_are_read_alike(version, data):
    """One after another, with topics, partitions, forgotten topics, racks and tags."""
    seen = SeenBytes()
    first = data.draw(requests)
    frame = b"header" + encode(version, first)
    read(seen, version, frame)
    place = data.draw(st.integers(6, len(frame) - 1))
    read(seen, version, frame[:place] + data.draw(st.binary(max_size=9)) + frame[place:])
    read(seen, version, frame[:place] + data.draw(st.binary(max_size=9)) + frame[place + 1 :])
    read(seen, version, frame[:place])
    read(seen, version, b"header" + encode(version, data.draw(requests)))


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=30)
def test_hostile_bytes_are_read_alike(version, data):
    """Any change of a request like one that is known, any cut and any bytes more."""
    seen = SeenBytes()
    row = FetchPartition(7, data.draw(OFFSETS), 1_048_576, -1, -1)
    frame = usual(version, data.draw(st.text(max_size=12)), row)
    read(seen, version, frame)
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(6, len(frame) - 1))] = data.draw(st.integers(0, 255))
    read(seen, version, bytes(damaged))
    read(seen, version, bytes(damaged))
    place = data.draw(st.integers(6, len(frame)))
    more = data.draw(st.binary(max_size=12))
    for changed in (frame[:place], frame[:place] + more + frame[place:], frame + b"\0"):
        read(seen, version, changed)
        read(seen, version, changed)
    read(seen, version, frame)
    read(seen, data.draw(st.sampled_from(VERSIONS)), frame)


@pytest.mark.parametrize("forgets", [False, True])
def test_many_topics_are_read_beside_the_loop(forgets):
    """Named or forgotten, they would take tens of milliseconds; the general reader reads them."""
    many = struct.pack(">i", TOPICS_AT_ONCE + 1) + (bytes(6) * (TOPICS_AT_ONCE + 1))
    body = bytes(25) + (bytes(4) + many if forgets else many + bytes(4))
    with pytest.raises(ManyElementsError):
        read_fetch_request(SeenBytes(), 10, body, 0)
    found = decode_fetch_request(10, body, 0)
    assert len(found.forgotten if forgets else found.topics) == TOPICS_AT_ONCE + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_unusual_is_not_kept(version):
    """Two partitions, a forgotten topic, a long name, the next of a session: the reader alone reads them."""
    seen = SeenBytes()
    if version >= 7:
        read(seen, version, usual(version, "t", FetchPartition(7, 3, 9, -1, -1), session_epoch=3))
    read(seen, version, b"header" + encode(version, SAMPLE))
    long = usual(version, "t" * 500, FetchPartition(7, 3, 9, -1, -1))
    read(seen, version, long)
    assert len(seen.fetches) == (version >= 13)  # which has no name
    read(seen, version, memoryview(long))
    assert len(seen.fetches) == (version >= 13)
