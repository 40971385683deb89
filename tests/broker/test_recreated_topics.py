"""A topic that is deleted and created again: its producers go on, and no one else begins in mid-sequence."""

from __future__ import annotations

import pytest

from echoless.broker.broker import Broker
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import read_header
from echoless.storage.appended import Appended
from tests.broker.test_restart import CLUSTER, HOUR_MS, STAND_ALONE, Host
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS

DAY_MS = 24 * HOUR_MS


async def issue(broker: Broker) -> int:
    return await broker.producer_ids.wait_for_producer_id()


async def append(host: Host, producer_id: int, sequence: int) -> Appended | Duplicate | Reject:
    partition = await host.led("orders")
    batch = make_batch(producer_id=producer_id, epoch=0, sequence=sequence, timestamp=NOW_MS)
    assert host.broker is not None
    return partition.append(batch, read_header(batch), host.broker.clock.steady_ms())


async def recreate(broker: Broker) -> None:
    await broker.services.topics.delete("orders")
    await broker.services.topics.create(NewTopic(name="orders"))


def code_of(answer: Appended | Duplicate | Reject) -> ErrorCode:
    assert isinstance(answer, Reject), answer
    return answer.code


@pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
@pytest.mark.parametrize("is_used", [False, True])
async def test_who_was_there_goes_on_and_others_begin_at_0(
    coordinator: str, *, is_used: bool
) -> None:
    """The same when another producer has stored a record before, and after a restart."""
    host = Host(coordinator)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    old = await issue(broker)
    assert isinstance(await append(host, old, 0), Appended)
    await recreate(broker)
    new = await issue(broker)
    assert new > old
    if is_used:
        assert isinstance(await append(host, new, 0), Appended)
    refused = ErrorCode.UNKNOWN_PRODUCER_ID if is_used else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(await append(host, await issue(broker), 1)) is refused
    await host.restart(is_clean=False)
    assert isinstance(await append(host, old, 1), Appended)
    assert isinstance(await append(host, old, 1), Duplicate)
    assert code_of(await append(host, old, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert host.broker is not None
    await host.broker.stop()


async def test_a_partition_that_is_new_was_no_ones_before() -> None:
    """The deleted topic had fewer partitions: what begins in mid-sequence here leaves a gap."""
    host = Host(STAND_ALONE)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    old = await issue(broker)
    await broker.services.topics.delete("orders")
    await broker.services.topics.create(NewTopic(name="orders", partitions=2))
    await broker.services.topics.create_partitions("orders", 3)
    for index in (1, 2):
        partition = broker.services.partitions.find("orders", index)
        batch = make_batch(producer_id=old, epoch=0, sequence=5, timestamp=NOW_MS)
        answer = partition.append(batch, read_header(batch), NOW_MS)
        assert code_of(answer) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await broker.stop()


async def test_a_topic_that_is_the_first_of_its_name_is_closed_to_older_producers_too() -> None:
    """A producer older than the topic has never been there: it begins at 0 (KAFKA-15591)."""
    host = Host(STAND_ALONE)
    broker = await host.start()
    old = await issue(broker)
    await broker.services.topics.create(NewTopic(name="orders"))
    assert code_of(await append(host, old, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await broker.stop()
