"""Markers on real partitions: what is appended, when it is answered, and with which code."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.partitions.partition import Partition
from echoless.broker.records import markers as markers_module
from echoless.broker.records.markers import TRANSACTION_STATE, MarkerWriter
from echoless.protocol.control_records import EndMarker, MarkerType, read_marker
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionMarker, WriteMarkers
from echoless.protocol.record_batch import read_header
from echoless.protocol.state_records.transaction_records import NO_TOPIC_ID, TransactionPartition
from tests.broker.records.test_same_leader import Led
from tests.broker.until import until
from tests.support.in_process import Running, in_process
from tests.support.in_process_cluster import in_process_cluster
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, create_topic
from tests.support.transactions_by_hand import HandMadeTransactions

P = 7
SILENT = 2
STATE_PARTITION = 3


def marker(
    partitions: Sequence[TransactionPartition],
    *,
    is_commit: bool = True,
    number: int = 0,
    epoch: int = 0,
    coordinator_epoch: int = 4,
) -> TransactionMarker:
    return TransactionMarker(
        producer_id=P,
        producer_epoch=epoch,
        number=number,
        is_commit=is_commit,
        state_partition=STATE_PARTITION,
        coordinator_epoch=coordinator_epoch,
        client_version=2,
        partitions=tuple(partitions),
    )


def in_transaction(partition: Partition) -> TransactionPartition:
    return TransactionPartition(partition.topic, partition.index, partition.topic_id.bytes)


class One:
    """Partition 0 of a topic, and the writer of its broker."""

    def __init__(self, running: Running) -> None:
        self.services = running.broker.services
        self.partition = running.broker.partitions["t", 0]
        self.hand = HandMadeTransactions(self.partition)
        self.topics: dict[str, Any] = {}
        self.writer = MarkerWriter(self.services.produce, self.topics)

    async def write(self, **fields: Any) -> ErrorCode:
        """The code of a marker for the partition."""
        ((code,),) = await self.writer.write([marker([in_transaction(self.partition)], **fields)])
        return code

    def marker_at(self, offset: int) -> EndMarker | None:
        return read_marker(self.partition.log.read(offset, 1, self.partition.log.log_end_offset))

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset


@pytest.fixture
async def one(running: Running, kafka: RawConnection) -> One:
    await create_topic(kafka, "t", 1)
    return One(running)


async def test_a_marker_ends_the_transaction_and_says_whose_it_is(one: One) -> None:
    one.hand.write(P, b"a", b"b")
    assert one.partition.last_stable_offset == 0
    assert await one.write(number=5) is ErrorCode.NONE
    assert one.marker_at(2) == EndMarker(MarkerType.COMMIT, 4, 5)
    assert (one.end, one.partition.last_stable_offset) == (3, 3)


async def test_a_repetition_is_answered_and_not_stored(one: One) -> None:
    """Nothing is ended by it: neither once more, nor the producer's next transaction."""
    one.hand.write(P, b"a")
    assert await one.write() is ErrorCode.NONE
    one.hand.write(P, b"b")
    assert await one.write() is ErrorCode.NONE
    assert (one.end, one.partition.last_stable_offset) == (3, 2)


async def test_what_the_log_refuses_is_the_answer(one: One) -> None:
    one.hand.write(P, b"a")
    assert await one.write(number=1, epoch=3, is_commit=False) is ErrorCode.NONE
    assert one.marker_at(1) == EndMarker(MarkerType.ABORT, 4, 1)
    assert await one.write(number=1, epoch=3) is ErrorCode.INVALID_TXN_STATE
    assert await one.write(number=2, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    older = await one.write(number=2, epoch=3, coordinator_epoch=3)
    assert older is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert one.end == 2


async def test_a_coordinator_that_was_replaced_is_refused(one: One) -> None:
    """Refused by the state of its partition, where no newer one has left a marker."""
    one.hand.write(P, b"a")
    led = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1,))
    one.topics[TRANSACTION_STATE] = SimpleNamespace(states={STATE_PARTITION: led})
    refused = await one.write(coordinator_epoch=4)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert one.end == 1
    assert await one.write(coordinator_epoch=5) is ErrorCode.NONE


async def test_a_topic_is_meant_by_its_id(one: One) -> None:
    """A marker for a deleted topic does not reach one of the same name."""
    one.hand.write(P, b"a")
    gone = TransactionPartition("t", 0, uuid.UUID(int=9).bytes)
    unnamed, missing = TransactionPartition("t", 0), TransactionPartition("t", 8)
    codes = await one.writer.write([marker([gone, missing]), marker([unnamed])])
    assert [list(row) for row in codes] == [
        [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.NONE],
    ]
    assert unnamed.topic_id == NO_TOPIC_ID
    assert one.end == 2


