"""A Kafka cluster as its clients see it: partition leaders, and a connection to each broker.

Knowledge of a partition is replaced only by news of the same or a later leader epoch, so that a
broker that lags does not send the client back to an old leader. Metadata is requested when
something is missing or turned out wrong, never periodically.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.security import NO_SECURITY, Security
from echoless.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_FINAL: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors that waiting does not cure."""


class BrokerAddress(NamedTuple):
    host: str
    port: int


class NoLeaderError(Exception):
    """No broker to send to right now; the message says why.

    `final_code`: the broker's code if waiting does not help, else 0. A refused certificate has the code of a
    refused log-in.
    """

    def __init__(self, reason: str, code: int = ErrorCode.NONE) -> None:
        super().__init__(reason)
        self.final_code = code if code in _FINAL else 0


def _unreachable(reason: str, errors: Sequence[ConnectionFailedError]) -> NoLeaderError:
    """The error if none of the brokers could be asked; final if one of them refused the client."""
    is_refused = any(isinstance(error, AuthenticationError) for error in errors)
    code = ErrorCode.SASL_AUTHENTICATION_FAILED if is_refused else ErrorCode.NONE
    return NoLeaderError(reason, code)


class _Partition(NamedTuple):
    topic_id: Any
    leader: int
    leader_epoch: int


def parse_addresses(bootstrap_servers: str) -> tuple[BrokerAddress, ...]:
    """`HOST:PORT[,HOST:PORT...]`. Raises `ValueError`."""
    addresses = []
    for text in bootstrap_servers.split(","):
        host, _, port = text.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"bootstrap servers: HOST:PORT[,HOST:PORT...], not {text!r}")
        addresses.append(BrokerAddress(host.strip("[]"), int(port)))
    return tuple(addresses)


