"""Requests that the rules look into, without holding the event loop."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from echoless.broker.faults.kafka_requests import KafkaRequests, _Inside
from echoless.broker.faults.match import Match, Part, RequestFacts
from echoless.broker.faults.native_requests import NativeRequests
from echoless.broker.faults.requests import ReadRequest, finished
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.handlers.loaded import load
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.headers import RequestHeader
from tests.broker.faults.lab import TOPIC, Lab
from tests.support.kio_requests import smallest_request
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, message, nested

MANY = 5000


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that read requests for the rules."""
    threads: list[int] = []
    for requests in (KafkaRequests, NativeRequests):
        _note_threads(monkeypatch, requests, threads)
    return threads


def _note_threads(monkeypatch: pytest.MonkeyPatch, requests: Any, threads: list[int]) -> None:
    read = requests.read

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return read(*arguments)

    monkeypatch.setattr(requests, "read", noted)


def metadata(names: list[str]) -> Any:
    topics = tuple(nested("metadata", 4, "MetadataRequestTopic")(name=name) for name in names)
    return message("metadata", 4, "Request")(topics=topics, allow_auto_topic_creation=False)


async def test_a_large_request_is_read_in_a_thread_and_keeps_its_place(
    lab: Lab, kafka: RawConnection, readers: list[int]
) -> None:
    """The rule hits what it matches in it; the small one behind it is answered behind it."""
    await lab.connect()
    kafka.send_request(metadata([TOPIC]))
    await kafka.receive_response("metadata", 4)  # its classes are imported
    name = lab.add(
        {"type": "error", "code": "LEADER_NOT_AVAILABLE"}, {"api": "metadata", "topic": TOPIC}
    )
    readers.clear()
    kafka.send_request(metadata([TOPIC, *(f"t{number}" for number in range(MANY))]))
    kafka.send_request(metadata([TOPIC]))
    for count in (MANY + 1, 1):
        answer = await kafka.receive_response("metadata", 4)
        errors = {topic.name: topic.error_code for topic in answer.topics}
        assert (len(errors), errors[TOPIC]) == (count, ErrorCode.LEADER_NOT_AVAILABLE)
    assert lab.counts(name) == (2, 2)
    assert [one == threading.get_ident() for one in readers] == [False, True]


async def test_a_message_whose_records_are_built_is_read_in_a_thread(
    lab: Lab, readers: list[int]
) -> None:
    """They are built as the message is read."""
    lab.add({"type": "delay_request", "ms": 1}, {"api": "produce"})
    native = await NativeConnection.open(lab.native_address)
    readers.clear()
    records = [{"key": b"k", "value": b"v" * 100}] * 200
    async with asyncio.timeout(20):
        answer = await native.call("produce", topic=TOPIC, partition=0, records=records)
    assert answer["error"]["code"] == 0
    assert readers
    assert threading.get_ident() not in readers
    await native.close()


RULES = 50
NAMED = 1000
"""Partitions of a request that is small enough to be read on the loop, if each is four bytes."""


def many_reassignments() -> Any:
    """A request that names partitions of one topic, each in four bytes."""
    topic = nested("list_partition_reassignments", 0, "ListPartitionReassignmentsTopics")
    wanted = topic(name=TOPIC, partition_indexes=tuple(range(NAMED)))
    cls = message("list_partition_reassignments", 0, "Request")
    return cls(topics=(wanted,), timeout=datetime.timedelta(0))


async def test_many_partitions_are_compared_with_many_rules_in_turns(
    lab: Lab, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in between, and may remove a rule: it does not act then."""
    match = {"api": "list_partition_reassignments", "topic": TOPIC}
    for _ in range(RULES):
        lab.add({"type": "delay_response", "ms": 0}, {**match, "partition": NAMED})
    removed = lab.add({"type": "error", "code": 7}, {**match, "partition": NAMED - 1})
    last = lab.add({"type": "error", "code": 41}, {**match, "partition": NAMED - 1})
    kafka.send_request(many_reassignments())
    await kafka.receive_response("list_partition_reassignments", 0)  # its classes are imported
    picked: list[Part] = []
    picks_part = Match.picks_part

    def remove_in_the_middle(self: Match, part: Part) -> bool:
        picked.append(part)
        if len(picked) == NAMED * RULES // 2:
            asyncio.get_running_loop().call_soon(lab.broker.faults.remove, removed)
        return picks_part(self, part)

    monkeypatch.setattr(Match, "picks_part", remove_in_the_middle)
    kafka.send_request(many_reassignments())
    answer = await kafka.receive_response("list_partition_reassignments", 0)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert len(picked) > NAMED * RULES
    assert lab.counts(last) == (1, 1)


class Counted(list[Part]):
    """Parts, and how often someone has gone through them."""

    passes = 0

    def __iter__(self) -> Iterator[Part]:
        self.passes += 1
        return super().__iter__()


async def test_a_refusal_goes_through_the_partitions_once(lab: Lab) -> None:
    """Whether a partition is refused is looked up, however many there are."""
    requests = KafkaRequests(lab.broker.services)
    body = smallest_request("delete_records", 2, elements=30)
    served = load(API_BY_KEY[21])
    header = RequestHeader(21, 2, 1, None, 0)
    parts = Counted([Part("x", 0)])
    facts = RequestFacts("delete_records", 2, None, 1, (Part("x", 0), Part("x", 1)))
    request = ReadRequest(facts, b"", Peer(1, "127.0.0.1:1"), _Inside(served, header, body))
    dispatched = requests.refuse(request, parts, KafkaError(ErrorCode.CORRUPT_MESSAGE))
    await finished(dispatched)
    assert parts.passes == 1
