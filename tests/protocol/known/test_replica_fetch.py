"""The usual fetch of a follower beside the general reader."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import KafkaError
from echoless.protocol.known.replica_fetch import READ_AT_ONCE_BYTES, read_usual_replica_fetch
from echoless.protocol.native.codec import encode_message, locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replication import (
    WAIT_MS_MAX,
    ReplicaFetch,
    ReplicaWanted,
)
from tests.protocol.native.test_replication import ANYTHING, WANTED, places, put

MESSAGES = st.builds(
    ReplicaFetch,
    broker_id=st.integers(0, 2**31 - 1),
    broker_epoch=st.integers(-(2**63), 2**63 - 1),
    max_wait_ms=st.integers(0, WAIT_MS_MAX),
    min_bytes=st.integers(0, 2**31 - 1),
    bytes_max=st.integers(1, 2**31 - 1),
    partitions=st.lists(WANTED, max_size=5),
)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
USUAL: dict[str, Any] = {
    **ReplicaFetch(
        broker_id=2,
        broker_epoch=7,
        max_wait_ms=500,
        min_bytes=1,
        bytes_max=1000,
        partitions=[ReplicaWanted("t", uuid.UUID(int=5), index, 3, 10, 2) for index in range(2)],
    ).to_message(),
    "correlation_id": 9,
}


def read_by_steps(frame: bytes) -> tuple[Any, ReplicaFetch]:
    """Reads a frame as the general reader does. Raises `KafkaError`, `DecodeError`."""
    fields = Fields("replica_fetch", locate_fields(frame))
    assert fields.text("type") == "replica_fetch"
    number = fields.integer("correlation_id", least=-(2**63), most=2**64 - 1)
    return number, ReplicaFetch.read(fields)


def check_glance(frame: bytes) -> None:
    """Fails unless the glance knows nothing, or the same as the steps."""
    usual = read_usual_replica_fetch(frame)
    if usual is not None:
        assert tuple(usual) == read_by_steps(frame)


@given(MESSAGES, NUMBERS)
def test_what_followers_send_is_known_at_a_glance(message: ReplicaFetch, number: int) -> None:
    """Whatever the numbers and names, in the order in which a follower packs them."""
    frame = encode_message({**message.to_message(), "correlation_id": number})
    assert read_usual_replica_fetch(frame) == (number, message)
    check_glance(frame)


@given(st.sampled_from(places(USUAL)), ANYTHING)
def test_the_glance_accepts_nothing_that_the_steps_refuse(place: Any, value: Any) -> None:
    """A wrong value anywhere, or a right one of another kind: both read the same, or the glance knows nothing."""
    message = copy.deepcopy(USUAL)
    put(message, place, value)
    check_glance(msgpack.packb(message))


@given(st.integers(0, len(msgpack.packb(USUAL)) - 1), st.binary(min_size=1, max_size=3))
def test_damaged_bytes_are_read_as_the_steps_read_them(position: int, damage: bytes) -> None:
    """Names that appear twice, cut and too long messages, and other lengths among them."""
    frame = msgpack.packb(USUAL)
    check_glance(frame[:position] + damage + frame[position + len(damage) :])
    check_glance(frame[:position] + damage + frame[position:])
    check_glance(frame[:position])
    assert read_usual_replica_fetch(frame + damage) is None


@pytest.mark.parametrize("name", sorted(USUAL))
def test_a_field_that_appears_twice_or_not_is_not_usual(name: str) -> None:
    """The steps refuse the first, and have defaults for some of the second."""
    fields = [msgpack.packb(one) + msgpack.packb(USUAL[one]) for one in USUAL]
    without = [msgpack.packb(one) + msgpack.packb(USUAL[one]) for one in USUAL if one != name]
    twice = msgpack.packb(name) + msgpack.packb(USUAL[name])
    assert read_usual_replica_fetch(b"\x88" + b"".join(fields)) is not None
    assert read_usual_replica_fetch(b"\x88" + b"".join((*without[:6], twice, twice))) is None
    assert read_usual_replica_fetch(b"\x87" + b"".join(without)) is None


def test_a_large_fetch_is_left_to_the_steps() -> None:
    """They read it in a thread."""
    rows = USUAL["partitions"] * 1000
    frame = msgpack.packb({**USUAL, "partitions": rows})
    assert len(frame) > READ_AT_ONCE_BYTES
    assert read_usual_replica_fetch(frame) is None
    assert len(read_by_steps(frame)[1].partitions) == len(rows)


def test_what_is_no_fetch_is_none_of_its_business() -> None:
    """Another type, a view of a large frame, and nothing at all."""
    other = msgpack.packb({**USUAL, "type": "replica_snapshot"})
    assert read_usual_replica_fetch(other) is None
    assert read_usual_replica_fetch(memoryview(msgpack.packb(USUAL))) is None
    assert read_usual_replica_fetch(b"") is None
    with pytest.raises(KafkaError):
        read_by_steps(msgpack.packb({**USUAL, "broker_id": -1}))
