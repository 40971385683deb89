"""A produce request in flight, from either port: what its batches share until all are appended.

The handlers of the ports decode and encode; everything between is in this room:

| file                | what                                                                                     |
|---------------------|------------------------------------------------------------------------------------------|
| `request.py`        | all partitions of a request: refusals, the connection's order, what has to come later     |
| `produce.py`        | one batch: every check before the append                                                  |
| `pending.py`        | one batch that has to wait before it is appended, and for what                             |
| `transactional.py`  | one batch of a transaction, which the coordinator may have to be asked about              |
| `append.py`         | the de-duplication decision and the append, in one step of the partition's log            |
| `acknowledgement.py`| when the client is answered, and what                                                     |
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.clock import Clock
from echoless.broker.decisions.decisions import Decisions
from echoless.broker.metrics import Metrics
from echoless.broker.network.request import Peer, Request
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.deadlines import Deadlines
from echoless.broker.records.record_thread import RecordThread
from echoless.protocol.node_endpoints import LeaderHint
from echoless.protocol.produce import PartitionProduced, TopicProduced
from echoless.protocol.record_batch import Buffer
from echoless.protocol.record_check import Opening
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.authentication.producer_binding import ProducerBinding
    from echoless.broker.quotas.quotas import Quotas
    from echoless.protocol.native.transactions import AnsweredNowOrLater, TransactionAsk

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

TopicKey = str | uuid.UUID
"""A topic's name, or its id where the request names ids."""
BatchesByTopic = Sequence[tuple[TopicKey, Sequence[tuple[int, Buffer | None]]]]
"""The records field of each partition, by topic and partition index."""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ProduceParts:
    """The parts of the broker that an append needs."""

    find: Callable[[TopicKey, int], Partition]
    """Returns the partition by topic name or id. Raises `KafkaError` 3, 100, 6 or 56."""
    fail_storage: Callable[[StorageError], None]
    decisions: Decisions
    metrics: Metrics
    clock: Clock
    thread: RecordThread
    deadlines: Deadlines
    quotas: Quotas
    other_leader: Callable[[Partition, Peer], LeaderHint | None]
    """Names the leader to ask instead of this broker, with its address for the client."""
    binding: ProducerBinding | None = None
    """The principals that producer ids belong to; None: everyone may use them."""
    ask: Callable[[TransactionAsk], AnsweredNowOrLater] | None = None
    """Asks the coordinator of a transactional id, at once; None while transactions are not served."""


class Encoding(NamedTuple):
    """A port's answer to a produce request. Both functions take the version of the request first."""

    one: Callable[[int, TopicKey, PartitionProduced], Any]
    """Encodes the only partition of a request."""
    all: Callable[[int, list[TopicProduced]], Any]


class InFlightProduce:
    """The values that all batches of a request share."""

    __slots__ = (
        *("acks", "encoding", "now_ms", "opening", "parts", "request", "steady_ms", "timeout_ms"),
        "transactional_id",
    )

    transactional_id: str
    """Set if the request has one: no other has transactional batches that are not refused."""

    def __init__(
        self,
        parts: ProduceParts,
        request: Request,
        acks: int,
        timeout_ms: int,
        encoding: Encoding,
    ) -> None:
        """A request of the native port is one of the newest version."""
        self.parts = parts
        self.request = request
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.encoding = encoding
        clock = parts.clock
        self.now_ms = clock.wall_ms()
        """The wall-clock time."""
        self.steady_ms = clock.steady_ms()
        """The same moment by the data directory's clock (`clock.py`)."""
        self.opening = Opening()

    def read_clock(self) -> None:
        """Takes the present time, after a wait."""
        clock = self.parts.clock
        self.now_ms, self.steady_ms = clock.wall_ms(), clock.steady_ms()


class Unsettled:
    """One batch whose outcome comes later. The request keeps its place in the order of its connection until then."""

    __slots__ = ()

    async def append(self) -> Any:
        """Waits; returns the outcome (`PartitionProduced`, `StoredBatch`), or what has to be waited for next."""
        raise NotImplementedError
