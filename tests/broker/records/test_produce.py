"""The fate of a batch: what its client gets besides the code."""

from __future__ import annotations

from echoless.broker.config.loading import LogFlush
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.records.append import _other_leader
from tests.broker.partitions.test_partition import Led


async def test_a_client_is_sent_to_another_leader_or_to_nobody() -> None:
    """A broker that leads itself and refuses for now has nothing to say, nor has one without a role."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    assert _other_leader(led.partition) is None
    state = LeaderAndIsr(leader=2, leader_epoch=2, isr=(1, 2), node_version=2)
    led.partition.update(state, led.replicas)
    assert _other_leader(led.partition) == (2, 2)
    led.partition.resign()
    assert _other_leader(led.partition) is None
