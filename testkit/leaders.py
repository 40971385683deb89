"""Partition leaders and producer ids, from any broker that answers, over the Kafka protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from echoless.client.cluster import parse_addresses
from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.security import NO_SECURITY, Security
from echoless.protocol.errors import ErrorCode

_TIMEOUT_S: Final = 2.0
_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1


class LeaderNotAvailableError(Exception):
    """No broker answered, or none knows a leader at the moment. Retrying may help."""


class LeaderCache:
    """Cached answers of the brokers at `bootstrap_servers`. Blocking."""

    def __init__(self, bootstrap_servers: str, security: Security = NO_SECURITY) -> None:
        self._security = security
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._known: dict[tuple[str, int], str] = {}

    def forget(self) -> None:
        """Clears the cache."""
        self._known.clear()

    def address(self, topic: str, partition: int) -> str:
        """`host:port` of the leader. Raises `LeaderNotAvailableError`."""
        where = topic, partition
        if where not in self._known:
            self._known[where] = self._find(topic, partition)
        return self._known[where]

    def init_producer_id(self) -> int:
        """An unused producer id; its epoch is 0. Raises `LeaderNotAvailableError`."""
        fields = {
            "transactional_id": None,
            "transaction_timeout": _TRANSACTION_TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        }
        answer = self._ask_any("init_producer_id", fields)
        if answer.error_code.value != ErrorCode.NONE:
            raise LeaderNotAvailableError(f"no producer id: {answer.error_code.name}")
        return int(answer.producer_id)

    def _find(self, topic: str, partition: int) -> str:
        fields = {
            "topics": [{"topic_id": None, "name": topic}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = self._ask_any("metadata", fields)
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        for row in answer.topics[0].partitions:
            if row.partition_index == partition and row.leader_id in brokers:
                return brokers[row.leader_id]
        raise LeaderNotAvailableError(f"{topic}-{partition} has no leader")

    def _ask_any(self, api: str, fields: Mapping[str, Any]) -> Any:
        said = []
        for host, port in self._bootstrap:
            try:
                with BrokerConnection.open(host, port, _TIMEOUT_S, self._security) as connection:
                    return connection.request(api, fields)
            except ConnectionFailedError as error:
                said.append(str(error))
        raise LeaderNotAvailableError("; ".join(said))
