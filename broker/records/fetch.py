"""Fetch for clients, from either port: record batches below the high watermark, by long poll.

Answers at once when `min_bytes` are available, when a partition has an error, or when the wait is 0;
otherwise waits for data, at most that long. At least one batch is returned even if it exceeds the
limits (KIP-74).

Called by the Fetch handlers of both ports. Knows nothing of requests and responses.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.metrics import Metrics
from broker.network.request import Peer
from broker.network.turns import ROWS_PER_TURN, work_in_turns
from broker.network.unsent_answers import UnsentAnswers
from broker.partitions.core.divergence import Divergence, find_divergence
from broker.partitions.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.fetch import PartitionFetched, TopicFetched
from protocol.fetch_request import FetchPartition
from storage.file_system import StorageError
from storage.log_directory import LogDirectory

BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of records in one answer, whatever the client asks for. Kafka's `fetch.max.bytes` is 55 MiB;
copying that much into memory holds the event loop for up to 100 ms."""
MIN_BYTES_MAX: Final = BYTES_MAX // 2
"""Enough for an answer, even if the client wants to wait for more: batches are returned whole, so an
answer may end well below `BYTES_MAX`."""


class Fetch(NamedTuple):
    """A fetch from either port."""

    topics: Sequence[tuple[str | uuid.UUID, Sequence[FetchPartition]]]
    min_bytes: int
    bytes_max: int
    max_wait_s: float
    read_committed: bool = False
    """Whether to read only up to the last stable offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchParts:
    """The parts of the broker that a fetch needs."""

    find: Callable[[str | uuid.UUID, int], Partition]
    """The partition by topic name or id. Raises `KafkaError` 3, 100, 6 or 56."""
    fail_storage: Callable[[StorageError], None]
    logs: LogDirectory
    metrics: Metrics
    unsent_answers: UnsentAnswers
    stopping: asyncio.Event


class _Pass:
    """One pass over the partitions of the request, a partition at a time."""

    def __init__(
        self,
        parts: FetchParts,
        wanted: Fetch,
        peer: Peer,
        arrived: asyncio.Future[None] | None = None,
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
        self._appended_before = parts.metrics.bytes_appended_total
        self._parts = parts
        self._wanted = wanted
        self._bytes_max = min(wanted.bytes_max, BYTES_MAX, parts.unsent_answers.room(peer.host))
        self._arrived = arrived

    def steps(self) -> Iterator[None]:
        """Reads one partition per step."""
        for topic, wanted_partitions in self._wanted.topics:
            fetched: list[PartitionFetched] = []
            self.topics.append(TopicFetched(topic, fetched))
            for wanted in wanted_partitions:
                fetched.append(self._read(topic, wanted))
                yield

    def _read(self, topic: str | uuid.UUID, wanted: FetchPartition) -> PartitionFetched:
        left = self._bytes_max - self.size
        one, partition = _read_partition(
            self._parts,
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
                or self._parts.stopping.is_set()
                or self._parts.metrics.bytes_appended_total >= enough_at
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
        if self._parts.logs.failure is not None:
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


def fetch(
    parts: FetchParts, wanted: Fetch, peer: Peer
) -> list[TopicFetched] | Awaitable[list[TopicFetched]]:
    """The available records, at once or after a wait."""
    if sum(len(partitions) for _, partitions in wanted.topics) <= ROWS_PER_TURN:
        one_pass = _Pass(parts, wanted, peer)
        for _ in one_pass.steps():
            pass
        if one_pass.is_enough or wanted.max_wait_s <= 0 or parts.stopping.is_set():
            return _taken(parts, one_pass)
    return _wait_for_data(parts, wanted, peer)


def _taken(parts: FetchParts, one_pass: _Pass) -> list[TopicFetched]:
    parts.metrics.fetch_bytes_total += one_pass.size
    return one_pass.topics


async def _wait_for_data(parts: FetchParts, wanted: Fetch, peer: Peer) -> list[TopicFetched]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wanted.max_wait_s
    while True:
        # Read again before each wait, even the first: data may have arrived before this task started.
        arrived = loop.create_future()
        one_pass = _Pass(parts, wanted, peer, arrived)
        try:
            await work_in_turns(one_pass.steps())
            timeout_s = deadline - loop.time()
            if one_pass.is_enough or timeout_s <= 0 or parts.stopping.is_set():
                return _taken(parts, one_pass)
            one_pass.topics = []  # holds their records: a wait must not keep them in memory
            await one_pass.until_worth_another(deadline)
        finally:
            one_pass.forget()


def _read_partition(
    parts: FetchParts,
    topic: str | uuid.UUID,
    wanted: FetchPartition,
    left: int,
    *,
    is_first: bool,
    read_committed: bool,
) -> tuple[PartitionFetched, Partition | None]:
    """One partition's answer, and the partition itself unless the answer is an error."""
    index = wanted.partition
    try:
        partition = parts.find(topic, index)
        partition.check_leader(wanted.leader_epoch)
        diverging = _diverging_epoch(partition, wanted)
        records = b""
        if diverging is None:
            end = partition.visible_end(read_committed=read_committed)
            records = _records(partition, end, wanted, left, is_first=is_first)
    except KafkaError as error:
        return PartitionFetched(index, error.code), None
    except StorageError as error:
        parts.fail_storage(error)
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
    partition: Partition, end: int, wanted: FetchPartition, left: int, *, is_first: bool
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


def _diverging_epoch(partition: Partition, wanted: FetchPartition) -> Divergence | None:
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
