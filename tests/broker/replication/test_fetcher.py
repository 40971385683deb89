"""The offsets that a follower reports to its leader, and when."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.config.loading import Address, Config, LogFlush
from echoless.broker.config.topic import TopicConfig
from echoless.broker.limited_log import RETRY_BURST
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.log_changes import LogChanges
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.replication import fetcher
from echoless.broker.replication.fetcher import Fetcher, FetcherContext
from echoless.broker.replication.fetchers import Fetchers
from echoless.broker.replication.follower import Follower
from echoless.broker.replication.peers import PeerError
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import SnapshotPiece
from echoless.protocol.record_batch import read_header
from echoless.storage.disk_work import one_by_one
from echoless.storage.file_system import OutOfDescriptorsError, StorageError
from echoless.storage.log import Log
from echoless.storage.producers.snapshot import encode_snapshot
from echoless.storage.producers.state import ProducerStates
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.fakes.memory_node_tree import turns
from tests.storage.log_workload import make_batch, new_file_system
from tests.storage.one_log import NOW_MS, OneLog
from tests.support.sync_guard import SyncGuard


class Leader:
    """Broker 2: answers the first fetch with a batch and notes what is asked."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.is_away = False

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        del broker_id, address, timeout_s
        if self.is_away:
            raise PeerError("it is away")
        (wanted,) = message["partitions"]
        self.offsets.append(wanted["offset"])
        if len(self.offsets) > 1:
            await asyncio.Event().wait()
        return {"partitions": [fetched(one_batch())], "error": {"code": 0}}

    def disconnect(self, broker_id: int) -> None: ...

    async def close(self) -> None: ...


def fetched(batches: bytes) -> dict[str, Any]:
    return {
        "error": 0,
        "high_watermark": 0,
        "log_start_offset": 0,
        "diverging": None,
        "batches": batches,
    }


def one_batch() -> bytes:
    """A batch as a leader in epoch 3 stored it at offset 0."""
    log = OneLog().log
    batch = make_batch(producer_id=1, epoch=0, sequence=0, count=1, size=20, timestamp=NOW_MS)
    log.append(batch, read_header(batch), 3, NOW_MS)
    return log.read_for_replica(0, 1000)


class Following:
    """A partition of broker 1 that follows broker 2."""

    def __init__(
        self,
        leader: Leader | None = None,
        log: Log | None = None,
        log_flush: LogFlush = LogFlush.COMMIT,
    ) -> None:
        self.dirty: list[Partition] = []
        self.failures: list[StorageError] = []
        self.leader = leader or Leader()
        self.partition = self.new_partition("orders", log or OneLog().log, log_flush)
        self.fetcher = Fetcher(2, self.context())
        self.fetcher.add(self.partition)
        self.task = asyncio.create_task(self.fetcher.run())

    def new_partition(self, topic: str, log: Log, log_flush: LogFlush) -> Partition:
        config = Config(log_flush=log_flush)
        partition = Partition(
            topic,
            0,
            uuid.UUID(int=7),
            log,
            config=config,
            rules=ProduceRules.of(TopicConfig.of(config, {})),
            high_watermark=0,
            fencing=FakeFencing(),
            on_dirty=self.dirty.append,
        )
        state = LeaderAndIsr(leader=2, leader_epoch=3, isr=(2, 1), node_version=1)
        partition.update(state, (1, 2))
        return partition

    def context(self) -> FetcherContext:
        return FetcherContext(
            broker_id=1,
            broker_epoch=lambda: 5,
            address_of=lambda _: Address("two", 1),
            peers=self.leader,
            log_changes=LogChanges(
                run_all=one_by_one, update=Partition.update, on_failure=lambda _: None
            ),
            now_ms=lambda: NOW_MS,
            metrics=Metrics(),
            on_failure=self.failures.append,
        )

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_what_is_not_on_disk_yet_is_not_claimed() -> None:
    """With `log_flush=commit` the next fetch lets the leader commit."""
    following = Following()
    await turns()
    assert following.partition.log.log_end_offset == 1
    assert following.leader.offsets == [0]
    following.partition.log.flush()
    following.partition.advance_high_watermark()
    await turns()
    assert following.leader.offsets == [0, 1]
    await following.end()


