"""The parts of the broker that a fetch needs; apart from `fetch.py`, which is imported with the first fetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import uuid
    from collections.abc import Callable, Container, Mapping

    from echoless.broker.metadata.topic import Topic
    from echoless.broker.metrics import Metrics
    from echoless.broker.network.request import Peer
    from echoless.broker.network.unsent_answers import UnsentAnswers
    from echoless.broker.partitions.partition import Partition
    from echoless.broker.records.fetch_sessions import FetchSessions
    from echoless.protocol.node_endpoints import LeaderHint
    from echoless.storage.file_system import StorageError
    from echoless.storage.log_directory import LogDirectory


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class FetchParts:
    """The parts of the broker that a fetch needs."""

    find: Callable[[str | uuid.UUID, int], Partition]
    """The partition by topic name or id. Raises `KafkaError` 3, 100, 6 or 56."""
    other_leader: Callable[[Partition, Peer], LeaderHint | None]
    """Names the leader to ask instead of this broker, with its address for the client."""
    topics: Container[str]
    """The names of the topics that there are."""
    topics_by_id: Mapping[uuid.UUID, Topic]
    sessions: FetchSessions
    fail_storage: Callable[[StorageError], None]
    logs: LogDirectory
    metrics: Metrics
    unsent_answers: UnsentAnswers
    stopping: asyncio.Event
    repeated_rows: int = 0
    """Rows that connections keep (`repeated_fetch.py`)."""
