"""Messages of the native port need what their twins of the Kafka port need, with the same codes."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.names import Authorizer, IdempotentWriteAcl
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.acl import AclOperation
from tests.support.acls import AclEditor
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DESCRIBE, CLUSTER_ACTION = AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
BATCH = plain_batch([b"value"]).encode()
PLACE = {"topic": "t", "partition": 0}


async def code(native: NativeConnection, type_: str, **fields: Any) -> int:
    answer = await native.call(type_, **fields)
    return int(answer["error"]["code"])


@pytest.mark.parametrize(
    ("operation", "type_", "fields"),
    [
        (WRITE, "produce", {**PLACE, "batch": BATCH}),
        (WRITE, "produce", {**PLACE, "records": [{"value": bytes(10_000)}]}),
        (READ, "fetch", {**PLACE, "offset": 0, "max_wait_ms": 0}),
        (READ, "producer_state", PLACE),
        (WRITE, "lease_pid", PLACE),
    ],
)
async def test_messages_about_a_topic(
    native: NativeConnection,
    acls: AclEditor,
    operation: AclOperation,
    type_: str,
    fields: dict[str, Any],
) -> None:
    """29 without the right, whether the topic exists or not, and whether the message was sent before."""
    assert await code(native, type_, **fields) == 29
    assert await code(native, type_, **fields) == 29
    assert await code(native, type_, **{**fields, "topic": "missing"}) == 29
    await acls.allow(operation, "t")
    assert await code(native, type_, **fields) == 0


async def test_leases_of_several_partitions(native: NativeConnection, acls: AclEditor) -> None:
    """Each row has its own code."""
    await acls.allow(WRITE, "t")
    answer = await native.call("lease_pid", partitions=[["t", 0], ["u", 0]])
    assert [row["error"]["code"] for row in answer["partitions"]] == [0, 29]


async def test_producer_ids(native: NativeConnection, acls: AclEditor) -> None:
    """Write on any topic is enough."""
    assert await code(native, "init_producer_id") == 31
    await acls.allow(WRITE, "anything")
    assert await code(native, "init_producer_id") == 0


async def test_the_rule_before_kafka_2_8(tmp_path: Path) -> None:
    """idempotent_write_acl=cluster holds for batches with a producer id, built here or by the client."""
    settings = {"authorizer": Authorizer.ACL, "idempotent_write_acl": IdempotentWriteAcl.CLUSTER}
    numbered = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    ready = plain_batch([b"value"], **numbered).encode()
    large = [{"value": bytes(10_000)}]  # built in a thread, after the gate
    async with in_process(tmp_path, **settings) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        acls = AclEditor(running.broker.access)
        await acls.allow(WRITE, "t")
        native = await NativeConnection.open(running.native_address)
        assert await code(native, "init_producer_id") == 31
        assert await code(native, "produce", **PLACE, batch=ready) == 31
        assert await code(native, "produce", **PLACE, records=large, **numbered) == 31
        assert await code(native, "produce", **PLACE, records=large) == 0
        await acls.allow(AclOperation.IDEMPOTENT_WRITE)
        assert await code(native, "init_producer_id") == 0
        assert await code(native, "produce", **PLACE, batch=ready) == 0
        await native.close()


async def test_topics(native: NativeConnection, running: Running, acls: AclEditor) -> None:
    """Metadata leaves out what may not be described; creation needs Create."""
    assert (await native.call("metadata"))["topics"] == []
    await acls.allow(DESCRIBE, "t")
    assert [one["name"] for one in (await native.call("metadata"))["topics"]] == ["t"]
    named = (await native.call("metadata", topics=["t", "u", "missing"], may_create=True))["topics"]
    assert {one["name"]: one["error_code"] for one in named} == {"t": 0, "u": 29, "missing": 29}
    assert await code(native, "create_topic", topic="missing") == 29
    await acls.allow(CREATE)
    assert await code(native, "create_topic", topic="missing") == 0
    assert "missing" in running.broker.registry.topics


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        ("replica_fetch", {"broker_id": 2, "broker_epoch": 1, "partitions": []}),
        ("replica_wake", {"broker_id": 2, "session": 1}),
        (
            "replica_snapshot",
            {**PLACE, "broker_id": 2, "topic_id": uuid.UUID(int=7).bytes, "leader_epoch": 0},
        ),
        ("await_topic", {"topic": "t", "topic_id": uuid.UUID(int=7).bytes, "timeout_ms": 0}),
        ("note_tree", {"last_id": 7}),
        ("find_transactions", {"broker_id": 2, "producer_ids": [7]}),
        ("write_markers", {"broker_id": 2, "transactions": []}),
        ("add_or_verify", {"broker_id": 2, "transactions": []}),
        ("admin_read", {"name": "overview", "principal": "User:admin", "address": "h:1"}),
    ],
)
async def test_messages_between_brokers(
    native: NativeConnection, acls: AclEditor, type_: str, fields: dict[str, Any]
) -> None:
    """31 without ClusterAction on the cluster."""
    assert await code(native, type_, **fields) == 31
    await acls.allow(AclOperation.ALL, "*")
    assert await code(native, type_, **fields) == 31
    await acls.allow(CLUSTER_ACTION)
    assert await code(native, type_, **fields) != 31


async def test_everyone_may_say_hello(native: NativeConnection) -> None:
    """It tells only which broker answers."""
    assert await code(native, "hello", version=1) == 0
