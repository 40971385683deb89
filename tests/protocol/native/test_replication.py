"""The messages between brokers: both directions, and what is rejected."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.codec import (
    ENTRIES_MAX,
    decode_message,
    encode_message,
    locate_fields,
)
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replication import (
    NEWEST_SNAPSHOT,
    WAIT_MS_MAX,
    AwaitTopic,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaSnapshot,
    ReplicaWanted,
    SnapshotPiece,
    error_code,
    read_await_topic_answer,
    read_error,
    read_replica_fetch_answer,
    read_replica_snapshot_answer,
    to_replica_fetch_answer,
)

TOPIC_ID = uuid.UUID(int=5)
INT32 = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
SUCCESS = {"error": {"code": 0, "name": "NONE", "message": "", "retriable": False}}
WANTED = st.builds(
    ReplicaWanted, st.text(), st.uuids(), INT32, INT32, OFFSETS, st.integers(-1, 2**31 - 1)
)
FETCHED = st.one_of(
    st.sampled_from([code for code in ErrorCode if code]).map(ReplicaFetched),
    st.tuples(st.just(ErrorCode.NONE), OFFSETS, OFFSETS, st.none(), st.binary(max_size=300)).map(
        lambda fields: ReplicaFetched(*fields)
    ),
    st.tuples(
        st.just(ErrorCode.NONE),
        OFFSETS,
        OFFSETS,
        st.tuples(st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1)),
    ).map(lambda fields: ReplicaFetched(*fields)),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3)
    | st.binary(max_size=17),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


def sent(message: dict[str, Any]) -> Fields:
    return Fields("message", locate_fields(encode_message(message)))


def received(answer: dict[str, Any]) -> dict[str, Any]:
    return decode_message(encode_message({**SUCCESS, **answer}))


def wanted(count: int = 1) -> list[ReplicaWanted]:
    return [ReplicaWanted("t", TOPIC_ID, index, 3, 10, 2) for index in range(count)]


def snapshot(**changes: Any) -> ReplicaSnapshot:
    fields = {"offset": NEWEST_SNAPSHOT, "position": 0, "bytes_max": 100, **changes}
    return ReplicaSnapshot(
        broker_id=1, topic="t", topic_id=TOPIC_ID, partition=0, leader_epoch=3, **fields
    )


PIECE = SnapshotPiece(
    offset=7, size=6, position=0, data=b"abc", log_start_offset=8, now_ms=1_700_000_000_000
)


@given(
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, WAIT_MS_MAX),
    st.integers(1, 2**31 - 1),
    st.lists(WANTED, max_size=5),
)
def test_a_replica_fetch_arrives_as_it_was(
    broker_id: int, broker_epoch: int, max_wait_ms: int, bytes_max: int, partitions: Any
) -> None:
    """The leader reads what the follower meant, whatever the numbers and names."""
    message = ReplicaFetch(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        bytes_max=bytes_max,
        partitions=partitions,
    )
    assert ReplicaFetch.read(sent(message.to_message())) == message


@given(st.lists(FETCHED, max_size=5))
def test_the_answer_arrives_as_it_was(fetched: list[ReplicaFetched]) -> None:
    """The follower reads what the leader meant: errors, divergences and batches, in order."""
    answer = received(to_replica_fetch_answer(fetched))
    assert read_replica_fetch_answer(answer, wanted(len(fetched))) == fetched


def test_the_other_messages_arrive_as_they_were() -> None:
    """Snapshots and topics, both ways."""
    message = snapshot(offset=7, position=3)
    assert ReplicaSnapshot.read(sent(message.to_message())) == message
    assert read_replica_snapshot_answer(received(PIECE.to_answer()), snapshot()) == PIECE
    topic = AwaitTopic(topic="t", topic_id=TOPIC_ID, timeout_ms=100)
    assert AwaitTopic.read(sent(topic.to_message())) == topic
    read_await_topic_answer(received({}))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every position in an answer that holds a value."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return found + [place for key, one in inner for place in places(one, (*path, key))]


def put(answer: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    holder: Any = answer
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value


FETCH_ANSWER = received(
    to_replica_fetch_answer(
        [
            ReplicaFetched(ErrorCode.NONE, 10, 0, None, b"batches"),
            ReplicaFetched(ErrorCode.NONE, 10, 0, (1, 5)),
            ReplicaFetched(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]
    )
)
SNAPSHOT_ANSWER = received(PIECE.to_answer())


@given(st.sampled_from(places(FETCH_ANSWER)), ANYTHING)
def test_a_fetch_answer_with_anything_in_it_is_read_or_refused(place: Any, value: Any) -> None:
    """A wrong value anywhere ends in one of the two errors, or in values of the right types."""
    answer = copy.deepcopy(FETCH_ANSWER)
    put(answer, place, value)
    try:
        fetched = read_replica_fetch_answer(answer, wanted(3))
    except (KafkaError, DecodeError):
        return
    for one in fetched:
        assert isinstance(one.error, ErrorCode)
        assert type(one.high_watermark) is type(one.log_start_offset) is int
        assert isinstance(one.batches, bytes)
        assert one.diverging is None or (len(one.diverging) == 2 and not one.batches)


@given(st.sampled_from(places(FETCH_ANSWER["partitions"][0])), ANYTHING, ANYTHING)
def test_a_row_known_at_a_glance_is_what_the_steps_make_of_it(
    place: Any, value: Any, whole: Any
) -> None:
    """With a wrong value anywhere in it, and of anything else the glance knows nothing."""
    row = copy.deepcopy(FETCH_ANSWER["partitions"][0])
    assert ReplicaFetched._usual(row) == ReplicaFetched._by_steps(0, row)
    put(row, place, value)
    for entry in (row, whole):
        usual = ReplicaFetched._usual(entry)
        assert usual is None or usual == ReplicaFetched._by_steps(0, entry)


@given(st.sampled_from(places(SNAPSHOT_ANSWER)), ANYTHING)
def test_a_snapshot_answer_with_anything_in_it_is_read_or_refused(place: Any, value: Any) -> None:
    """An accepted piece is inside the snapshot, at the requested position."""
    answer = copy.deepcopy(SNAPSHOT_ANSWER)
    put(answer, place, value)
    try:
        piece = read_replica_snapshot_answer(answer, snapshot())
    except (KafkaError, DecodeError):
        return
    assert piece.position == 0 <= piece.offset
    assert 0 < len(piece.data) <= piece.size


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    """No bytes make anything but a map of named values or a `DecodeError`."""
    try:
        message = decode_message(data)
    except DecodeError:
        return
    assert all(isinstance(name, str) for name in message)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"partitions": None}, "partitions takes an array of 1, not NoneType"),
        ({"partitions": []}, "an array of 1, not list of 0"),
        ({"partitions": [1]}, "partition 0 of the answer is a map, not int"),
        ({"error": None}, "the error of the answer is a map"),
        ({"error": {"code": "0"}}, "code takes an integer"),
    ],
)
def test_a_fetch_answer_has_one_entry_for_each_partition(change: Any, complaint: str) -> None:
    """An answer of another shape is none: nothing of it is used."""
    answer = received(to_replica_fetch_answer([ReplicaFetched(ErrorCode.NONE, 1, 0)]))
    with pytest.raises(DecodeError, match=complaint):
        read_replica_fetch_answer({**answer, **change}, wanted())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"high_watermark": -1}, "high_watermark takes an integer from 0"),
        ({"log_start_offset": 2**63}, "log_start_offset takes"),
        ({"log_start_offset": True}, "not True"),
        ({"batches": "text"}, "batches takes bytes, not str"),
        ({"diverging": [1]}, "diverging takes two integers from -1 to 9223372036854775807, not l"),
        ({"diverging": [1, -2]}, "diverging takes two"),
        ({"diverging": [1, 2]}, "batches after a divergence"),
        ({"error": 2**15}, "error takes an integer"),
    ],
)
def test_senseless_partitions_are_refused(change: Any, complaint: str) -> None:
    """A partition's fields have their types and ranges, and do not contradict each other."""
    entry = ReplicaFetched(ErrorCode.NONE, 1, 0, None, b"batch").to_entry()
    with pytest.raises(DecodeError, match=complaint):
        read_replica_fetch_answer({**SUCCESS, "partitions": [{**entry, **change}]}, wanted())


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ({}, {"position": 1}),
        ({"offset": 6}, {}),
        ({}, {"size": 2}),
        ({}, {"data": b""}),
        ({}, {"offset": -1}),
        ({"position": 3}, {"position": 3, "data": b"abcd"}),
    ],
)
def test_a_piece_is_the_one_that_was_asked_for(asked: Any, change: Any) -> None:
    """A piece of another snapshot, another position, beyond its size, or of no bytes is refused."""
    answer = received({**PIECE.to_answer(), **change})
    with pytest.raises(DecodeError):
        read_replica_snapshot_answer(answer, snapshot(**asked))


