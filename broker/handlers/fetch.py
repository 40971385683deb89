"""Fetch (1), versions 4-17: record batches below the high watermark, by long poll.

Answers at once when `min_bytes` are available, when a partition has an error, or when `max_wait` is
0; otherwise waits for data, at most `max_wait`. At least one batch is returned even if it exceeds the
limits (KIP-74). With isolation level 1 (read_committed) records are returned up to the last stable
offset, which is the high watermark until there are transactions.

v5 log_start_offset; v7 (KIP-227) fetch sessions: declined, every answer carries session id 0, which
tells the client to keep sending full requests; a request that continues a session (its epoch is above
0) is refused with FETCH_SESSION_ID_NOT_FOUND, whatever its id; v9 leader epochs; v12 flexible,
last_fetched_epoch; v13 topic ids. Followers replicate over the native port, not here; fetches on the
native port also end in `fetch`, which knows nothing of requests and responses.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.network.request import Answer, Outcome, Peer, Request
from broker.network.turns import ROWS_PER_TURN, work_in_turns
from broker.partitions.core.divergence import Divergence, find_divergence
from broker.partitions.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.fetch import NO_TOPIC_ID, PartitionFetched, TopicFetched, encode_fetch_response
from protocol.registry import Api
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=1, name="fetch", version_min=4, version_max=17, flexible_from=12)

_TOPIC_IDS_FROM: Final = 13
_READ_COMMITTED: Final = 1
_WHOLE_FETCHES: Final = frozenset({0, -1})
"""Session epochs of requests that name all their partitions: those opening a session, or using none."""
BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of records in one answer, whatever the client asks for. Kafka's `fetch.max.bytes` is 55 MiB;
copying that much into memory holds the event loop for up to 100 ms."""
MIN_BYTES_MAX: Final = BYTES_MAX // 2
"""Enough for an answer, even if the client wants to wait for more: batches are returned whole, so an
answer may end well below `BYTES_MAX`."""


class WantedPartition(NamedTuple):
    """What a fetch asks of one partition."""

    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int = -1
    """The leader epoch that the client knows; -1: any."""
    last_fetched_epoch: int = -1
    """The epoch of the last batch that the fetcher holds; -1: not given."""


class Fetch(NamedTuple):
    """A fetch from either port."""

    topics: Sequence[tuple[str | uuid.UUID, Sequence[WantedPartition]]]
    min_bytes: int
    bytes_max: int
    max_wait_s: float
    read_committed: bool = False
    """Whether to read only up to the last stable offset."""


class _Reading:
    """One pass over the partitions of the request, a partition at a time."""

    def __init__(
        self, broker: Broker, wanted: Fetch, peer: Peer, arrived: asyncio.Future[None] | None = None
    ) -> None:
        """`arrived` is set by anything that reaches a partition after it was read."""
        self.topics: list[TopicFetched] = []
        self.size = 0
        """Bytes of records."""
        self.has_error = False
        self.partitions: list[Partition] = []
        """The partitions whose next data may complete the request."""
        self._epochs: list[int] = []
        """The leader epoch of each partition when it was read."""
        self._appended_before = broker.metrics.bytes_appended_total
        self._broker = broker
        self._wanted = wanted
        self._bytes_max = min(wanted.bytes_max, BYTES_MAX, broker.unsent_answers.room(peer.host))
        self._arrived = arrived

    def steps(self) -> Iterator[None]:
        """Reads one partition per step."""
        for topic, wanted_partitions in self._wanted.topics:
            fetched: list[PartitionFetched] = []
            self.topics.append(TopicFetched(topic, fetched))
            for wanted in wanted_partitions:
                fetched.append(self._read(topic, wanted))
                yield

    def _read(self, topic: str | uuid.UUID, wanted: WantedPartition) -> PartitionFetched:
        left = self._bytes_max - self.size
        one, partition = _read_partition(
            self._broker,
            topic,
            wanted,
            left,
            is_first=self.size == 0,
            read_committed=self._wanted.read_committed,
        )
        self.size += len(one.records)
        self.has_error |= one.error_code != ErrorCode.NONE or one.diverging_epoch is not None
        if partition is not None:
            self.partitions.append(partition)
            self._epochs.append(partition.leader_epoch)
            if self._arrived is not None:
                partition.waiters.data.add(self._arrived)
        return one

    @property
    def is_enough(self) -> bool:
        """Whether the client need not wait for more."""
        least = min(self._wanted.min_bytes, MIN_BYTES_MAX)
        return self.size >= least or self.has_error or not self.partitions

    async def until_worth_another(self, deadline: float) -> None:
        """Returns when another pass may find enough, or when the event loop's time reaches `deadline`.

        Before that, as many bytes as are missing have to be appended, to any partition. Otherwise a
        fetch that waits for a lot would read everything again with every batch, and a hundred such
        fetches a hundred times as much.
        """
        loop = asyncio.get_running_loop()
        enough_at = self._appended_before + self._missing_bytes()
        while self._arrived is not None:
            await asyncio.wait((self._arrived,), timeout=max(0, deadline - loop.time()))
            if (
                not self._arrived.done()
                or self._broker.is_stopping
                or self._broker.metrics.bytes_appended_total >= enough_at
                or self._has_moved()
            ):
                return
            self._arrived = loop.create_future()
            for partition in self.partitions:
                partition.waiters.data.add(self._arrived)

    def _missing_bytes(self) -> int:
        """The bytes still missing; 0 if records already stored may yet be committed."""
        committed = self._wanted.read_committed
        if any(
            one.visible_end(read_committed=committed) < one.log.log_end_offset
            for one in self.partitions
        ):
            return 0
        return min(self._wanted.min_bytes, MIN_BYTES_MAX) - self.size

    def _has_moved(self) -> bool:
        """Whether a partition would now be answered with an error."""
        if self._broker.logs.failure is not None:
            return True
        try:
            for partition, epoch in zip(self.partitions, self._epochs, strict=True):
                partition.check_leader(epoch)
        except KafkaError:
            return True
        return False

    def forget(self) -> None:
        """Stops waiting for events of the partitions."""
        assert self._arrived is not None
        for partition in self.partitions:
            partition.waiters.data.remove(self._arrived)


