"""`lease_pid` over a real socket: one lease or many, errors, and ids that no one else gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echoless.broker.metadata.producer_id_block import PATH, ProducerIdBlock
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.protocol.errors import ErrorCode
from echoless.protocol.leases import LEASE_MARGIN_MS, LEASED_ID_END, LEASED_ID_MIN, is_leased
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection

DAY_MS = 86_400_000


@pytest.fixture
async def topic(native: NativeConnection) -> str:
    """A topic of three partitions."""
    await native.call("create_topic", topic="orders", partitions=3)
    return "orders"


async def lease(native: NativeConnection, **fields: Any) -> dict[str, Any]:
    return await native.call("lease_pid", **fields)


async def test_one_lease(native: NativeConnection, running: Running, topic: str) -> None:
    """A fresh id from its first sequence on, and for how long."""
    before_ms = running.broker.clock.wall_ms()
    answer = await lease(native, topic=topic, partition=2)
    after_ms = running.broker.clock.wall_ms()
    assert answer["error"]["code"] == ErrorCode.NONE
    assert is_leased(answer["pid"])
    assert (answer["generation"], answer["sequence_number"]) == (0, 0)
    assert before_ms + DAY_MS <= answer["expire_ms"] <= after_ms + DAY_MS
    assert (answer["lease_ms"], answer["retention_ms"]) == (DAY_MS, DAY_MS + LEASE_MARGIN_MS)


async def test_many_leases(native: NativeConnection, topic: str) -> None:
    """A row for each in their order, each with its own id, and its own error."""
    wanted = [[topic, 1], ["nowhere", 0], [topic, 3], [topic, 0], [topic, 1], ["a b", 0]]
    answer = await lease(native, partitions=wanted)
    rows = answer["partitions"]
    assert [[row["topic"], row["partition"]] for row in rows] == wanted
    names = [row["error"]["name"] for row in rows]
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert names == ["NONE", unknown, unknown, "NONE", "NONE", "INVALID_TOPIC_EXCEPTION"]
    pids = [row["pid"] for row in rows if row["pid"] >= 0]
    assert len(set(pids)) == 3
    assert (await lease(native, partitions=[]))["partitions"] == []


async def test_ids_of_all_kinds_come_from_the_same_blocks(
    native: NativeConnection, topic: str
) -> None:
    """A number is taken once: as an id, or as a leased id."""
    numbers = []
    for _ in range(3):
        numbers.append((await native.call("init_producer_id"))["producer_id"])
        numbers.append((await lease(native, topic=topic, partition=0))["pid"] - LEASED_ID_MIN)
    assert numbers == list(range(numbers[0], numbers[0] + 6))


async def test_a_leased_id_writes_like_any_other(native: NativeConnection, topic: str) -> None:
    """Its repeats are recognised, too."""
    leased = await lease(native, topic=topic, partition=0)
    batch = {
        "topic": topic,
        "partition": 0,
        "producer_id": leased["pid"],
        "producer_epoch": leased["generation"],
        "base_sequence": leased["sequence_number"],
        "records": [{"value": "one"}],
    }
    answers = [await native.call("produce", **batch) for _ in range(2)]
    assert [answer["duplicate"] for answer in answers] == [False, True]
    state = await native.call("producer_state", topic=topic, partition=0)
    assert [entry["producer_id"] for entry in state["producers"]] == [leased["pid"]]


async def test_a_lease_that_ended_is_known_over_a_restart(tmp_path: Path) -> None:
    """A resend whose lease is over meets its original, where every other producer is forgotten."""
    short: dict[str, Any] = {"producer_lease_ms": 1, "producer_id_expiration_ms": 1}
    batch: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "producer_epoch": 0,
        "base_sequence": 0,
    }
    batch["records"] = [{"value": "one"}]
    async with in_process(tmp_path, **short) as running:
        native = await NativeConnection.open(running.native_address)
        await native.call("create_topic", topic="orders")
        leased = (await lease(native, topic="orders", partition=0))["pid"]
        for producer_id in (7, leased):
            await native.call("produce", producer_id=producer_id, **batch)
        await native.close()
    async with in_process(tmp_path, **short) as running:
        log = running.broker.partitions["orders", 0].log
        appended_ms = dict(log.producers.items())[leased].last_append_ms
        log.expire_producers(appended_ms + LEASE_MARGIN_MS)
        assert [one for one, _ in log.producers.items()] == [leased]
        native = await NativeConnection.open(running.native_address)
        answer = await native.call("produce", producer_id=leased, **batch)
        assert (answer["duplicate"], answer["base_offset"]) == (True, 1)
        await native.close()
        assert log.expire_producers(appended_ms + LEASE_MARGIN_MS + 1) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic": "orders"},
        {"topic": "orders", "partition": "0"},
        {"topic": "orders", "partition": 0, "partitions": []},
        {"partitions": [["orders"]]},
        {"partitions": [["orders", True]]},
        {"partitions": [["orders", 2**31]]},
        {"partitions": [[7, 0]]},
        {"partitions": {"orders": 0}},
    ],
)
async def test_a_message_that_makes_no_sense(
    native: NativeConnection, fields: dict[str, Any]
) -> None:
    """The answer is INVALID_REQUEST, and the connection stays open."""
    assert (await lease(native, **fields))["error"]["name"] == "INVALID_REQUEST"
    assert (await native.call("hello"))["error"]["name"] == "NONE"


@pytest.mark.parametrize("last", [LEASED_ID_MIN - 5, LEASED_ID_MIN, LEASED_ID_END - 2])
async def test_blocks_leave_out_the_leased_ids(last: int) -> None:
    """A block that would reach into the range begins after it."""
    tree = MemoryNodeTree(MemoryTree())
    await tree.create(PATH, ProducerIdBlock(9, last - 1, last).encode())
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    assert await ids.wait_for_producer_id() == LEASED_ID_END
    await ids.close()


async def test_a_block_just_below_the_leased_ids() -> None:
    """Ends with the last number that can be leased."""
    tree = MemoryNodeTree(MemoryTree())
    await tree.create(PATH, ProducerIdBlock(9, 0, LEASED_ID_MIN - 11).encode())
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    numbers = [await ids.wait_for_producer_id() for _ in range(11)]
    assert numbers[-2:] == [LEASED_ID_MIN - 1, LEASED_ID_END]
    await ids.close()
