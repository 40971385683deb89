"""The usual fetch of a follower in a session beside the general reader."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.known.replica_fetch import BEGINNING_SIZE
from echoless.protocol.known.replica_session import SESSION_BEGINNING, read_usual_session_fetch
from echoless.protocol.native.codec import encode_message, locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replica_session import (
    FORGOTTEN_MAX,
    NAMED_MAX,
    NamedRow,
    SessionFetch,
    read_replica_fetch,
)
from echoless.protocol.native.replication import WAIT_MS_MAX, ReplicaWanted
from tests.protocol.native.test_replication import ANYTHING, WANTED, places, put

INT63 = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(
    SessionFetch,
    broker_id=st.integers(0, 2**31 - 1),
    broker_epoch=st.integers(-(2**63), 2**63 - 1),
    max_wait_ms=st.integers(0, WAIT_MS_MAX),
    bytes_max=st.integers(1, 2**31 - 1),
    session=st.integers(1, 2**63 - 1),
    session_epoch=INT63,
    named=st.lists(st.builds(NamedRow, number=INT63, wanted=WANTED), max_size=4),
    forgotten=st.lists(INT63, max_size=3),
)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
WANTED_ROW = ReplicaWanted("t", uuid.UUID(int=5), 1, 3, 10, 2)
USUAL: dict[str, Any] = {
    **SessionFetch(2, 7, 500, 1000, 3, 4, [NamedRow(8, WANTED_ROW)], [5]).to_message(),
    "correlation_id": 9,
}


def read_by_steps(frame: bytes) -> tuple[Any, Any]:
    """Reads a frame as the general reader does. Raises `KafkaError`, `DecodeError`."""
    fields = Fields("replica_fetch", locate_fields(frame))
    assert fields.text("type") == "replica_fetch"
    number = fields.integer("correlation_id", least=-(2**63), most=2**64 - 1)
    return number, read_replica_fetch(fields)


def check_glance(frame: bytes) -> None:
    """Fails unless the glance knows nothing, or the same as the steps."""
    usual = read_usual_session_fetch(frame)
    if usual is not None:
        assert tuple(usual) == read_by_steps(frame)


@given(MESSAGES, NUMBERS)
def test_what_followers_send_is_known_at_a_glance(message: SessionFetch, number: int) -> None:
    """Whatever the numbers and names, in the order in which a follower packs them."""
    frame = encode_message({**message.to_message(), "correlation_id": number})
    assert read_usual_session_fetch(frame) == (number, message)
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
    check_glance(frame[:position])
    assert read_usual_session_fetch(frame + damage) is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("partitions", USUAL["partitions"] * (NAMED_MAX + 1)),
        ("forgotten", [1] * (FORGOTTEN_MAX + 1)),
        ("forgotten", [None]),
    ],
)
def test_bounds_hold_both_ways(name: str, values: list[Any]) -> None:
    """A message names and forgets a bounded number of rows."""
    frame = msgpack.packb({**USUAL, name: values})
    assert read_usual_session_fetch(frame) is None
    with pytest.raises(Exception, match=r"at most 300 and 5000|takes numbers of rows"):
        read_by_steps(frame)


def test_both_usual_fetches_have_beginnings_of_one_size() -> None:
    """The exchange compares as many bytes with both."""
    assert len(SESSION_BEGINNING) == BEGINNING_SIZE
