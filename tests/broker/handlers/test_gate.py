"""The gate of both ports: what ACLs do not allow is refused, and nothing else is; no API forgets to ask."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.authorization.access import Rights
from echoless.broker.config.names import AllowFaults, Authorizer
from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.handlers import permits, served
from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.handlers.loaded import load
from echoless.broker.handlers.permits import closed
from echoless.broker.handlers.request_topics import without
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.native.exchange import HANDLERS
from echoless.broker.native.permits import PERMITS
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import GROUP, commit_request, committed, created
from tests.support.acls import AclEditor
from tests.support.in_process import Running, in_process
from tests.support.kio_requests import smallest_request
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import ConnectionEndedError, RawConnection, list_offset, nested
from tests.support.raw_produce import PartitionData

OPEN, SECRET = "open", "secret"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BATCH = plain_batch([b"value"]).encode()
LATEST = -1
ABOUT_SOMETHING: dict[str, Any] = {
    "resource_type": 2,
    "coordinator_keys": ("group",),
    "transactional_ids": ("none",),
    "include_cluster_authorized_operations": True,
}
"""Fields whose smallest value leaves nothing to ask about."""
ASK_NOTHING = {"api_versions", "sasl_handshake", "sasl_authenticate", "list_transactions"}
"""APIs for everyone: clients send the first three before they have authenticated, and the last one asks about what it finds."""


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker with two topics, of which one is secret."""
    settings = {"authorizer": Authorizer.ACL, "allow_faults": AllowFaults.TRUE}
    async with in_process(tmp_path, **settings) as running:
        for name in (OPEN, SECRET):
            await running.broker.services.topics.create(NewTopic(name=name))
        acls = AclEditor(running.broker.access)
        await acls.allow(AclOperation.ALL, "*")
        await acls.allow(AclOperation.DESCRIBE)
        await acls.deny(AclOperation.ALL, SECRET)
        yield running


def end_of(running: Running, topic: str) -> int:
    return running.broker.partitions[topic, 0].log.log_end_offset


async def test_a_denied_topic_is_refused_and_the_other_is_served(
    kafka: RawConnection, running: Running
) -> None:
    """One response has the rows of both."""
    rows = [PartitionData(OPEN, 0, BATCH), PartitionData(SECRET, 0, BATCH)]
    answers = await kafka.produce(9, -1, rows)
    assert {one.topic: one.error for one in answers} == {OPEN: 0, SECRET: DENIED}
    assert (end_of(running, OPEN), end_of(running, SECRET)) == (1, 0)
    assert await list_offset(kafka, OPEN, 0, LATEST) == 1


@pytest.mark.parametrize("version", [0, 1])
async def test_nothing_is_left_of_a_request_for_what_is_denied(
    kafka: RawConnection, version: int
) -> None:
    """Metadata without its only topic: in version 0 an empty list would ask for all of them."""
    topic = nested("metadata", version, "MetadataRequestTopic")(name=SECRET)
    response = await kafka.call("metadata", version, topics=(topic,))
    assert [(one.name, one.error_code.value) for one in response.topics] == [(SECRET, DENIED)]


async def test_all_topics_are_listed_without_the_denied_one(kafka: RawConnection) -> None:
    """An empty list of version 0, and none in version 1."""
    for version, topics in ((0, ()), (1, None)):
        response = await kafka.call("metadata", version, topics=topics)
        assert {one.name: one.error_code.value for one in response.topics} == {OPEN: 0}


async def test_a_denied_request_is_not_handled(kafka: RawConnection, running: Running) -> None:
    """Its response carries the error, and nothing that the handler would have done."""
    topic = nested("create_topics", 2, "CreatableTopic")
    new = topic(name=SECRET, num_partitions=1, replication_factor=1, assignments=(), configs=())
    await running.broker.services.topics.delete(SECRET)
    request: dict[str, Any] = {"topics": (new,), "validate_only": False}
    response = await kafka.call("create_topics", 2, **request)
    assert [one.error_code.value for one in response.topics] == [DENIED]
    assert SECRET not in running.broker.registry.topics


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
    native: NativeConnection, running: Running
) -> None:
    """A message needs what the API needs that it stands for."""
    denied = await native.call("produce", topic=SECRET, partition=0, batch=BATCH)
    assert denied["error"]["code"] == DENIED
    served = await native.call("produce", topic=OPEN, partition=0, batch=BATCH)
    assert served["error"]["code"] == 0
    await AclEditor(running.broker.access).deny(AclOperation.CREATE, "more")
    refused = await native.call("create_topic", topic="more")
    assert refused["error"]["code"] == DENIED
    assert (end_of(running, OPEN), end_of(running, SECRET)) == (1, 0)
    assert set(running.broker.registry.topics) == {OPEN, SECRET}


