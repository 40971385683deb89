"""Requests meet the rules of their own API; those of others pass without being read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from echoless.broker.faults.kafka_requests import KafkaRequests
from echoless.broker.faults.native_requests import NativeRequests
from tests.broker.faults.lab import Lab, batch, produce
from tests.broker.faults.test_native_faults import batch as native_batch
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The APIs of the requests that were read for rules."""
    found: list[str] = []
    for kind in (KafkaRequests, NativeRequests):

        def read(self: Any, frame: Any, peer: Any, inner: Any = kind.read) -> Any:
            request = inner(self, frame, peer)
            found.append("" if request is None else request.facts.api)
            return request

        monkeypatch.setattr(kind, "read", read)
    return found


async def test_a_request_of_another_api_is_not_read(
    lab: Lab, kafka: RawConnection, native: NativeConnection, reads: list[str]
) -> None:
    """On both ports; with a rule for every API all are."""
    lab.add("twice", {"api": "metadata"})
    assert await produce(kafka, batch(0)) == [0]
    assert (await native.call("produce", **native_batch(1)))["error"]["code"] == 0
    assert reads == []
    await kafka.call("metadata", 1, topics=())
    assert reads == ["metadata"]
    lab.add("twice", {"client_id": "nobody"})
    assert await produce(kafka, batch(2)) == [0]
    assert (await native.call("produce", **native_batch(3)))["error"]["code"] == 0
    assert reads == ["metadata", "produce", "produce"]


async def test_producers_fields_imply_produce(
    lab: Lab, kafka: RawConnection, reads: list[str]
) -> None:
    """A rule without an API, about a sequence."""
    name = lab.add({"type": "error", "code": 6}, {"base_sequence": 1})
    await kafka.call("metadata", 1, topics=())
    assert [await produce(kafka, batch(number)) for number in (0, 1)] == [[0], [6]]
    assert reads == ["produce", "produce"]
    assert lab.counts(name) == (1, 1)


@pytest.mark.parametrize(
    ("message", "api"),
    [
        ({"type": "produce", "topic": "t"}, "produce"),
        ({"type": "create_topic"}, "create_topics"),
        ({"topic": "t", "type": "produce"}, None),
        ({"type": "x" * 40}, None),
        ({"type": 7}, None),
        ({}, None),
    ],
)
def test_the_type_of_a_native_message_is_seen_at_a_glance(
    message: dict[str, Any], api: str | None
) -> None:
    """If it comes first; else the message has to be read."""
    assert NativeRequests.api_of(None, msgpack.packb(message)) == api


def test_what_is_no_message_has_no_api() -> None:
    """Whatever it is cut off at."""
    frame = msgpack.packb({"type": "produce"})
    for size in range(len(frame)):
        assert NativeRequests.api_of(None, frame[:size]) is None
    for size in range(2):
        assert KafkaRequests.api_of(None, b"\0\0"[:size]) is None