def handle(request: Request, broker: Broker) -> Outcome:
    """Reads what is available; waits if that is not enough."""
    if getattr(request.body, "session_epoch", -1) not in _WHOLE_FETCHES:
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return encode_fetch_response(request.version, code, [])
    topics = fetch(broker, _wanted(request), request.peer)
    if isinstance(topics, list):
        return encode_fetch_response(request.version, ErrorCode.NONE, topics)
    return _answer_later(request, topics)


async def _answer_later(request: Request, topics: Awaitable[list[TopicFetched]]) -> Answer:
    return encode_fetch_response(request.version, ErrorCode.NONE, await topics)


def _wanted(request: Request) -> Fetch:
    body = request.body
    by_id = request.version >= _TOPIC_IDS_FROM
    topics = [
        (
            (topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic,
            [
                WantedPartition(
                    wanted.partition,
                    wanted.fetch_offset,
                    wanted.partition_max_bytes,
                    getattr(wanted, "current_leader_epoch", -1),
                    getattr(wanted, "last_fetched_epoch", -1),
                )
                for wanted in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return Fetch(
        topics,
        body.min_bytes,
        body.max_bytes,
        body.max_wait.total_seconds(),
        body.isolation_level == _READ_COMMITTED,
    )


def fetch(
    broker: Broker, wanted: Fetch, peer: Peer
) -> list[TopicFetched] | Awaitable[list[TopicFetched]]:
    """The available records, at once or after a wait."""
    if sum(len(partitions) for _, partitions in wanted.topics) <= ROWS_PER_TURN:
        reading = _Reading(broker, wanted, peer)
        for _ in reading.steps():
            pass
        if reading.is_enough or wanted.max_wait_s <= 0 or broker.is_stopping:
            return _taken(broker, reading)
    return _wait_for_data(broker, wanted, peer)


def _taken(broker: Broker, reading: _Reading) -> list[TopicFetched]:
    broker.metrics.fetch_bytes_total += reading.size
    return reading.topics


async def _wait_for_data(broker: Broker, wanted: Fetch, peer: Peer) -> list[TopicFetched]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wanted.max_wait_s
    while True:
        # Read again before each wait, even the first: data may have arrived before this task started.
        arrived = loop.create_future()
        reading = _Reading(broker, wanted, peer, arrived)
        try:
            await work_in_turns(reading.steps())
            timeout_s = deadline - loop.time()
            if reading.is_enough or timeout_s <= 0 or broker.is_stopping:
                return _taken(broker, reading)
            reading.topics = []  # holds their records: a wait must not keep them in memory
            await reading.until_worth_another(deadline)
        finally:
            reading.forget()


def _read_partition(
    broker: Broker,
    topic: str | uuid.UUID,
    wanted: WantedPartition,
    left: int,
    *,
    is_first: bool,
    read_committed: bool,
) -> tuple[PartitionFetched, Partition | None]:
    """One partition's answer, and the partition itself unless the answer is an error."""
    index = wanted.partition
    try:
        partition = broker.find_partition(topic, index)
        partition.check_leader(wanted.leader_epoch)
        diverging = _diverging_epoch(partition, wanted)
        records = b""
        if diverging is None:
            end = partition.visible_end(read_committed=read_committed)
            records = _records(partition, end, wanted, left, is_first=is_first)
    except KafkaError as error:
        return PartitionFetched(index, error.code), None
    except StorageError as error:
        broker.fail_storage(error)
        return PartitionFetched(index, ErrorCode.KAFKA_STORAGE_ERROR), None
    fetched = PartitionFetched(
        index,
        ErrorCode.NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
        records,
        diverging,
    )
    return fetched, partition


def _records(
    partition: Partition, end: int, wanted: WantedPartition, left: int, *, is_first: bool
) -> bytes:
    """Whole batches below `end`, within the limits; the first of the answer may exceed them."""
    limit = min(wanted.bytes_max, left)
    offset = wanted.offset
    if partition.log.log_start_offset <= offset and end <= offset:
        if offset > partition.log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return b""
    if limit <= 0 and not is_first:
        return b""
    records = partition.log.read(offset, max(limit, 0), end)
    return records if is_first or len(records) <= limit else b""


def _diverging_epoch(partition: Partition, wanted: WantedPartition) -> Divergence | None:
    """The point where the fetcher's log diverges from ours, by its last fetched epoch (KIP-595).

    Raises `KafkaError` OFFSET_OUT_OF_RANGE for an epoch newer than any in this log: there is no end
    offset that the fetcher could truncate to.
    """
    log, last_epoch = partition.log, wanted.last_fetched_epoch
    if last_epoch < 0:
        return None
    if last_epoch > log.leader_epochs.latest_epoch:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name} has no leader epoch {last_epoch}, only up to "
            f"{log.leader_epochs.latest_epoch}",
        )
    return find_divergence(log.leader_epochs, log.log_end_offset, wanted.offset, last_epoch)