class Cluster:
    """Connections are opened when they are needed and stay open until `close`."""

    def __init__(
        self,
        bootstrap: Sequence[BrokerAddress],
        *,
        timeout_s: float,
        auto_create_topics: bool = True,
        security: Security = NO_SECURITY,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._timeout_s = timeout_s
        self._auto_create_topics = auto_create_topics
        self._security = security
        self._brokers: dict[int, BrokerAddress] = {}
        self._connections: dict[BrokerAddress, asyncio.Task[PipelinedConnection]] = {}
        self._has_own_connections = True
        self.cluster_id: str | None = None
        """The cluster's id by the last metadata; empty if it has none, None before the first."""
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._topic_errors: dict[str, tuple[int, str]] = {}
        self._partition_counts: dict[str, int] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._is_unreachable = False
        """Whether no broker has answered the last request to any of them; logged once."""

    def sibling(self, *, auto_create_topics: bool) -> Cluster:
        """The same cluster with nothing known yet, over the connections of this one, which alone closes them."""
        other = Cluster(
            self._bootstrap,
            timeout_s=self._timeout_s,
            auto_create_topics=auto_create_topics,
            security=self._security,
        )
        other._connections = self._connections
        other._has_own_connections = False
        return other

    async def partition_count(self, topic: str) -> int:
        """The number of partitions. Raises `NoLeaderError` if the topic cannot be looked up."""
        if topic not in self._partition_counts:
            await self.refresh(topic)
            self._check_topic(topic)
        return self._partition_counts[topic]

    async def leader(self, topic: str, partition: int) -> PipelinedConnection:
        """A connection to the partition's leader. Raises `NoLeaderError`."""
        known = self.known_leader(topic, partition)
        if known is not None:
            return known
        if (topic, partition) not in self._partitions:
            await self.refresh(topic)
        self._check_topic(topic)
        found = self._partitions.get((topic, partition))
        if found is None:
            count = self._partition_counts[topic]
            raise NoLeaderError(f"{topic} has {count} partitions, none of number {partition}")
        address = self._brokers.get(found.leader)
        if address is None:
            raise NoLeaderError(f"{topic}-{partition} has no leader")
        try:
            return await self.connection(address)
        except ConnectionFailedError as error:
            raise _unreachable(str(error), [error]) from error

    def known_leader(self, topic: str, partition: int) -> PipelinedConnection | None:
        """The open connection to the leader, if there is one."""
        found = self._partitions.get((topic, partition))
        address = self._brokers.get(found.leader) if found is not None else None
        return None if address is None else self.open_connection(address)

    def open_connection(self, address: BrokerAddress) -> PipelinedConnection | None:
        """The open connection to the address, if there is one."""
        task = self._connections.get(address)
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        connection = task.result()
        return None if connection.is_closed else connection

    def topic_id(self, topic: str, partition: int) -> Any:
        """The id by which newer requests name the topic; None if it is unknown."""
        found = self._partitions.get((topic, partition))
        return found.topic_id if found is not None else None

    def note_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Applies the leader that a broker named with NOT_LEADER_OR_FOLLOWER."""
        found = self._partitions.get((topic, partition))
        if found is not None and leader in self._brokers and leader_epoch > found.leader_epoch:
            self._partitions[topic, partition] = _Partition(found.topic_id, leader, leader_epoch)

    async def refresh(self, topic: str) -> None:
        """Asks any broker about the topic; concurrent calls share one request. Never raises."""
        task = self._refreshing.get(topic)
        if task is None:
            task = asyncio.ensure_future(self._refresh(topic))
            self._refreshing[topic] = task
            task.add_done_callback(lambda _: self._refreshing.pop(topic, None))
        await asyncio.shield(task)

    async def ask_any(self, api: str, fields: Mapping[str, Any]) -> Any:
        """One request to the first broker that answers. Raises `NoLeaderError`."""
        errors: list[ConnectionFailedError] = []
        for address in dict.fromkeys((*self._brokers.values(), *self._bootstrap)):
            try:
                answer = await (await self.connection(address)).send(api, fields)
            except ConnectionFailedError as error:
                errors.append(error)
            else:
                self._note_reachable(address)
                return answer
        failed = _unreachable("; ".join(map(str, errors)), errors)
        if not self._is_unreachable and not failed.final_code:
            logger.warning("%s; trying again", failed)
        self._is_unreachable = True
        raise failed

    def _note_reachable(self, address: BrokerAddress) -> None:
        if self._is_unreachable:
            self._is_unreachable = False
            logger.warning("a broker answers at %s:%d", *address)

    def knows(self, topic: str) -> bool:
        """Whether the topic was there when it was last asked for."""
        return topic in self._partition_counts and topic not in self._topic_errors

    async def close(self) -> None:
        for refreshing in self._refreshing.values():
            refreshing.cancel()
        if not self._has_own_connections:
            return
        for task in self._connections.values():
            task.cancel()
        results = await asyncio.gather(*self._connections.values(), return_exceptions=True)
        for connection in results:
            if isinstance(connection, PipelinedConnection):
                await connection.close()

    async def connection(self, address: BrokerAddress) -> PipelinedConnection:
        """The open connection to the address, or a new one; concurrent callers share it.

        Raises `ConnectionFailedError`.
        """
        task = self._connections.get(address)
        if task is not None and task.done() and _is_broken(task):
            task = None
        if task is None:
            opening = PipelinedConnection.open(*address, self._timeout_s, self._security)
            task = asyncio.ensure_future(opening)
            self._connections[address] = task
        return await asyncio.shield(task)

    async def _refresh(self, topic: str) -> None:
        fields = {
            "topics": [{"name": topic, "topic_id": None}],
            "allow_auto_topic_creation": self._auto_create_topics,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        try:
            answer = await self.ask_any("metadata", fields)
        except NoLeaderError as error:
            self._topic_errors[topic] = (error.final_code, str(error))
            return
        self.cluster_id = str(getattr(answer, "cluster_id", None) or "")
        self._brokers = {b.node_id: BrokerAddress(b.host, b.port) for b in answer.brokers}
        for found in answer.topics:
            self._take_topic(topic, found)

    def _take_topic(self, topic: str, found: Any) -> None:
        code = found.error_code
        if code.value != ErrorCode.NONE:
            self._topic_errors[topic] = (code.value, code.name.upper())
            return
        self._topic_errors.pop(topic, None)
        self._partition_counts[topic] = len(found.partitions)
        for one in found.partitions:
            news = _Partition(
                getattr(found, "topic_id", None), one.leader_id, getattr(one, "leader_epoch", -1)
            )
            known = self._partitions.get((topic, one.partition_index))
            is_same_topic = known is not None and known.topic_id == news.topic_id
            if known is None or not is_same_topic or news.leader_epoch >= known.leader_epoch:
                self._partitions[topic, one.partition_index] = news

    def _check_topic(self, topic: str) -> None:
        """Raises `NoLeaderError` with the error of the last refresh, if it had one."""
        if topic in self._topic_errors and topic not in self._partition_counts:
            code, reason = self._topic_errors[topic]
            raise NoLeaderError(f"{topic}: {reason}", code)


def _is_broken(task: asyncio.Task[PipelinedConnection]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().is_closed