async def test_what_a_fault_rule_leaves_passes_the_gate(
    kafka: RawConnection, running: Running
) -> None:
    """A rule that refuses one partition lets no client past the ACLs with another."""
    await running.broker.services.topics.create(NewTopic(name="faulty"))
    rule = {"action": {"type": "error", "code": 7}, "match": {"api": "produce", "topic": "faulty"}}
    running.broker.faults.add(read_rules(rule))
    names = (OPEN, SECRET, "faulty")
    answers = await kafka.produce(9, -1, [PartitionData(name, 0, BATCH) for name in names])
    codes = {one.topic: one.error for one in answers}
    assert codes == {OPEN: 0, SECRET: DENIED, "faulty": 7}
    assert [end_of(running, name) for name in names] == [1, 0, 0]


@pytest.mark.parametrize("name", sorted(API_BY_NAME))
async def test_every_api_asks(
    kafka: RawConnection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An API without a rule is closed to everyone; one whose rule or handler asks nothing fails here."""
    served = load(API_BY_NAME[name])
    assert served.permit is not closed, f"{name} needs a permit (broker/handlers/permits.py)"
    asked: list[str] = []
    for method in ("allowed", "may_with_any"):
        monkeypatch.setattr(Rights, method, _recording(asked, getattr(Rights, method)))
    kafka.send_request(_filled(smallest_request(name, served.api.version_max, elements=1)))
    await kafka.receive()
    assert bool(asked) is (name not in ASK_NOTHING)


def _filled(entity: Any) -> Any:
    """The request, about something that ACLs can be about."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        if field.name in ABOUT_SOMETHING:
            changes[field.name] = ABOUT_SOMETHING[field.name]
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            changes[field.name] = tuple(map(_filled, value))
    return dataclasses.replace(entity, **changes)


def _recording(asked: list[str], method: Any) -> Any:
    def record(self: Rights, *args: Any) -> Any:
        asked.append(method.__name__)
        return method(self, *args)

    return record


def test_every_native_message_has_a_permit() -> None:
    """One that is forgotten would fail at its first request."""
    assert PERMITS.keys() == {*HANDLERS, "replica_fetch", "replica_wake"}


@pytest.mark.parametrize("named", [(OPEN, SECRET), (SECRET,)])
async def test_a_long_request_is_judged_like_a_short_one(
    kafka: RawConnection, named: tuple[str, ...]
) -> None:
    """In turns of the event loop, and with the same codes; nothing else is left of it, or something is."""
    more = [f"{SECRET}-{number:05}" for number in range(1000)] if OPEN in named else []
    row = nested("list_offsets", 5, "ListOffsetsPartition")
    topic = nested("list_offsets", 5, "ListOffsetsTopic")
    rows = tuple(row(partition_index=0, timestamp=LATEST) for _ in range(1 if more else 1000))
    answer = await kafka.call(
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=0,
        topics=tuple(topic(name=name, partitions=rows) for name in (*named, *more)),
    )
    codes = {one.name: {part.error_code for part in one.partitions} for one in answer.topics}
    unknown = {name: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} for name in more}
    expected = {OPEN: {0}, SECRET: {DENIED}}
    assert codes == {name: expected[name] for name in named} | unknown


async def test_refused_rows_of_a_long_commit_are_taken_out_beside_the_loop(
    kafka: RawConnection, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in its place: a commit behind it on the connection counts, one that it would overtake does not."""
    acls = AclEditor(running.broker.access)
    await acls.allow(AclOperation.ALL, GROUP, resource_type=ResourceType.GROUP)
    await created(kafka)
    is_on_loop: list[bool] = []

    def noted(*arguments: Any) -> Any:
        is_on_loop.append(threading.current_thread() is threading.main_thread())
        return without(*arguments)

    for module in (permits, served):
        monkeypatch.setattr(module, "without", noted)
    long = {(OPEN, 0): 1} | {(SECRET, index): 1 for index in range(2000)}
    kafka.send_request(commit_request(long))
    kafka.send_request(commit_request({(OPEN, 0): 2}))
    answer = await kafka.receive_response("offset_commit", 9)
    codes = {topic.name: {row.error_code for row in topic.partitions} for topic in answer.topics}
    assert codes == {OPEN: {0}, SECRET: {DENIED}}
    assert sum(len(topic.partitions) for topic in answer.topics) == len(long)
    await kafka.receive_response("offset_commit", 9)
    assert is_on_loop == [False]
    assert [row[2] for row in await committed(kafka, None)] == [2]