async def test_what_a_failed_disk_should_have_kept_is_never_claimed() -> None:
    """The waiting for the disk ends with its failure, as all waiting does."""
    following = Following()
    await turns()
    following.partition.waiters.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    await turns()
    assert following.leader.offsets == [0]
    await following.end()


@pytest.mark.parametrize("turns_between", range(6))
async def test_it_ends_also_while_something_changes(turns_between: int) -> None:
    """A change that comes just before the end must not hide it, since the stop waits for that."""
    following = Following()
    following.leader.is_away = True
    await turns()
    following.fetcher.wake()
    for _ in range(turns_between):
        await asyncio.sleep(0)
    following.task.cancel()
    await turns()
    assert following.task.cancelled()


@pytest.mark.parametrize(("isr", "begins_anew"), [((2,), True), ((2, 1), False)])
def test_an_empty_log_begins_with_the_leaders_producers(
    isr: tuple[int, ...], begins_anew: bool
) -> None:
    """It may have lost its end below the log start; but who is in sync must never go back."""
    one = OneLog()
    empty = encode_snapshot(100, ProducerStates())
    one.log.reset_to(100, empty, clock_ahead_ms=0, now_ms=NOW_MS)
    partition = SimpleNamespace(
        leader_id=2, leader_epoch=3, is_in_sync=1 in isr, log=one.log, isr=isr
    )
    follower = Follower(partition, Metrics())  # type: ignore[arg-type]
    assert (follower.bootstrap is not None) is begins_anew


class DivergingLeader(Leader):
    """Answers the first fetch with a batch, the second with a divergence, and then a fresh start."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = asyncio.Event()
        """Set when the follower asks for what comes after the fresh start."""

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        del broker_id, address, timeout_s
        if message["type"] == "replica_snapshot":
            data = encode_snapshot(100, ProducerStates())
            piece = SnapshotPiece(100, len(data), 0, data, 100, NOW_MS)
            return {**piece.to_answer(), "error": {"code": 0}}
        (wanted,) = message["partitions"]
        self.offsets.append(wanted["offset"])
        answers = [
            fetched(one_batch()),
            {**fetched(b""), "diverging": [-1, 0]},
            {"error": int(ErrorCode.OFFSET_OUT_OF_RANGE)},
        ]
        if len(self.offsets) > len(answers):
            self.has_begun.set()
            await asyncio.Event().wait()
        return {"partitions": [answers[len(self.offsets) - 1]], "error": {"code": 0}}


async def test_a_cut_and_a_fresh_start_wait_for_no_disk_on_the_event_loop() -> None:
    """The next fetch begins where the log ends then, and no earlier."""
    guard = SyncGuard(new_file_system())
    leader = DivergingLeader()
    following = Following(leader, OneLog(fs=guard).log, LogFlush.OS)
    guard.watch()
    log = following.partition.log
    await asyncio.wait_for(leader.has_begun.wait(), 60)
    assert following.leader.offsets == [0, 1, 0, 100]
    assert (log.log_start_offset, log.log_end_offset, log.is_changing) == (100, 100, False)
    assert following.partition.high_watermark == 100
    guard.check()
    await following.end()


class LeaderOfMany(Leader):
    """Answers the first fetch with a batch for each partition, and notes which are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: list[list[str]] = []

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        del broker_id, address, timeout_s
        self.topics.append([wanted["topic"] for wanted in message["partitions"]])
        if len(self.topics) > 1:
            await asyncio.Event().wait()
        answers = [fetched(one_batch()) for _ in message["partitions"]]
        return {"partitions": answers, "error": {"code": 0}}


