"""The services that a cluster can lose while it is being stopped, and their return."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from tests.nemesis.names import Names
from tests.nemesis.network import Network
from tests.support.cluster import ZOOKEEPER, Cluster


class Loss(enum.Enum):
    """Loss of the coordinator, of the name service, or of both; made with packets, not with fakes."""

    NOTHING = "nothing"
    KILLED = "ZooKeeper killed: its port refuses"
    PAUSED = "ZooKeeper paused: connections stay, no answer comes"
    CUT = "ZooKeeper cut off: packets are dropped"
    NAMES = "names lost"
    NAMES_AND_KILLED = "names lost, ZooKeeper killed"
    NAMES_AND_CUT = "names lost, ZooKeeper cut off"


class Losses:
    """Takes services from `cluster`, and gives them back."""

    def __init__(self, cluster: Cluster, network: Network, names: Names) -> None:
        self._cluster = cluster
        self._network = network
        self._names = names

    def take(self, loss: Loss) -> None:
        steps: Mapping[Loss, tuple[Callable[[], None], ...]] = {
            Loss.NOTHING: (),
            Loss.KILLED: (self._cluster.zookeeper.kill,),
            Loss.PAUSED: (self._cluster.zookeeper.pause,),
            Loss.CUT: (self._cut,),
            Loss.NAMES: (self._names.lose,),
            Loss.NAMES_AND_KILLED: (self._names.lose, self._cluster.zookeeper.kill),
            Loss.NAMES_AND_CUT: (self._names.lose, self._cut),
        }
        for step in steps[loss]:
            step()

    def give_back(self) -> None:
        """Returns when everything is available again."""
        self._network.heal()
        self._names.give_back()
        zookeeper = self._cluster.zookeeper
        if zookeeper.process.is_running:
            zookeeper.resume()
        else:
            zookeeper.start()

    def _cut(self) -> None:
        for broker_id in self._cluster.brokers:
            self._network.cut_both(f"broker-{broker_id}", ZOOKEEPER)
