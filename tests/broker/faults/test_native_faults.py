"""The same rules on the native port."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.faults.lab import PRODUCER_ID, TOPIC, Lab
from tests.support.native_client import NativeConnection


def batch(sequence: int, **fields: Any) -> dict[str, Any]:
    identity = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": sequence}
    return {"topic": TOPIC, "partition": 0, "records": [{"value": b"x"}], **identity, **fields}


async def test_an_error_is_the_error_of_the_answer(lab: Lab, native: NativeConnection) -> None:
    """Code, name and the rule that says so; nothing is stored."""
    name = lab.add({"type": "error", "code": 7}, {"api": "produce", "base_sequence": 0}, times=1)
    answer = await native.call("produce", correlation_id=3, **batch(0))
    assert answer["correlation_id"] == 3
    assert answer["error"]["name"] == "REQUEST_TIMED_OUT"
    assert name in answer["error"]["message"]
    assert lab.verdicts() == []
    assert (await native.call("produce", **batch(0)))["error"]["code"] == 0


async def test_an_error_after_processing(lab: Lab, native: NativeConnection) -> None:
    """The resend is a duplicate."""
    lab.add({"type": "error_after", "code": 7}, {"api": "produce"}, times=1)
    assert (await native.call("produce", **batch(0)))["error"]["code"] == 7
    answer = await native.call("produce", **batch(0))
    assert (answer["error"]["code"], answer["duplicate"]) == (0, True)


@pytest.mark.parametrize(("action", "stored"), [("close_before", 0), ("close_after", 1)])
async def test_closing_the_connection(
    lab: Lab, native: NativeConnection, action: str, stored: int
) -> None:
    """Before processing or after it."""
    lab.add(action, {"api": "produce", "topic": TOPIC})
    native.send(type="produce", **batch(0))
    with pytest.raises((EOFError, ConnectionError)):
        await native.receive()
    assert len(lab.verdicts()) == stored


async def test_a_client_is_known_by_its_hello(lab: Lab, native: NativeConnection) -> None:
    """`client_id` is what the hello has said."""
    name = lab.add("twice", {"client_id": "probe"})
    await native.call("produce", **batch(0))
    assert lab.counts(name) == (0, 0)
    await native.call("hello", client_id="probe")
    await native.call("produce", **batch(1))
    assert lab.counts(name) == (1, 1)
    assert [verdict for _, verdict in lab.verdicts()] == ["append", "append", "duplicate"]
    assert lab.hits()[0].client_id == "probe"


@pytest.mark.parametrize(
    ("api", "fields", "match"),
    [
        ("create_topic", {"topic": "new"}, {"api": "create_topics", "topic": "new"}),
        ("metadata", {"topics": [TOPIC]}, {"api": "metadata", "topic": TOPIC}),
        ("metadata", {}, {"api": "metadata", "topic": TOPIC}),
        ("lease_pid", {"partitions": [[TOPIC, 1]]}, {"api": "lease_pid", "partition": 1}),
        ("producer_state", {"topic": TOPIC, "partition": 0}, {"topic": TOPIC, "partition": 0}),
        ("fetch", {"topic": TOPIC, "partition": 1, "offset": 0}, {"partition": 1, "api": "fetch"}),
        ("init_producer_id", {}, {"api": "InitProducerId"}),
    ],
)
async def test_what_a_message_is_about(
    lab: Lab, native: NativeConnection, api: str, fields: Any, match: Any
) -> None:
    """Topics and partitions of each message can be matched."""
    name = lab.add({"type": "delay_response", "ms": 0}, match)
    await native.call(api, **fields)
    assert lab.counts(name) == (1, 1)


async def test_messages_between_brokers_are_left_alone(lab: Lab, native: NativeConnection) -> None:
    """A rule for everything is none for replication; a cut link is."""
    message = {"broker_id": 2, "broker_epoch": 1, "partitions": [], "max_wait_ms": 0}
    lab.join()
    lab.add("close_before")
    assert (await native.call("replica_fetch", **message))["type"] == "replica_fetch"
    name = lab.add({"type": "cut_replica_link", "broker_id": 2})
    native.send(type="replica_fetch", **message)
    async with asyncio.timeout(60):
        while lab.counts(name) != (1, 1):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)


async def test_ids_of_connections_differ_between_the_ports(
    lab: Lab, native: NativeConnection
) -> None:
    """A rule's `connection` matches exactly one of them."""
    kafka = await lab.connect()
    lab.add({"type": "delay_response", "ms": 0})
    await kafka.call("api_versions", 0)
    await native.call("init_producer_id")
    first, second = lab.hits()
    assert first.connection_id != second.connection_id
