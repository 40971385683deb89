"""Queries to partition leaders: the log end, the producer's entry, and stored batches.

Blocking calls on connections that stay open. Queries to one broker share a request; they are retried after a
back-off, perhaps at another leader, until the delivery timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeVar

from echoless.client.cluster import Cluster, NoLeaderError, parse_addresses
from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.producer_ids import new_identity
from echoless.client.sequencer import EPOCH_MAX, Identity, LeaderEntry
from echoless.client.settings import Settings
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.batch_metrics import BrokerWaits
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.protocol.errors import ErrorCode

_LATEST: Final = -1
_NO_TOPICS: Final = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
_DESCRIBE: Final = "describe_producers"
_FETCH_BYTES: Final = 1024 * 1024
_FETCH_WAIT_MS: Final = 500
_FINAL: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)
_T = TypeVar("_T")


class LeaderState(NamedTuple):
    """A leader's answer about its partition."""

    log_end_offset: int
    """The end that consumers see; records sent from now on are at or above it."""
    found: LeaderEntry | None
    """The leader's entry for the producer; None if it has none."""


class LeaderQueries:
    """Queries to the leaders of one cluster. Use it in a `with` block."""

    def __init__(self, bootstrap_servers: str, settings: Settings) -> None:
        self._settings = settings
        self.waits = BrokerWaits()
        """Time that queries have waited for answers."""
        self._runner = asyncio.Runner()
        self._cluster_id: str | None = None
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._cluster = self._new_cluster(auto_create_topics=settings.auto_create_topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._cluster.close())
        self._runner.close()

    def cluster_id(self) -> str:
        """Returns the id of the cluster; empty if it has none. Raises `SinkError`."""
        if self._cluster_id is None:
            answer = self._run(lambda: self._cluster.ask_any("metadata", _NO_TOPICS), "metadata")
            self._cluster_id = str(getattr(answer, "cluster_id", None) or "")
        return self._cluster_id

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Raises `SinkError`."""
        return self._run(lambda: self._cluster.partition_count(topic), topic)

    def new_identity(self) -> Identity:
        """Requests an unused producer id. Raises `SinkError`."""
        return self._run(lambda: new_identity(self._cluster), "a producer id")

    def next_identity(self, identity: Identity) -> Identity:
        """Returns the next epoch of the producer; after the last one, a new id. Raises `SinkError`."""
        if identity.producer_epoch == EPOCH_MAX:
            return self.new_identity()
        return Identity(identity.producer_id, identity.producer_epoch + 1)

    def ask(
        self, targets: Iterable[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, LeaderState]:
        """Asks for the log end of each target and for its entry of `producer_id`. Raises `SinkError`."""
        wanted = list(targets)
        what = ", ".join(map(str, wanted))
        return self._run(lambda: self._ask(wanted, producer_id), what, wanted) if wanted else {}

    def ask_once(
        self, targets: Iterable[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, LeaderState]:
        """Asks as `ask` does, once, and only targets that have a leader: a topic may have been deleted."""
        wanted = list(targets)
        if not wanted:
            return {}
        with self.waits:
            return self._runner.run(self._ask_once(wanted, producer_id))

    def fetch(self, target: TopicPartition, offset: int) -> bytes:
        """Fetches whole batches, from the one that holds `offset` on, perhaps with part of another.

        Waits for a while if there is none yet. Raises `SinkError`.
        """
        return self._run(lambda: self._fetch(target, offset), str(target), [target])

    def _new_cluster(self, *, auto_create_topics: bool) -> Cluster:
        return Cluster(
            self._bootstrap,
            timeout_s=self._settings.request_timeout_s,
            auto_create_topics=auto_create_topics,
            security=self._settings.security,
        )

    def _run(
        self,
        query: Callable[[], Awaitable[_T]],
        what: str,
        targets: Sequence[TopicPartition] = (),
    ) -> _T:
        with self.waits:
            return self._runner.run(self._until_answered(query, what, targets))

    async def _until_answered(
        self,
        query: Callable[[], Awaitable[_T]],
        what: str,
        targets: Sequence[TopicPartition],
    ) -> _T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.delivery_timeout_s
        delay = self._settings.retry_backoff_s
        while True:
            try:
                return await query()
            except (NoLeaderError, ConnectionFailedError) as error:
                is_final = getattr(error, "final_code", ErrorCode.NONE)
                if is_final or loop.time() + delay > deadline:
                    raise SinkError(f"{what}: {error}") from error
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._settings.retry_backoff_max_s)
            for topic in {target.topic: None for target in targets}:
                await self._cluster.refresh(topic)

    async def _ask(
        self, targets: Sequence[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, LeaderState]:
        by_leader: dict[PipelinedConnection, list[TopicPartition]] = {}
        for target in targets:
            by_leader.setdefault(await self._cluster.leader(*target), []).append(target)
        queries = (_ask_leader(leader, own, producer_id) for leader, own in by_leader.items())
        answers = await asyncio.gather(*queries)
        return {
            target: leader_state for answer in answers for target, leader_state in answer.items()
        }

    async def _ask_once(
        self, targets: Sequence[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, LeaderState]:
        """Asks over separate connections, which do not create topics: one may have been deleted."""
        cluster = self._new_cluster(auto_create_topics=False)
        by_leader: dict[PipelinedConnection, list[TopicPartition]] = {}
        try:
            for target in targets:
                with suppress(NoLeaderError):
                    by_leader.setdefault(await cluster.leader(*target), []).append(target)
            queries = (_ask_leader(leader, own, producer_id) for leader, own in by_leader.items())
            answers = await asyncio.gather(*queries, return_exceptions=True)
        finally:
            await cluster.close()
        return {
            target: leader_state
            for answer in answers
            if isinstance(answer, dict)
            for target, leader_state in answer.items()
        }

    async def _fetch(self, target: TopicPartition, offset: int) -> bytes:
        leader = await self._cluster.leader(*target)
        topic_id = self._cluster.topic_id(*target)
        answer = await leader.send("fetch", _fetch_request(target, topic_id, offset))
        part = answer.responses[0].partitions[0]
        code = part.error_code
        if code.value == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise SinkError(f"{target}: the records at offset {offset} are deleted")
        if code.value != ErrorCode.NONE:
            raise NoLeaderError(f"fetch from {offset}: {code.name.upper()}", code.value)
        return bytes(part.records or b"")


def _fetch_request(target: TopicPartition, topic_id: Any, offset: int) -> Mapping[str, Any]:
    part = {
        "partition": target.partition,
        "fetch_offset": offset,
        "partition_max_bytes": _FETCH_BYTES,
    }
    topic = {"topic": target.topic, "topic_id": topic_id, "partitions": [part]}
    return {
        "max_wait": _FETCH_WAIT_MS,
        "min_bytes": 1,
        "max_bytes": _FETCH_BYTES,
        "topics": [topic],
        "forgotten_topics_data": [],
    }


async def _ask_leader(
    leader: PipelinedConnection, targets: list[TopicPartition], producer_id: int
) -> dict[TopicPartition, LeaderState]:
    """Asks one leader.

    The log end is asked for first: the producer's entry may count records above it, and counts all below it.
    """
    if not leader.serves(_DESCRIBE):
        raise SinkError(f"{leader.address} does not serve {_DESCRIBE}; Kafka does from 2.8 on")
    offsets, described = await asyncio.gather(
        leader.send("list_offsets", _offset_request(targets)),
        leader.send(_DESCRIBE, {"topics": _by_topic(targets, "partition_indexes")}),
    )
    ends = _by_target(offsets.topics, "list_offsets")
    producers = _by_target(described.topics, _DESCRIBE)
    return {
        target: LeaderState(int(ends[target].offset), _entry(producers[target], producer_id))
        for target in targets
    }


def _entry(described: Any, producer_id: int) -> LeaderEntry | None:
    for one in described.active_producers:
        if one.producer_id == producer_id:
            return LeaderEntry(int(one.producer_epoch), int(one.last_sequence))
    return None


def _offset_request(targets: Iterable[TopicPartition]) -> Mapping[str, Any]:
    topics = _by_topic(targets, "partitions")
    for topic in topics:
        topic["partitions"] = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST}
            for index in topic["partitions"]
        ]
    return {"replica_id": -1, "isolation_level": 0, "timeout": 30_000, "topics": topics}


def _by_topic(targets: Iterable[TopicPartition], field: str) -> list[dict[str, Any]]:
    found: dict[str, list[int]] = {}
    for topic, partition in targets:
        found.setdefault(topic, []).append(partition)
    return [{"name": topic, field: partitions} for topic, partitions in found.items()]


def _by_target(topics: Iterable[Any], api: str) -> dict[TopicPartition, Any]:
    """Returns the answers by target. Raises `NoLeaderError` for the first one with an error code."""
    found = {}
    for topic in topics:
        for one in topic.partitions:
            code = one.error_code
            if code.value != ErrorCode.NONE:
                right = " (it needs the right to read)" if code.value in _FINAL else ""
                text = f"{topic.name}-{one.partition_index}: {api}: {code.name.upper()}{right}"
                raise NoLeaderError(text, code.value)
            found[TopicPartition(topic.name, one.partition_index)] = one
    return found
