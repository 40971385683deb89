"""Markers reach the leaders of their partitions, whatever happens on the way, and are never given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.transactions import marker_sender
from echoless.broker.transactions.marker_queue import MarkerSource
from echoless.broker.transactions.marker_sender import MarkerSender
from echoless.coordinators.transactions.effects import SendMarkers
from echoless.coordinators.transactions.events import (
    MarkerAnswered,
    MarkersWritten,
    PartitionDeleted,
)
from echoless.protocol.errors import ErrorCode
from tests.broker.transactions.fake_door import FakeDoor, FakeLeaders, FakeShard, place
from tests.broker.until import until


class Sending:
    """A sender, and all that it depends on."""

    def __init__(self) -> None:
        self.door, self.leaders, self.shard = FakeDoor(), FakeLeaders(), FakeShard()
        leaders: Any = self.leaders
        self.sender = MarkerSender(leaders, self.door)

    def send(
        self, *indexes: int, transactional_id: str = "a", number: int = 1, is_retry: bool = False
    ) -> None:
        partitions = frozenset(map(place, indexes))
        markers = SendMarkers(7, 5, number, True, partitions, 2, is_retry)
        self.sender.send(MarkerSource(self.shard, transactional_id, 3, 9), markers)

    def done(self, *indexes: int, transactional_id: str = "a", number: int = 1) -> bool:
        """Whether each of these partitions has got its marker, once."""
        expected = [(transactional_id, MarkerAnswered(7, number, place(one))) for one in indexes]
        found = [one for one in self.shard.outcomes if one[0] == transactional_id]
        return sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.fixture
async def one(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sending]:
    """A sender whose first wait is a millisecond."""
    monkeypatch.setattr(marker_sender, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(marker_sender, "_LONGEST_WAIT_S", 0.01)
    sending = Sending()
    yield sending
    await sending.sender.close()


async def test_markers_of_one_turn_are_one_request_to_each_broker(one: Sending) -> None:
    """Two transactions, three partitions, two leaders: two requests, and each names what it ends."""
    one.leaders.by_partition[place(2)] = 2
    one.send(0, 2)
    one.send(1, transactional_id="b", number=4)
    await until(lambda: one.done(0, 2) and one.done(1, transactional_id="b", number=4))
    to_first, to_second = sorted(one.door.requests, key=lambda request: request[0])
    assert [marker.partitions for marker in to_first[1]] == [(place(0),), (place(1),)]
    assert [marker.number for marker in to_first[1]] == [1, 4]
    (marker,) = to_second[1]
    assert marker[:7] == (7, 5, 1, True, 3, 9, 2)
    assert marker.partitions == (place(2),)
    assert len(one.sender) == 0


async def test_the_markers_of_a_large_transaction_are_one_event(one: Sending) -> None:
    """An event for each would look at all that are missing, for each."""
    events: list[MarkersWritten] = []
    one.shard.markers_written = lambda _, written: events.append(written)  # type: ignore[method-assign]
    one.send(*range(300))
    await until(lambda: events)
    assert events == [MarkersWritten(7, 1, frozenset(map(place, range(300))))]


async def test_what_comes_while_a_request_is_under_way_does_not_wait_for_it(one: Sending) -> None:
    """A request may wait for replicas, and so it may for others."""
    one.door.may_answer.clear()
    one.send(0)
    await until(lambda: len(one.door.requests) == 1)
    one.send(1, transactional_id="b")
    await until(lambda: len(one.door.requests) == 2)
    assert len(one.sender) == 2
    one.door.may_answer.set()
    await until(lambda: one.done(0) and one.done(1, transactional_id="b"))


async def test_the_requests_to_one_broker_are_bounded(
    one: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers that wait meanwhile gather in larger requests."""
    monkeypatch.setattr(marker_sender, "IN_FLIGHT_MAX", 1)
    monkeypatch.setattr(marker_sender, "PARTITIONS_PER_REQUEST", 2)
    one.door.may_answer.clear()
    one.send(0)
    await until(lambda: len(one.door.requests) == 1)
    one.send(*range(1, 6))
    await asyncio.sleep(0.005)
    assert len(one.door.requests) == 1
    one.door.may_answer.set()
    await until(lambda: one.done(*range(6)))
    sizes = [sum(len(row.partitions) for row in markers) for _, markers in one.door.requests]
    assert sizes == [1, 2, 2, 1]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_refused_marker_goes_to_the_leader_of_then(one: Sending, code: ErrorCode) -> None:
    """Its coordinator hears of it only when it is in; the others of its request are in at once."""
    place_0 = place(0)
    one.door.code_of = lambda broker_id, partition: (
        code if (broker_id, partition) == (1, place_0) else ErrorCode.NONE
    )
    one.send(0, 1)
    await until(lambda: one.done(1))
    await until(lambda: len(one.door.requests) > 2)
    assert one.done(1)
    one.leaders.by_partition[place_0] = 2
    await until(lambda: one.done(0, 1))
    assert one.door.written[-1] == (2, place_0)


