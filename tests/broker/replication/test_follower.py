"""A follower's handling of its leader's answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.config.topic import TopicConfig
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.replication.follower import Follower
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.native.replication import ReplicaFetched
from echoless.storage.file_system import OutOfDescriptorsError
from echoless.storage.log_config import LogConfig
from echoless.storage.producers.snapshot import encode_snapshot
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.storage.one_log import NOW_MS, SMALL, OneLog

LEADER = 2


def following(one: OneLog, on_dirty: Callable[[Partition], None] = lambda _: None) -> Follower:
    """The log's partition as a follower of broker 2."""
    config = Config()
    partition = Partition(
        "orders",
        0,
        uuid.UUID(int=7),
        one.log,
        config=config,
        rules=ProduceRules.of(TopicConfig.of(config, {})),
        high_watermark=0,
        fencing=FakeFencing(),
        on_dirty=on_dirty,
    )
    state = LeaderAndIsr(leader=LEADER, leader_epoch=3, isr=(LEADER,))
    partition.update(state, (1, LEADER))
    return Follower(partition, Metrics())


def answer_with(leader: OneLog, offset: int) -> ReplicaFetched:
    """The answer of the leader's log to a fetch at `offset`."""
    batches = leader.log.read_for_replica(offset, 10_000)
    return ReplicaFetched(ErrorCode.NONE, leader.log.log_end_offset, 0, None, batches)


async def test_an_empty_log_in_the_middle_of_a_batch_begins_anew() -> None:
    """After an unclean election the new leader's batches may begin elsewhere than the old one's."""
    leader = OneLog()
    leader.append(count=3, leader_epoch=3)
    follower = following(one := OneLog())
    snapshot = encode_snapshot(2, one.log.producers)
    one.log.reset_to(2, snapshot, clock_ahead_ms=0, now_ms=NOW_MS)
    with pytest.raises(DecodeError):
        follower.take(answer_with(leader, 2), NOW_MS)
    assert follower.bootstrap is not None


async def test_what_was_appended_before_a_failure_is_flushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches for which a new segment could not be opened leave those before them to be flushed."""
    leader = OneLog(LogConfig(segment_bytes=10 * SMALL.segment_bytes, retention_ms=-1))
    for _ in range(20):
        leader.append(leader_epoch=3)
    dirty: list[Partition] = []
    follower = following(one := OneLog(), dirty.append)
    lack = OutOfDescriptorsError("orders-0", "the test says so")

    def refuse(*_: object) -> None:
        raise lack

    monkeypatch.setattr(one.log, "_roll", refuse)
    with pytest.raises(OutOfDescriptorsError):
        follower.take(answer_with(leader, 0), NOW_MS)
    assert 0 < one.log.log_end_offset < leader.log.log_end_offset
    assert dirty == [follower.partition]


async def test_a_senseless_answer_leaves_a_log_with_records_as_it_is() -> None:
    """The existing records were agreed upon: the follower asks again, and discards nothing."""
    leader = OneLog()
    leader.append(count=3, leader_epoch=3)
    follower = following(one := OneLog())
    one.append(leader_epoch=3)
    with pytest.raises(DecodeError):
        follower.take(answer_with(leader, 0), NOW_MS)
    assert follower.bootstrap is None
    assert one.log.log_end_offset == 1