def test_the_end_of_a_snapshot_may_be_empty() -> None:
    """A snapshot of no bytes is whole with its first, empty piece."""
    piece = PIECE._replace(size=0, data=b"")
    assert read_replica_snapshot_answer(received(piece.to_answer()), snapshot()) == piece


def test_a_peer_s_error_is_raised() -> None:
    """Whatever else the answer holds; a code that is not known here is an error all the same."""
    error = {"code": 74, "name": "FENCED_LEADER_EPOCH", "message": "too old", "retriable": True}
    with pytest.raises(KafkaError, match="too old") as caught:
        read_replica_fetch_answer({"error": error}, wanted())
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
    later = read_error({"error": {**error, "code": 999}})
    assert later is not None
    assert later.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"partitions": None}, "the field partitions is missing"),
        ({"partitions": [1]}, "partition 0 is a map, not int"),
        ({"partitions": [{"topic": "t"}]}, "partition 0: topic_id takes the 16 bytes"),
        ({"partitions": [{}] * (ENTRIES_MAX + 1)}, "partitions cannot be read"),
        ({"max_wait_ms": WAIT_MS_MAX + 1}, "max_wait_ms takes"),
        ({"bytes_max": 0}, "bytes_max takes"),
        ({"broker_id": -1}, "broker_id takes"),
        ({"broker_epoch": 2**63}, "broker_epoch takes"),
    ],
)
def test_a_senseless_replica_fetch_is_an_invalid_request(change: Any, complaint: str) -> None:
    """The leader says which field of which partition it does not take."""
    message = {"broker_id": 1, "broker_epoch": 2, "partitions": [], **change}
    with pytest.raises(KafkaError, match=complaint) as caught:
        ReplicaFetch.read(sent(message))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("topic_id", [None, "text", b"short", b"x" * 17])
def test_a_topic_id_is_16_bytes(topic_id: Any) -> None:
    """A topic is meant by its id, never by its name alone."""
    message = {**snapshot().to_message(), "topic_id": topic_id}
    for read in (ReplicaSnapshot.read, AwaitTopic.read):
        with pytest.raises(KafkaError, match="topic_id"):
            read(sent(message))


@pytest.mark.parametrize("frame", [b"", b"\x90", b"\x81\xc4\x01a\x01", b"\x81\xa1a", b"\xc1"])
def test_an_answer_is_one_map_of_named_fields(frame: bytes) -> None:
    """Anything else is a `DecodeError`."""
    with pytest.raises(DecodeError):
        decode_message(frame)
    with pytest.raises(DecodeError):
        decode_message(msgpack.packb({"a": msgpack.ExtType(1, b"x")}))
