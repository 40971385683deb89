"""The gate of both ports: what a judge denies is refused, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.faults.rule import read_rules
from broker.metadata.topic import NewTopic
from broker.network.judge import Denial
from broker.network.request import ANONYMOUS, Peer
from protocol.errors import ErrorCode, KafkaError
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import ConnectionEndedError, RawConnection, list_offset, nested
from tests.support.raw_produce import PartitionData

OPEN, SECRET = "open", "secret"
DENIED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you")
BATCH = plain_batch([b"value"]).encode()
LATEST = -1


class Guard:
    """Denies the APIs in `closed`, and of all others the topic SECRET."""

    def __init__(self, *closed: str) -> None:
        self.closed = closed
        self.secret_apis: tuple[str, ...] = ()
        """APIs in which the secret topic may be named without its name."""
        self.asked: list[tuple[str, str]] = []

    def __call__(self, peer: Peer, name: str, body: Any) -> Denial | None:
        self.asked.append((peer.principal, name))
        if name in self.closed:
            return Denial(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "closed"))
        if SECRET in str(body) or name in self.secret_apis:
            return Denial(DENIED, lambda topic, _partition: topic == SECRET)
        return None


@pytest.fixture
def guard() -> Guard:
    return Guard("describe_cluster")


@pytest.fixture
async def running(tmp_path: Path, guard: Guard) -> AsyncIterator[Running]:
    """A broker with two topics, of which one is secret."""
    async with in_process(tmp_path, judge=guard) as running:
        for name in (OPEN, SECRET):
            await running.broker.services.topics.create(NewTopic(name=name))
        yield running


def end_of(running: Running, topic: str) -> int:
    return running.broker.partitions[topic, 0].log.log_end_offset


async def test_a_denied_topic_is_refused_and_the_other_is_served(
    kafka: RawConnection, running: Running, guard: Guard
) -> None:
    """One response has the rows of both."""
    rows = [PartitionData(OPEN, 0, BATCH), PartitionData(SECRET, 0, BATCH)]
    answers = await kafka.produce(9, -1, rows)
    assert {one.topic: one.error for one in answers} == {OPEN: 0, SECRET: DENIED.code}
    assert (end_of(running, OPEN), end_of(running, SECRET)) == (1, 0)
    assert guard.asked == [(ANONYMOUS, "produce")]
    assert await list_offset(kafka, OPEN, 0, LATEST) == 1


@pytest.mark.parametrize("version", [0, 1])
async def test_nothing_is_left_of_a_request_for_what_is_denied(
    kafka: RawConnection, version: int
) -> None:
    """Metadata without its only topic: in version 0 an empty list would ask for all of them."""
    topic = nested("metadata", version, "MetadataRequestTopic")(name=SECRET)
    response = await kafka.call("metadata", version, topics=(topic,))
    assert [(one.name, one.error_code.value) for one in response.topics] == [(SECRET, DENIED.code)]


async def test_all_topics_are_listed_and_the_denied_one_with_its_error(
    kafka: RawConnection, guard: Guard
) -> None:
    """An empty list of version 0, and none in version 1."""
    guard.secret_apis = ("metadata",)
    for version, topics in ((0, ()), (1, None)):
        response = await kafka.call("metadata", version, topics=topics)
        rows = {one.name: one.error_code.value for one in response.topics}
        assert rows == {OPEN: 0, SECRET: DENIED.code}


async def test_a_denied_request_is_not_handled(kafka: RawConnection, guard: Guard) -> None:
    """Its response carries the error, and nothing that the handler would have said."""
    fields = {"include_cluster_authorized_operations": False}
    response = await kafka.call("describe_cluster", 0, **fields)
    assert response.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert response.brokers == ()
    guard.closed = ()
    assert (await kafka.call("describe_cluster", 0, **fields)).brokers != ()


async def test_a_denied_produce_without_an_answer_ends_the_connection(
    kafka: RawConnection, native: NativeConnection, running: Running
) -> None:
    """acks=0 on both ports: the client could not learn of the error otherwise."""
    kafka.send_produce(9, 0, [PartitionData(SECRET, 0, BATCH)])
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    native.send(type="produce", topic=SECRET, partition=0, acks=0, batch=BATCH)
    with pytest.raises((EOFError, ConnectionError)):
        await native.receive()
    assert end_of(running, SECRET) == 0


async def test_the_native_port_passes_the_same_gate(
    native: NativeConnection, running: Running, guard: Guard
) -> None:
    """Messages have the names of the APIs that they stand for."""
    denied = await native.call("produce", topic=SECRET, partition=0, batch=BATCH)
    assert denied["error"]["code"] == DENIED.code
    served = await native.call("produce", topic=OPEN, partition=0, batch=BATCH)
    assert served["error"]["code"] == 0
    guard.closed = ("create_topics",)
    refused = await native.call("create_topic", topic="more")
    assert refused["error"]["code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (end_of(running, OPEN), end_of(running, SECRET)) == (1, 0)
    assert set(running.broker.registry.topics) == {OPEN, SECRET}
    asked = [(ANONYMOUS, name) for name in ("produce", "produce", "create_topics")]
    assert guard.asked[-3:] == asked


async def test_what_a_fault_rule_leaves_passes_the_gate(
    kafka: RawConnection, running: Running
) -> None:
    """A rule that refuses one partition lets no client past the judge with another."""
    await running.broker.services.topics.create(NewTopic(name="faulty"))
    rule = {"action": {"type": "error", "code": 7}, "match": {"api": "produce", "topic": "faulty"}}
    running.broker.faults.add(read_rules(rule))
    names = (OPEN, SECRET, "faulty")
    answers = await kafka.produce(9, -1, [PartitionData(name, 0, BATCH) for name in names])
    codes = {one.topic: one.error for one in answers}
    assert codes == {OPEN: 0, SECRET: DENIED.code, "faulty": 7}
    assert [end_of(running, name) for name in names] == [1, 0, 0]