async def test_groups_are_waited_for_on_their_topic_alone(
    one: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[int] = []

    async def settle(partition: Partition, next_offset: int) -> ErrorCode:
        assert partition.high_watermark == one.end == next_offset
        settled.append(next_offset)
        await asyncio.sleep(0)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    one.writer.settle_offsets = settle
    one.hand.write(P, b"a")
    assert await one.write(number=1) is ErrorCode.NONE
    assert settled == []
    monkeypatch.setattr(markers_module, "CONSUMER_OFFSETS", "t")
    one.hand.write(P, b"a")
    assert await one.write(number=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert settled == [4]


async def test_the_time_of_the_append_is_that_of_the_wall(running: Running, one: One) -> None:
    one.partition.log.reconfigure(replace(one.partition.log.config, log_append_time=True))
    before_ms = running.broker.clock.wall_ms()
    assert await one.write() is ErrorCode.NONE
    stored = read_header(one.partition.log.read(0, 1, 1))
    assert before_ms <= stored.max_timestamp <= time.time() * 1000


# --- replicas ---


class Replicated(One):
    """The same with a follower that is in sync, and silent."""

    def __init__(self, running: Running, kafka: RawConnection) -> None:
        super().__init__(running)
        self.led = Led(self.partition, kafka)
        self.led.state(1, self.partition.leader_epoch, 1, SILENT)

    async def written(self, **fields: Any) -> asyncio.Task[ErrorCode]:
        """The answer to come, for a marker that is in the log."""
        end = self.end
        answer = asyncio.ensure_future(self.write(**fields))
        await until(lambda: self.end > end)
        await asyncio.sleep(0)
        assert not answer.done()
        return answer


@pytest.fixture
async def two(running: Running, kafka: RawConnection) -> Replicated:
    await create_topic(kafka, "t", 1)
    return Replicated(running, kafka)


async def test_it_is_answered_once_every_replica_in_sync_has_it(two: Replicated) -> None:
    """And so is a repetition, which comes while the first is on its way."""
    first = await two.written()
    repeated = asyncio.ensure_future(two.write())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    assert not repeated.done()
    two.led.state(1, two.partition.leader_epoch, 1)
    assert [await first, await repeated] == [ErrorCode.NONE, ErrorCode.NONE]
    assert two.end == 1


async def test_another_leader_may_have_cut_it_off(two: Replicated) -> None:
    answer = await two.written()
    two.led.state(SILENT, two.partition.leader_epoch + 1, 1, SILENT)
    assert await answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await two.write(number=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_too_few_replicas(two: Replicated) -> None:
    """Before the append 19; after it 20, as with acks=all."""
    two.partition.rules = replace(two.partition.rules, min_insync_replicas=2)
    answer = await two.written()
    two.led.state(1, two.partition.leader_epoch, 1)
    assert await answer is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert await two.write(number=1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert two.end == 1


async def test_it_does_not_wait_for_ever(two: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers_module, "COMMITTED_WITHIN_S", 0.05)
    assert await (await two.written()) is ErrorCode.REQUEST_TIMED_OUT


async def test_followers_have_what_was_answered(tmp_path: Path) -> None:
    """Followers know the transaction as ended; asked by the message between brokers."""
    async with in_process_cluster(tmp_path) as brokers:
        services = brokers[0].broker.services
        await services.topics.create(NewTopic(name="t", assignment={0: (1, 2, 3)}))
        partitions = [running.broker.partitions["t", 0] for running in brokers]
        HandMadeTransactions(partitions[0]).write(P, b"a")
        message = WriteMarkers(2, [marker([in_transaction(partitions[0])], number=6)])
        answer = await brokers[1].broker.services.cluster.ask(
            1, message.to_message(), timeout_s=20.0
        )
        assert answer["transactions"] == [{"codes": [0]}]
        assert [one.log.log_end_offset for one in partitions] == [2, 2, 2]
        last = [one.log.producers.last_marker(P) for one in partitions]
        assert [one and (one.type, one.number) for one in last] == [(MarkerType.COMMIT, 6)] * 3
        other = await services.cluster.ask(2, message.to_message(), timeout_s=20.0)
        assert other["transactions"] == [{"codes": [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]}]


# --- messages ---


async def test_a_message_without_markers_is_answered(native: NativeConnection) -> None:
    answer = await native.call("write_markers", broker_id=1, transactions=[])
    assert (answer["error"]["code"], answer["transactions"]) == (0, [])


async def test_many_markers_take_turns(tmp_path: Path) -> None:
    """Fifty thousand partitions do not hold others up, and each is answered in its place."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        one = One(running)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        missing = [TransactionPartition("gone", index) for index in range(50_000)]
        ((*codes, last),) = await one.writer.write(
            [marker([*missing, in_transaction(one.partition)])]
        )
        counting.cancel()
        assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert last is ErrorCode.NONE
        assert turns > 5
        await kafka.close()
