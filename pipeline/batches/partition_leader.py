"""Leader of one partition, asked as a consumer does: for the log's start and end, and for batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Self

from echoless.client.cluster import parse_addresses
from echoless.client.connection import AuthenticationError, BrokerConnection, ConnectionFailedError
from echoless.client.messages import fetch_version_max
from echoless.client.security import NO_SECURITY, Security
from echoless.protocol.errors import ErrorCode

EARLIEST: Final = -2
LATEST: Final = -1
_FETCH_BYTES: Final = 8 * 1024 * 1024
_ATTEMPTS_MAX: Final = 10
_RETRY_S: Final = 1.0


class ClusterReadError(Exception):
    """The cluster cannot be read; the message names the partition and says why."""


class NoSuchOffsetError(ClusterReadError):
    """The log does not have the offset that was fetched: it was deleted, or never was there."""


class PartitionLeader:
    """Leader of one partition, looked up again after it moves. Use it in a `with` block."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partition: int,
        security: Security = NO_SECURITY,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._topic = topic
        self._partition = partition
        self._topic_id: Any = None
        self._connection: BrokerConnection | None = None

    def ask_offset(self, timestamp: int) -> int:
        """Asks for the earliest or the latest offset (`EARLIEST`, `LATEST`). Raises `ClusterReadError`."""
        part = {
            "partition_index": self._partition,
            "current_leader_epoch": -1,
            "timestamp": timestamp,
        }
        fields = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": 30_000,
            "topics": [{"name": self._topic, "partitions": [part]}],
        }
        return int(self._ask("list_offsets", fields, lambda a: a.topics[0].partitions[0]).offset)

    def fetch(self, offset: int) -> bytes:
        """Fetches whole batches from the one that holds `offset` on, perhaps with part of another.

        Raises `ClusterReadError`, `NoSuchOffsetError`.
        """
        part = {
            "partition": self._partition,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES,
        }
        topic = {"topic": self._topic, "topic_id": self._topic_id, "partitions": [part]}
        fields = {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": _FETCH_BYTES,
            "topics": [topic],
            "forgotten_topics_data": [],
        }
        answer = self._ask("fetch", fields, lambda a: a.responses[0].partitions[0])
        return bytes(answer.records or b"")

    def _ask(self, api: str, fields: dict[str, Any], partition_of: Callable[[Any], Any]) -> Any:
        """Asks until there is an answer without an error, a limited number of times."""
        reason, kind = "", ClusterReadError
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                time.sleep(_RETRY_S)
            try:
                connection = self._connected()
                for topic in fields["topics"]:
                    topic["topic_id"] = self._topic_id
                version_max = fetch_version_max(self._topic_id) if api == "fetch" else None
                answer = partition_of(connection.request(api, fields, version_max))
            except AuthenticationError as error:
                reason = str(error)
                break
            except ConnectionFailedError as error:
                reason = str(error)
            else:
                code = ErrorCode(int(answer.error_code.value))
                if code is ErrorCode.NONE:
                    return answer
                reason = code.name
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    kind = NoSuchOffsetError
                if not code.retriable:
                    break
            self._disconnect()
        raise kind(f"{self._topic}-{self._partition}: {api}: {reason}")

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            with connect(self._bootstrap_servers, self._security) as bootstrap:
                metadata = read_metadata(bootstrap, self._topic)
            topic = metadata.topics[0]
            self._topic_id = getattr(topic, "topic_id", None)
            leader = next(
                p.leader_id for p in topic.partitions if p.partition_index == self._partition
            )
            address = next(
                ((b.host, b.port) for b in metadata.brokers if b.node_id == leader), None
            )
            if address is None:
                raise ConnectionFailedError(f"{self._topic}-{self._partition} has no leader")
            self._connection = BrokerConnection.open(*address, security=self._security)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()


def connect(bootstrap_servers: str, security: Security = NO_SECURITY) -> BrokerConnection:
    """Connects to the first server that answers. Raises `ConnectionFailedError`."""
    failure: ConnectionFailedError | None = None
    for address in parse_addresses(bootstrap_servers):
        try:
            return BrokerConnection.open(*address, security=security)
        except ConnectionFailedError as error:
            failure = failure or error
    assert failure is not None, "there is at least one address"
    raise failure


def read_metadata(connection: BrokerConnection, topic: str | None) -> Any:
    """Requests kio's MetadataResponse. Raises `ClusterReadError` for a topic that does not exist."""
    answer = connection.request(
        "metadata",
        {
            "topics": None if topic is None else [{"name": topic, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
    )
    for found in answer.topics:
        if found.error_code.value:
            raise ClusterReadError(f"topic {found.name}: {found.error_code.name.upper()}")
    return answer
