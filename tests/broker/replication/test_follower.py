"""A follower's handling of its leader's answers."""

from __future__ import annotations

import uuid

import pytest

from broker.config.loading import Config
from broker.config.topic import TopicConfig
from broker.metadata.node_data import PartitionState
from broker.metrics import Metrics
from broker.partitions.partition import Partition
from broker.partitions.produce_rules import ProduceRules
from broker.replication.follower import Follower
from protocol.errors import DecodeError, ErrorCode
from protocol.native.replication import ReplicaFetched
from storage.producers.snapshot import encode_snapshot
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.storage.one_log import NOW_MS, OneLog

LEADER = 2


def following(one: OneLog) -> Follower:
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
        on_dirty=lambda _: None,
    )
    state = PartitionState(leader=LEADER, leader_epoch=3, isr=(LEADER,))
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
    one.log.start_anew_at(2, snapshot, clock_ahead_ms=0, now_ms=NOW_MS)
    with pytest.raises(DecodeError):
        follower.take(answer_with(leader, 2), NOW_MS)
    assert follower.bootstrap is not None


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
