"""Requests that the rules look into, without holding the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.faults.kafka_requests import KafkaRequests
from broker.faults.native_requests import NativeRequests
from protocol.errors import ErrorCode
from tests.broker.faults.lab import TOPIC, Lab
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
