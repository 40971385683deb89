"""Fetch requests that are known at a glance mean what their reader says."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol import known_fetch
from echoless.protocol.errors import DecodeError
from echoless.protocol.fetch_request import FetchPartition, FetchRequest, decode_fetch_request
from echoless.protocol.known_fetch import read_fetch_request
from tests.protocol.test_fetch_request import SAMPLE, VERSIONS, encode, int64, requests

OFFSETS = st.one_of(int64, st.integers(0, 300))


def forget() -> None:
    known_fetch._BODIES.clear()
    known_fetch._SIZES.clear()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    forget()
    yield
    forget()


def read(version: int, frame: bytes) -> FetchRequest | None:
    """Returns what the reader finds, None for an error; fails if the glance finds anything else."""
    try:
        found = decode_fetch_request(version, frame, 6)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_fetch_request(version, frame, 6)
        return None
    seen = read_fetch_request(version, frame, 6)
    assert seen == found
    assert type(seen) is FetchRequest
    assert all(type(row) is FetchPartition for topic in seen.topics for row in topic.partitions)
    return found


def usual(version: int, name: str, row: FetchPartition) -> bytes:
    """A request as a consumer of one partition sends it."""
    topics = [(name, SAMPLE["topics"][0][1], [row], [])]
    body = encode(version, {**SAMPLE, "topics": topics, "rack_id": ""})
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
    forget()
    for count, offset in enumerate(offsets):
        row = FetchPartition(7, offset, 1_048_576, 5 if version >= 9 else -1, 2)
        assert read(version, usual(version, name, row)) is not None
        assert len(known_fetch._BODIES) == 1, count


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=30)
def test_any_requests_are_read_alike(version, data):
    """One after another, with topics, partitions, forgotten topics, racks and tags."""
    first = data.draw(requests)
    frame = b"header" + encode(version, first)
    read(version, frame)
    place = data.draw(st.integers(6, len(frame) - 1))
    read(version, frame[:place] + data.draw(st.binary(max_size=9)) + frame[place:])
    read(version, frame[:place] + data.draw(st.binary(max_size=9)) + frame[place + 1 :])
    read(version, frame[:place])
    read(version, b"header" + encode(version, data.draw(requests)))


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=30)
def test_hostile_bytes_are_read_alike(version, data):
    """Any change of a request like one that is known, any cut and any bytes more."""
    row = FetchPartition(7, data.draw(OFFSETS), 1_048_576, -1, -1)
    frame = usual(version, data.draw(st.text(max_size=12)), row)
    read(version, frame)
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(6, len(frame) - 1))] = data.draw(st.integers(0, 255))
    read(version, bytes(damaged))
    read(version, bytes(damaged))
    place = data.draw(st.integers(6, len(frame)))
    more = data.draw(st.binary(max_size=12))
    for changed in (frame[:place], frame[:place] + more + frame[place:], frame + b"\0"):
        read(version, changed)
        read(version, changed)
    read(version, frame)
    read(data.draw(st.sampled_from(VERSIONS)), frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_unusual_is_not_kept(version):
    """Two partitions, a forgotten topic, a long name: the reader alone reads them."""
    read(version, b"header" + encode(version, SAMPLE))
    long = usual(version, "t" * 500, FetchPartition(7, 3, 9, -1, -1))
    read(version, long)
    assert len(known_fetch._BODIES) == (version >= 13)  # which has no name
    read(version, memoryview(long))
    assert len(known_fetch._BODIES) == (version >= 13)


def test_the_bodies_are_bounded():
    """They are forgotten when they are too many."""
    for number in range(known_fetch._BODIES_MAX + 5):
        read(11, usual(11, str(number), FetchPartition(7, 3, 9, -1, -1)))
    assert len(known_fetch._BODIES) == 5
