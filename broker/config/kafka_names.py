"""Names of a Kafka broker's configuration for what has another name here, or is always the same.

Tools and consoles look for them: `advertised.listeners` and `listeners` to show addresses, `log.dirs`,
`delete.topic.enable` to offer deletion, `inter.broker.protocol.version` to show a version. Read-only. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from echoless.broker.config.listener_names import KAFKA_LISTENERS, NATIVE
from echoless.broker.config.names import Config
from echoless.broker.config.values import Address

_ZOOKEEPER: Final = "zookeeper://"

SAME_AS: Final = {
    "log.dir": "data_dir",
    "log.dirs": "data_dir",
    "max.connection.creation.rate": "connection_creation_rate_max",
    "max.connections": "connections_max",
    "max.connections.per.ip": "connections_max_per_ip",
    "max.connections.per.ip.overrides": "connections_max_per_ip_overrides",
    "node.id": "broker_id",
    "socket.request.max.bytes": "request_size_max",
}
"""Kafka's name, and the setting whose value it has."""

FIXED: Final = {
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
    "inter.broker.listener.name": NATIVE,
    "inter.broker.protocol.version": "3.9-IV0",
    "log.cleaner.enable": "true",
}
"""The values that a broker of Kafka would have if it behaved like this one."""

OF_ADDRESSES: Final = frozenset({"advertised.listeners", "listeners", "zookeeper.connect"})
"""The names that `of_addresses` fills."""


def of_addresses(config: Config, advertised: Mapping[str, Address]) -> dict[str, str]:
    """The names of addresses. `advertised`: by the name of the listener, with the ports in use."""
    found = {
        "listeners": _listed(dict(zip(KAFKA_LISTENERS, config.listen, strict=False))),
        "advertised.listeners": _listed(advertised),
    }
    if config.coordinator.startswith(_ZOOKEEPER):
        found["zookeeper.connect"] = config.coordinator.removeprefix(_ZOOKEEPER)
    return found


def _listed(addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())