async def test_markers_are_sent_again_when_a_broker_does_not_answer(one: Sending) -> None:
    """All of the request, since any of them may be in a log or not."""
    one.door.error = PeerError("gone")
    one.send(0, 1)
    await until(lambda: len(one.door.requests) > 3)
    assert one.shard.outcomes == []
    one.door.error = None
    await until(lambda: one.done(0, 1))


@pytest.mark.parametrize("error", [None, PeerError("it has not answered in 30 s")])
async def test_a_marker_on_its_way_to_a_broker_that_leads_no_more_goes_to_the_next_leader(
    one: Sending, monkeypatch: pytest.MonkeyPatch, error: PeerError | None
) -> None:
    """A machine that is gone answers after half a minute, if at all; what comes of that request does not matter then."""
    monkeypatch.setattr(marker_sender, "IN_FLIGHT_MAX", 1)
    one.door.may_answer.clear()
    one.send(0, 1)
    await until(lambda: len(one.door.requests) == 1)
    one.send(2)
    for index in (0, 2):
        one.leaders.by_partition[place(index)] = 2
    one.door.is_answering.add(2)
    one.sender.topic_changed("t")
    await until(lambda: one.done(0, 2))
    assert sorted(one.door.written) == [(1, place(0)), (1, place(1)), (2, place(0)), (2, place(2))]
    one.door.error = error
    one.door.may_answer.set()
    await asyncio.sleep(0.005)
    one.door.error = None
    await until(lambda: one.done(0, 1, 2))
    assert [broker_id for broker_id, partition in one.door.written if partition == place(0)] == [
        1,
        2,
    ]
    assert len(one.sender) == 0


