"""`/overview` and `/connections`: what the console shows of the broker as a whole, and of its clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.admin.view import BrokerView
from echoless.broker.config.listener_names import NATIVE
from echoless.broker.faults.permission import refusal

if TYPE_CHECKING:
    from echoless.broker.network.connection import Connection

_STATM: Final = Path("/proc/self/statm")


@cache
def own_version() -> str:
    """The installed version; reads files, so the first call belongs in a thread."""
    try:
        return version("echoless")
    except PackageNotFoundError:  # run from a tree that was never installed
        return "unknown"


def add_totals(
    broker: BrokerView, totals: dict[str, int], is_shown: Callable[[str], bool]
) -> Iterator[None]:
    """Adds up partitions, those led here, and their producers; a partition a step."""
    totals |= {"topics": 0, "partitions": 0, "leading": 0, "producers": 0}
    topics = set()
    for (topic, _index), partition in list(broker.partitions.items()):
        if is_shown(topic):
            topics.add(topic)
            totals["partitions"] += 1
            totals["leading"] += partition.is_leader
            totals["producers"] += len(partition.log.producers)
        yield
    totals["topics"] = len(topics)


def overview_document(broker: BrokerView) -> dict[str, Any]:
    """The broker, its cluster, its memory and its faults; `add_totals` adds the rest."""
    failure = broker.logs.failure
    rules = broker.faults.documents()
    refused = refusal(broker.config)
    return {
        "broker_id": broker.config.broker_id,
        "cluster_id": broker.cluster_id,
        "version": own_version(),
        "started_ms": broker.started_ms,
        "now_ms": broker.clock.wall_ms(),
        "status": "ready" if failure is None else "storage failed",
        **({} if failure is None else {"error": str(failure)}),
        "brokers": _brokers(broker),
        "controller": broker.membership.controller_id,
        "connections": broker.metrics.connections_open,
        "followers": broker.decisions.followers(),
        "memory_bytes": _resident_bytes(),
        "strays": len(broker.logs.strays),
        "damaged": len(broker.logs.damaged),
        "producer_state_batches_to_retain": broker.config.producer_state_batches_to_retain,
        "faults": {
            "rules": len(rules),
            "active": sum(not rule["exhausted"] for rule in rules),
            "allowed": refused is None,
            **({} if refused is None else {"reason": refused}),
        },
    }


def _brokers(broker: BrokerView) -> list[dict[str, Any]]:
    """The registered brokers of the cluster, with the address that each gives its clients."""
    return [
        {
            "broker_id": broker_id,
            "rack": info.rack,
            "listeners": {
                name: f"{endpoint.host}:{endpoint.port}"
                for name, endpoint in info.endpoints.items()
            },
        }
        for broker_id, info in sorted(broker.membership.brokers.items())
    ]


def _resident_bytes() -> int | None:
    """The resident memory of this process; None where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def connection_documents(broker: BrokerView, limit: int) -> Iterator[dict[str, Any]]:
    """The open connections of both ports, the oldest of each address first."""
    for connection in islice(broker.open_connections.connections(), limit):
        yield _connection_document(broker, connection)


def _connection_document(broker: BrokerView, connection: Connection) -> dict[str, Any]:
    peer = connection.peer
    software = peer.software
    return {
        "connection_id": peer.connection_id,
        "address": peer.address,
        "listener": peer.listener,
        "protocol": "native" if peer.listener == NATIVE else "kafka",
        "tls": broker.config.security_protocol(peer.listener).is_encrypted,
        "principal": peer.principal,
        "client_id": peer.client_id if software is None else software.client_id,
        "software_name": None if software is None else software.name,
        "software_version": None if software is None else software.version,
        "idle_ms": connection.idle_ms,
    }
