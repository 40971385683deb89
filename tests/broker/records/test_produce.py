"""The fate of a batch: what its client gets besides the code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from echoless.broker.cluster.addresses import other_leader
from echoless.broker.config.loading import LogFlush
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.network.request import Peer
from tests.broker.partitions.test_partition import Led


async def test_a_client_is_sent_to_another_leader_or_to_nobody() -> None:
    """A broker that leads itself and refuses for now has nothing to say, nor has one without a role."""
    cluster: Any = SimpleNamespace(broker_id=1, brokers_for_clients={})
    peer = Peer(1, "127.0.0.1:5000")
    led = Led(LogFlush.OS, replicas=(1, 2))
    assert other_leader(cluster, led.partition, peer) is None
    state = LeaderAndIsr(leader=2, leader_epoch=2, isr=(1, 2), node_version=2)
    led.partition.update(state, led.replicas)
    assert other_leader(cluster, led.partition, peer) == (2, 2, None)
    led.partition.resign()
    assert other_leader(cluster, led.partition, peer) is None