async def test_a_change_of_a_topic_looks_at_its_own_markers_alone(
    one: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever those of others are: a thousand topics without leaders would make each change expensive."""
    monkeypatch.setattr(marker_sender, "_FIRST_WAIT_S", 1000)
    monkeypatch.setattr(marker_sender, "_LONGEST_WAIT_S", 1000)
    monkeypatch.setattr(marker_sender, "IN_FLIGHT_MAX", 1)
    one.door.may_answer.clear()
    for topic, leader in (("away", NO_LEADER), ("asked", 1), ("queued", 1)):
        partitions = frozenset([place(index, topic) for index in range(50)])
        one.leaders.by_partition.update(dict.fromkeys(partitions, leader))
        one.sender.send(
            MarkerSource(one.shard, topic, 3, 9), SendMarkers(7, 5, 1, True, partitions, 2)
        )
        await asyncio.sleep(0)
    one.send(0)
    one.leaders.looked_at.clear()
    one.sender.topic_changed("t")
    one.sender.topic_changed("another")
    assert one.leaders.looked_at == [place(0)]
    assert len(one.sender) == 151


async def test_a_partition_without_a_leader_is_waited_for(one: Sending) -> None:
    """It is no proof that it is gone."""
    one.leaders.by_partition[place(0)] = NO_LEADER
    one.send(0)
    await asyncio.sleep(0.02)
    assert one.door.requests == []
    assert len(one.sender) == 1
    one.leaders.by_partition[place(0)] = 2
    await until(lambda: one.done(0))


async def test_a_change_of_the_topic_ends_the_wait(
    one: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader is asked at once; what waits for other topics waits on."""
    monkeypatch.setattr(marker_sender, "_FIRST_WAIT_S", 1000)
    monkeypatch.setattr(marker_sender, "_LONGEST_WAIT_S", 1000)
    one.leaders.by_partition[place(0)] = NO_LEADER
    one.send(0)
    one.leaders.by_partition[place(0)] = 2
    one.sender.topic_changed("another")
    await asyncio.sleep(0)
    assert one.door.requests == []
    one.sender.topic_changed("t")
    await until(lambda: one.done(0))


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
async def test_a_contradiction_goes_back_to_the_coordinator(one: Sending, code: ErrorCode) -> None:
    """It says what becomes of the marker, and has it sent again, which is not done at once."""
    one.door.code_of = lambda *_: code
    one.send(0)
    await until(lambda: one.shard.outcomes)
    assert one.shard.outcomes == [("a", MarkerAnswered(7, 1, place(0), code))]
    assert len(one.sender) == 0
    one.door.code_of = lambda *_: ErrorCode.NONE
    one.shard.outcomes.clear()
    one.send(0, is_retry=True)
    await asyncio.sleep(0)
    assert (len(one.sender), len(one.door.requests)) == (1, 1)
    await until(lambda: one.done(0))


async def test_what_is_missing_is_known_by_its_age(one: Sending) -> None:
    """From the first time that it was sent, whatever has become of it since: here a leader contradicts it."""
    loop = asyncio.get_running_loop()
    assert (len(one.sender), one.sender.longest_wait_s) == (0, 0)
    before_s = loop.time()
    one.door.code_of = lambda _, partition: (
        ErrorCode.INVALID_PRODUCER_EPOCH
        if partition == place(0)
        else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    one.shard.sends_again = one.send
    one.send(0, 1)
    await until(lambda: len(one.shard.outcomes) > 1)
    sent_s = loop.time()
    one.send(2)
    assert len(one.sender) == 3
    assert loop.time() - sent_s < one.sender.longest_wait_s <= loop.time() - before_s
    one.door.code_of = lambda *_: ErrorCode.NONE
    await until(lambda: not len(one.sender))
    assert one.sender.longest_wait_s == 0


async def test_markers_of_a_coordinator_that_has_ended_are_not_missing(one: Sending) -> None:
    """Another one sends them."""
    one.door.error = PeerError("away")
    one.send(0)
    await until(lambda: one.door.requests)
    assert len(one.sender) == 1
    one.shard.is_over = True
    await until(lambda: not len(one.sender))


async def test_a_deleted_topic_needs_no_marker(one: Sending) -> None:
    """The tree is asked once for all partitions of the topic; one that is created again has another id."""
    gone, reborn = place(0).topic_id, bytes(16)
    one.leaders.deleted.add(gone)
    partitions = frozenset({place(0), place(1), place(0, topic_id=reborn)})
    markers = SendMarkers(7, 5, 1, True, partitions, 2)
    one.sender.send(MarkerSource(one.shard, "a", 3, 9), markers)
    await until(lambda: len(one.shard.outcomes) == 3)
    assert {outcome for _, outcome in one.shard.outcomes} == {
        PartitionDeleted(7, 1, place(0)),
        PartitionDeleted(7, 1, place(1)),
        MarkerAnswered(7, 1, place(0, topic_id=reborn)),
    }
    assert len(one.leaders.asked) == 1


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_topic_that_is_not_known_yet_is_waited_for(one: Sending, *, is_away: bool) -> None:
    """This broker may be behind, or the tree may be away."""
    one.leaders.unknown.add(place(0).topic_id)
    one.leaders.tree_is_away = is_away
    one.send(0, 1)
    await until(lambda: len(one.leaders.asked) > 2)
    assert one.shard.outcomes == one.door.requests == []
    assert len(one.sender) == 2
    one.leaders.unknown.clear()
    await until(lambda: one.done(0, 1))


async def test_a_coordinator_that_has_ended_sends_nothing_more(one: Sending) -> None:
    """Another one sends what is missing."""
    one.leaders.by_partition[place(0)] = NO_LEADER
    one.send(0)
    one.door.may_answer.clear()
    one.send(1)
    one.shard.is_over = True
    await until(lambda: len(one.sender) == 0)
    assert one.door.requests == []


async def test_the_waits_grow_to_a_bound(one: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that takes no marker for hours is asked now and then."""
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(delay: float, callback: Any, *arguments: Any, **named: Any) -> asyncio.TimerHandle:
        if callback == one.sender._waited:
            waits.append(delay)
            delay = 0
        return call_later(delay, callback, *arguments, **named)

    monkeypatch.setattr(loop, "call_later", noted)
    one.door.code_of = lambda *_: ErrorCode.NOT_ENOUGH_REPLICAS
    one.send(0)
    await until(lambda: len(waits) > 5)
    assert waits[:6] == [0.001, 0.002, 0.004, 0.008, 0.01, 0.01]
