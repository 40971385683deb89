"""The parts of the broker that a fetch needs; apart from `fetch.py`, which is imported with the first fetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import uuid
    from collections.abc import Callable

    from echoless.broker.metrics import Metrics
    from echoless.broker.network.unsent_answers import UnsentAnswers
    from echoless.broker.partitions.partition import Partition
    from echoless.storage.file_system import StorageError
    from echoless.storage.log_directory import LogDirectory


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class FetchParts:
    """The parts of the broker that a fetch needs."""

    find: Callable[[str | uuid.UUID, int], Partition]
    """The partition by topic name or id. Raises `KafkaError` 3, 100, 6 or 56."""
    fail_storage: Callable[[StorageError], None]
    logs: LogDirectory
    metrics: Metrics
    unsent_answers: UnsentAnswers
    stopping: asyncio.Event
