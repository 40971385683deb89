"""Queries to partition leaders: the log end, the producer's entry, and stored batches.

Blocking calls over the connections of a session. Queries to one broker share a request; they are retried after a
back-off, perhaps at another leader, until the delivery timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from echoless.client.cluster import NoLeaderError
from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.messages import fetch_version_max
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.producer_ids import new_identity
from echoless.client.sequencer import EPOCH_MAX, Identity, LeaderEntry
from echoless.client.settings import Settings
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.batch_metrics import BrokerWaits
from echoless.pipeline.exactly_once.broker_session import BrokerSession
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.shared_answers import LeaderAnswer, RunKey
from echoless.protocol.errors import ErrorCode

_LATEST: Final = -1
_NO_TOPICS: Final = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
_DESCRIBE: Final = "describe_producers"
_OFFSETS: Final = "list_offsets"
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
    """Queries to the leaders of one cluster, of which it knows what it has asked for itself."""

    def __init__(self, session: BrokerSession, settings: Settings, run: RunKey = ()) -> None:
        """`run`: the run of a batch, in which answers are shared with other tasks of this process; empty: they are not."""
        self.session = session
        self._settings = settings
        self._answers_run = run
        self.waits = BrokerWaits()
        """Time that queries have waited for answers."""
        self.cluster = session.cluster(auto_create_topics=settings.auto_create_topics)
        """The cluster, for others that use the session's loop, too."""

    def cluster_id(self) -> str:
        """Returns the id of the cluster; empty if it has none. Raises `SinkError`."""
        if self.cluster.cluster_id is None:
            self._run(self._ask_cluster_id, "metadata")
        assert self.cluster.cluster_id is not None
        return self.cluster.cluster_id

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Raises `SinkError`."""
        return self._run(lambda: self.cluster.partition_count(topic), topic)

    def new_identity(self) -> Identity:
        """Requests an unused producer id. Raises `SinkError`."""
        return self._run(lambda: new_identity(self.cluster), "a producer id")

    def next_identity(self, identity: Identity) -> Identity:
        """Returns the next epoch of the producer; after the last one, a new id. Raises `SinkError`."""
        if identity.producer_epoch == EPOCH_MAX:
            return self.new_identity()
        return Identity(identity.producer_id, identity.producer_epoch + 1)

    def log_ends(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Asks for the log end of each target. Raises `SinkError`."""
        wanted = list(targets)
        what = ", ".join(map(str, wanted))
        return self._run(lambda: self._ask_log_ends(wanted), what, wanted) if wanted else {}

    def ask(
        self, targets: Iterable[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, LeaderState]:
        """Asks for the log end of each target and for its entry of `producer_id`. Raises `SinkError`."""
        wanted = list(targets)
        what = ", ".join(map(str, wanted))
        answers = self._run(lambda: self._ask(wanted), what, wanted) if wanted else {}
        return _states(answers, producer_id)

    def ask_beforehand(
        self,
        targets: Iterable[TopicPartition],
        idle: Iterable[TopicPartition],
        producer_id: int,
    ) -> dict[TopicPartition, LeaderState]:
        """Asks as `ask` does, for an attempt that nobody has sent before; answers may be shared. Raises `SinkError`.

        The `idle` are asked once, and only those that have a leader, without creating a topic: it may have been deleted.
        """
        return _states(self._answers_beforehand(list(targets), list(idle)), producer_id)

    def ask_about_topics(self, topics: Sequence[str]) -> dict[TopicPartition, LeaderAnswer]:
        """Asks once about all partitions of the topics that have a leader; answers may be shared."""
        with self.waits:
            partitions = self.session.call(self._partitions_of(topics))
        return self._answers_beforehand([], partitions)

    @property
    def has_compared(self) -> bool:
        """Whether a task of the run has compared the ledger's lanes with leaders (`ledger_age.py`)."""
        return bool(self._answers_run) and self.session.answers.compared_run == self._answers_run

    def note_compared(self) -> None:
        """Notes for the other tasks of the run that the ledger's lanes agree with leaders."""
        self.session.answers.compared_run = self._answers_run

    def fetch(self, target: TopicPartition, offset: int) -> bytes:
        """Fetches whole batches, from the one that holds `offset` on, perhaps with part of another.

        Waits for a while if there is none yet. Raises `SinkError`.
        """
        return self._run(lambda: self._fetch(target, offset), str(target), [target])

    def _answers_beforehand(
        self, wanted: list[TopicPartition], idle: list[TopicPartition]
    ) -> dict[TopicPartition, LeaderAnswer]:
        shared = self.session.answers
        answers = shared.of(self._answers_run, (*wanted, *idle))
        new = [target for target in wanted if target not in answers]
        new_idle = [target for target in idle if target not in answers]
        if new or new_idle:
            what = ", ".join(map(str, new))
            with self.waits:
                found = self.session.call(self._ask_both(new, new_idle, what))
            if self._answers_run:
                shared.add(self._answers_run, found)
            answers |= found
        return answers

    def _run(
        self,
        query: Callable[[], Awaitable[_T]],
        what: str,
        targets: Sequence[TopicPartition] = (),
    ) -> _T:
        with self.waits:
            return self.session.call(self._until_answered(query, what, targets))

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
                await self.cluster.refresh(topic)

    async def _ask_cluster_id(self) -> None:
        answer = await self.cluster.ask_any("metadata", _NO_TOPICS)
        self.cluster.cluster_id = str(getattr(answer, "cluster_id", None) or "")

    async def _ask_log_ends(self, targets: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        by_leader = await self._by_leader(targets)
        answers = await asyncio.gather(
            *(leader.send(_OFFSETS, _offset_request(own)) for leader, own in by_leader.items())
        )
        return {
            target: int(one.offset)
            for answer in answers
            for target, one in _by_target(answer.topics, _OFFSETS).items()
        }

    async def _ask(self, targets: Sequence[TopicPartition]) -> dict[TopicPartition, LeaderAnswer]:
        by_leader = await self._by_leader(targets)
        queries = (_ask_leader(leader, own) for leader, own in by_leader.items())
        return _merged(await asyncio.gather(*queries))

    async def _by_leader(
        self, targets: Sequence[TopicPartition]
    ) -> dict[PipelinedConnection, list[TopicPartition]]:
        by_leader: dict[PipelinedConnection, list[TopicPartition]] = {}
        for target in targets:
            by_leader.setdefault(await self.cluster.leader(*target), []).append(target)
        return by_leader

    async def _ask_both(
        self, targets: Sequence[TopicPartition], idle: Sequence[TopicPartition], what: str
    ) -> dict[TopicPartition, LeaderAnswer]:
        found = (
            await self._until_answered(lambda: self._ask(targets), what, targets) if targets else {}
        )
        return {**found, **await self._ask_once(idle)}

    async def _ask_once(
        self, targets: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderAnswer]:
        others = self.session.cluster(auto_create_topics=False)
        by_leader: dict[PipelinedConnection, list[TopicPartition]] = {}
        for target in targets:
            cluster = self.cluster if self.cluster.knows(target.topic) else others
            with suppress(NoLeaderError):
                by_leader.setdefault(await cluster.leader(*target), []).append(target)
        queries = (_ask_leader(leader, own) for leader, own in by_leader.items())
        answers = await asyncio.gather(*queries, return_exceptions=True)
        return _merged(answer for answer in answers if isinstance(answer, dict))

    async def _partitions_of(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Lists the partitions of those of the topics that there are, without creating one."""
        others = self.session.cluster(auto_create_topics=False)
        found: list[TopicPartition] = []
        for topic in topics:
            cluster = self.cluster if self.cluster.knows(topic) else others
            with suppress(NoLeaderError, ConnectionFailedError):
                count = await cluster.partition_count(topic)
                found += (TopicPartition(topic, partition) for partition in range(count))
        return found

    async def _fetch(self, target: TopicPartition, offset: int) -> bytes:
        leader = await self.cluster.leader(*target)
        topic_id = self.cluster.topic_id(*target)
        request = _fetch_request(target, topic_id, offset)
        answer = await leader.send("fetch", request, fetch_version_max(topic_id))
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
    leader: PipelinedConnection, targets: list[TopicPartition]
) -> dict[TopicPartition, LeaderAnswer]:
    """Asks one leader.

    The log end is asked for first: the producer's entry may count records above it, and counts all below it.
    """
    if not leader.serves(_DESCRIBE):
        raise SinkError(f"{leader.address} does not serve {_DESCRIBE}; Kafka does from 2.8 on")
    offsets, described = await asyncio.gather(
        leader.send(_OFFSETS, _offset_request(targets)),
        leader.send(_DESCRIBE, {"topics": _by_topic(targets, "partition_indexes")}),
    )
    ends = _by_target(offsets.topics, _OFFSETS)
    producers = _by_target(described.topics, _DESCRIBE)
    return {
        target: LeaderAnswer(
            int(ends[target].offset),
            {
                int(one.producer_id): LeaderEntry(int(one.producer_epoch), int(one.last_sequence))
                for one in producers[target].active_producers
            },
        )
        for target in targets
    }


def _merged(
    answers: Iterable[Mapping[TopicPartition, LeaderAnswer]],
) -> dict[TopicPartition, LeaderAnswer]:
    return {target: answer for found in answers for target, answer in found.items()}


def _states(
    answers: Mapping[TopicPartition, LeaderAnswer], producer_id: int
) -> dict[TopicPartition, LeaderState]:
    return {
        target: LeaderState(answer.log_end_offset, answer.producers.get(producer_id))
        for target, answer in answers.items()
    }


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
