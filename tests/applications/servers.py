"""One broker or three, as applications meet them, and blows that applications have to survive."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.cluster import Cluster
from tests.support.echoless import Echoless

_SETTINGS: Final = {"group_min_session_timeout_ms": "1000"}
_PATIENT: Final = {"zookeeper_session_timeout_ms": "6000"}
"""A busy machine may silence ZooKeeper for seconds."""
_SYNC_S: Final = 180.0


class OneServer:
    """A broker that is killed and comes back at once."""

    replicas = 1

    def __init__(self, broker: Echoless) -> None:
        self._broker = broker
        self.bootstrap = broker.kafka_address

    def admins(self) -> list[str]:
        """The admin ports of the brokers that run."""
        return [self._broker.admin_address]

    def strike(self) -> None:
        """Kills it, and starts it again."""
        self._broker.kill()
        self._broker.start()

    def heal(self) -> None:
        """Leaves it as it is."""


class ThreeServers:
    """A cluster of which one broker after the other is killed, and stays away until the next blow."""

    replicas = 3

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._in_turn = itertools.cycle(cluster.brokers)
        self.bootstrap = cluster.bootstrap

    def admins(self) -> list[str]:
        """The admin ports of the brokers that run."""
        return [self._cluster.brokers[one].admin_address for one in self._cluster.live]

    def strike(self) -> None:
        """Has the one that is away come back, and kills the next one once everything is in sync."""
        self.heal()
        self._cluster.kill(next(self._in_turn))

    def heal(self) -> None:
        """Has the one that is away come back; returns when everything is in sync."""
        cluster = self._cluster
        for broker_id in {*cluster.brokers} - {*cluster.live}:
            cluster.start_broker(broker_id)
        cluster.wait_until(cluster.is_in_sync, "all are in sync", within_s=_SYNC_S)


Servers = OneServer | ThreeServers


@contextmanager
def running(directory: Path, brokers: int) -> Iterator[Servers]:
    """One broker or three, whose members may have short sessions; killed at the end."""
    if brokers == 1:
        broker = Echoless(directory, _SETTINGS)
        broker.start()
        try:
            yield OneServer(broker)
        finally:
            broker.kill()
        return
    with Cluster(directory, {**_SETTINGS, **_PATIENT}, brokers=brokers) as cluster:
        cluster.start()
        yield ThreeServers(cluster)