async def test_a_follower_that_lacks_a_descriptor_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only it backs off: the others of the same answer are served, and fetched at once."""
    leader = LeaderOfMany()
    following = Following(leader, log_flush=LogFlush.OS)
    lack = OutOfDescriptorsError("orders-0", "the test says so")
    monkeypatch.setattr(following.partition.log, "append_replicated", raising(lack))
    other = following.new_partition("other", OneLog().log, LogFlush.OS)
    following.fetcher.add(other)
    await turns()
    assert other.log.log_end_offset == 1
    assert following.failures == [lack]
    assert [one.partition.name for one in following.fetcher._followed._paused] == ["orders-0"]
    assert len(leader.topics) == 2
    await following.end()


@pytest.mark.parametrize("log_flush", LogFlush)
async def test_a_log_whose_change_failed_is_not_fetched(log_flush: LogFlush) -> None:
    """It takes nothing until the next start, and no flush that the others would wait for."""
    leader = LeaderOfMany()
    following = Following(leader, log_flush=log_flush)
    one = following.partition.log
    batch = make_batch()
    one.append(batch, read_header(batch), 0, NOW_MS)
    one.failure = OutOfDescriptorsError("orders-0", "the test says so")
    other = following.new_partition("other", OneLog().log, log_flush)
    following.fetcher.add(other)
    await turns()
    assert other.log.log_end_offset == 1
    assert leader.topics[0] == ["other"]
    await following.end()


async def test_a_change_that_fails_at_the_start_of_a_follower_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No flush of that log is waited for in the same round: its flusher leaves it alone."""
    leader = LeaderOfMany()
    following = Following(leader, log_flush=LogFlush.COMMIT)
    one = following.partition.log
    batch = make_batch()
    one.append(batch, read_header(batch), 0, NOW_MS)
    (follower,) = following.fetcher._followed.to_name
    follower.restart_bootstrap()
    following.fetcher._followed.ask(follower)

    async def fail_half_way(_fetcher: Fetcher, _follower: Follower) -> None:
        one.failure = OutOfDescriptorsError("orders-0", "the test says so")

    monkeypatch.setattr(Fetcher, "_fetch_snapshot_piece", fail_half_way)
    other = following.new_partition("other", OneLog().log, LogFlush.COMMIT)
    following.fetcher.add(other)
    await turns()
    assert other.log.log_end_offset == 1
    await following.end()


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


async def test_what_is_lost_to_another_leader_is_fetched_from_it() -> None:
    """It is fetched until this broker leads it, or stops following because its disk has failed."""
    following = Following()
    await following.end()
    fetchers, asked = Fetchers(following.context()), following.leader.offsets
    asked.clear()
    fetchers.lost(following.partition)
    await turns()
    assert asked == [0]
    state = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1,), node_version=2)
    following.partition.update(state, (1, 2))
    fetchers.led(following.partition, 4)
    await turns()
    assert asked == [0]
    fetchers.end()
    state = LeaderAndIsr(leader=2, leader_epoch=5, isr=(2,), node_version=3)
    following.partition.update(state, (1, 2))
    fetchers.lost(following.partition)
    await turns()
    assert asked == [0]
    await fetchers.close()


class RefusingLeader(Leader):
    """Refuses the one partition it is asked for, as a leader without a proof of its session does."""

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        del broker_id, address, timeout_s
        (wanted,) = message["partitions"]
        self.offsets.append(wanted["offset"])
        await asyncio.sleep(0)
        refused = {**fetched(b""), "error": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
        return {"partitions": [refused], "error": {"code": 0}}


async def test_a_leader_that_refuses_again_and_again_costs_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every partition is refused twenty times a second while the coordinator is away; the rest is counted."""
    monkeypatch.setattr(fetcher, "REFUSED_PAUSE_S", 0.0)
    caplog.set_level(logging.INFO)
    leader = RefusingLeader()
    following = Following(leader)
    while len(leader.offsets) < 200:
        await turns(1)
    await following.end()
    assert len(caplog.records) == RETRY_BURST
    fetcher.limited.summarise()
    assert "more lines about broker 2 were left out" in caplog.text
