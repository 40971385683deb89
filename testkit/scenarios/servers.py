"""The brokers of a scenario: one, or several that share a ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final, Self

from testkit.broker_process import BrokerProcess
from testkit.free_ports import free_address
from testkit.zookeeper_process import ZooKeeperProcess

_SESSION_TIMEOUT_MS: Final = "1000"
"""Time until another broker takes over the partitions of a killed one."""


class Servers:
    """Brokers 1 to `count`. Use it in a `with` block; everything is deleted at its end."""

    def __init__(self, count: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.brokers: dict[int, BrokerProcess] = {}
        self._count = count
        self._settings = dict(settings or {})
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._count == 1:
                self.brokers[1] = stack.enter_context(BrokerProcess(self._settings))
            else:
                zookeeper = stack.enter_context(ZooKeeperProcess())
                for broker_id in range(1, self._count + 1):
                    broker = self._member(broker_id, zookeeper.address)
                    self.brokers[broker_id] = stack.enter_context(broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def _member(self, broker_id: int, zookeeper: str) -> BrokerProcess:
        """One broker. Its ports are fixed: the others remember them while it is down."""
        return BrokerProcess(
            {"zookeeper_session_timeout_ms": _SESSION_TIMEOUT_MS, **self._settings},
            arguments=[
                *("--broker-id", str(broker_id)),
                *("--coordinator", f"zookeeper://{zookeeper}/echoless"),
            ],
            addresses=(free_address(), free_address(), free_address()),
        )
