"""Fetch for clients, from either port: record batches below the high watermark, by long poll.

Readers of committed records get batches below the last stable offset, with the aborted transactions that may be among
them: the client drops their records.

Answers at once when `min_bytes` are available, when a partition has an error, or when the wait is 0;
otherwise waits for data, at most that long. At least one batch is returned even if it exceeds the
limits (KIP-74). An answer holds batches that have records, if there are any: compaction leaves batches without
(`storage/empty_batches.py`).

Called by the Fetch handlers of both ports. Knows nothing of requests and responses.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN, work_in_turns
from echoless.broker.partitions.core.divergence import Divergence, find_divergence
from echoless.broker.partitions.long_poll import LongPoll
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.fetch_parts import FetchParts
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.fetch import READ_COMMITTED, PartitionFetched, TopicFetched
from echoless.protocol.fetch_request import FetchPartition, FetchRequest
from echoless.protocol.node_endpoints import LeaderHint
from echoless.storage.empty_batches import (
    SORTED_MAX,
    begins_empty,
    may_end_before,
    with_records,
    without_empty,
)
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log

BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of records in one answer, whatever the client asks for. Kafka's `fetch.max.bytes` is 55 MiB;
copying that much into memory holds the event loop for up to 100 ms."""
MIN_BYTES_MAX: Final = BYTES_MAX // 2
"""Enough for an answer, even if the client wants to wait for more: batches are returned whole, so an
answer may end well below `BYTES_MAX`."""
_SORTED_AT_ONCE_MAX: Final = 2 * SORTED_MAX
"""Batches that an answer made in one step was searched for those without records."""


class FetchPass:
    """One pass over the partitions of the request, a partition at a time.

    `session_fetch.py` has another, over those of a session.
    """

    __slots__ = (
        "_bytes_max",
        "_is_read_committed",
        "_parts",
        "_passed_to",
        "_peer",
        "_sorted",
        "_wait",
        "_wanted",
        "appended_before",
        "has_error",
        "partitions",
        "size",
        "topics",
    )

    def __init__(
        self,
        parts: FetchParts,
        wanted: FetchRequest,
        peer: Peer,
        wait: LongPoll | None = None,
    ) -> None:
        """With `wait`, each partition is watched from the moment it is read."""
        self.topics: list[TopicFetched] = []
        self.size = 0
        """Bytes of records."""
        self.has_error = False
        self.partitions: list[tuple[Partition, int]] = []
        """The partitions whose next data may complete the request, with the epochs they were read in."""
        self.appended_before = parts.metrics.bytes_appended_total
        """Bytes that were appended to any partition before the pass began."""
        self._parts = parts
        self._peer = peer
        self._passed_to = -1
        """The last empty batch that was passed in the partition that is being read; -1: none."""
        self._sorted = 0
        """Number of batches that were searched for those without records."""
        self._wanted = wanted
        self._is_read_committed = wanted.isolation_level == READ_COMMITTED
        self._wait = wait
        bytes_max, unsent = wanted.bytes_max, parts.unsent_answers
        if bytes_max > BYTES_MAX:  # noqa: PLR1730 - a third of the time of `min`
            bytes_max = BYTES_MAX
        if bytes_max > unsent.bytes_max // 2 - unsent.total:  # else there is room for any host
            bytes_max = min(bytes_max, unsent.room(peer.host))
        self._bytes_max = bytes_max

    def read(self) -> bool:
        """Reads all partitions, which are few; returns False if records need more than one step to find."""
        for topic, wanted_partitions in self._wanted.topics:
            fetched: list[PartitionFetched] = []
            for wanted in wanted_partitions:
                found = self.look(topic, wanted)
                if found is None or self.takes_long:
                    return False
                fetched.append(found)
            self.topics.append((topic, fetched))
        return True

    def steps(self) -> Iterator[None]:
        """Reads at most one partition per step; a topic without partitions is a step, too."""
        for topic, wanted_partitions in self._wanted.topics:
            fetched: list[PartitionFetched] = []
            self.topics.append((topic, fetched))
            for wanted in wanted_partitions:
                self._passed_to = -1
                while (found := self.look(topic, wanted)) is None:
                    yield
                fetched.append(found)
                yield
            if not fetched:
                yield

    def look(self, topic: str | uuid.UUID, wanted: FetchPartition) -> PartitionFetched | None:
        """Reads a partition, or passes some of its empty batches and returns None."""
        index, offset, bytes_max, leader_epoch, last_epoch = wanted
        self._parts.metrics.fetch_rows_read_total += 1
        try:
            partition = self._parts.find(topic, index)
            partition.check_leader(leader_epoch)
            stable, high_watermark = partition.last_stable_offset, partition.high_watermark
            committed = self._is_read_committed
            diverging = None
            if last_epoch >= 0:
                diverging = _diverging_epoch(partition, offset, last_epoch)
            records = b""
            aborted: Sequence[tuple[int, int]] | None = () if committed else None
            if diverging is None:
                end = stable if committed else high_watermark
                found = self._records(partition.log, offset, end, bytes_max)
                if found is None:
                    return None
                records = found
                self.size += len(records)
                if committed and records:
                    aborted = partition.log.aborted_in(records, end)
            else:
                self.has_error = True
        except KafkaError as error:
            self.has_error = True
            return PartitionFetched(index, error.code, leader=self._leader(topic, index, error))
        except StorageError as error:
            self._parts.fail_storage(error)
            self.has_error = True
            return PartitionFetched(index, ErrorCode.KAFKA_STORAGE_ERROR)
        self.partitions.append((partition, partition.leader_epoch))
        if self._wait is not None:
            partition.waiters.data.add(self._wait.arrived)
        start = partition.log.log_start_offset
        return PartitionFetched(
            index, ErrorCode.NONE, high_watermark, stable, start, records, diverging, aborted
        )

    def _leader(self, topic: str | uuid.UUID, index: int, error: KafkaError) -> LeaderHint | None:
        """The leader that the client should ask instead; None if that is not what failed, or not known."""
        if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return None
        try:
            partition = self._parts.find(topic, index)
        except KafkaError:
            return None
        return self._parts.other_leader(partition, self._peer)

    def _records(self, log: Log, offset: int, end: int, bytes_max: int) -> bytes | None:
        """Whole batches below `end`, within the limits; the first of the answer may exceed them.

        None if only a part of the empty batches before them was passed.
        """
        if end <= offset and log.log_start_offset <= offset:
            if offset > log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            return b""
        if offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        limit = self._bytes_max - self.size
        if bytes_max < limit:  # noqa: PLR1730 - a third of the time of `min`
            limit = bytes_max
        limit = limit if limit > 0 else 0  # noqa: FURB136 - as above
        records = log.read(offset, limit, end) if limit or not self.size else b""
        if begins_empty(records):
            begin = self._passed_to if offset < self._passed_to < end else offset
            passed = log.pass_empty(begin, end)
            if not passed.is_over:
                self._passed_to = passed.offset
                return None
            records = log.read(passed.offset, limit, end)
        if log.config.is_compacted:
            records, count = without_empty(records)
            self._sorted += count
            behind = may_end_before(records, offset)
            if behind is not None and behind < end:
                begin = self._passed_to if behind < self._passed_to < end else behind
                passed = log.pass_empty(begin, end)
                if not passed.is_over:
                    self._passed_to = passed.offset
                    return None
                records += with_records(log.read(passed.offset, max(limit - len(records), 0), end))
        return records if len(records) <= limit or not self.size else b""

    @property
    def takes_long(self) -> bool:
        """Whether so many batches were searched that another step has to follow."""
        return self._sorted > _SORTED_AT_ONCE_MAX

    @property
    def is_enough(self) -> bool:
        """Whether the client need not wait for more."""
        size = self.size
        return (
            size >= self._wanted.min_bytes
            or size >= MIN_BYTES_MAX
            or self.has_error
            or not self.partitions
        )

    def watch(self, wait: LongPoll) -> None:
        """Watches the partitions from now on: nothing has reached them since they were read."""
        self._wait = wait
        for partition, _ in self.partitions:
            partition.waiters.data.add(wait.arrived)

    async def until_worth_another(self) -> None:
        """Returns when another pass may find enough, or when the wait is over.

        Before that, as many bytes as are missing have to be appended, to any partition. Otherwise a
        fetch that waits for a lot would read everything again with every batch, and a hundred such
        fetches a hundred times as much.
        """
        wait, parts = self._wait, self._parts
        assert wait is not None
        enough_at = self.appended_before + self._missing_bytes()
        while True:
            await wait.arrived
            if (
                wait.is_over
                or parts.stopping.is_set()
                or parts.metrics.bytes_appended_total >= enough_at
                or self._has_moved()
            ):
                return
            self.forget()
            wait.renew()
            self.watch(wait)

    def _missing_bytes(self) -> int:
        """The bytes still missing; 0 if records already stored may yet be committed."""
        committed = self._is_read_committed
        for partition, _ in self.partitions:
            if partition.visible_end(read_committed=committed) < partition.log.log_end_offset:
                return 0
        return min(self._wanted.min_bytes, MIN_BYTES_MAX) - self.size

    def _has_moved(self) -> bool:
        """Whether a partition would now be answered with an error."""
        if self._parts.logs.failure is not None:
            return True
        try:
            for partition, epoch in self.partitions:
                partition.check_leader(epoch)
        except KafkaError:
            return True
        return False

    def forget(self) -> None:
        """Stops waiting for events of the partitions."""
        assert self._wait is not None
        for partition, _ in self.partitions:
            partition.waiters.data.remove(self._wait.arrived)


def count_rows(wanted: FetchRequest) -> int:
    """Number of partitions that the request names; a topic without any counts as one."""
    topics = wanted.topics
    if len(topics) == 1:
        return len(topics[0][1]) or 1
    return sum([len(partitions) or 1 for _, partitions in topics])


def fetch(
    parts: FetchParts, wanted: FetchRequest, peer: Peer, rows: int
) -> list[TopicFetched] | Awaitable[list[TopicFetched]]:
    """The available records, at once or after a wait. `rows`: those of the request (`count_rows`)."""
    if rows > ROWS_PER_TURN:
        return _wait_for_data(parts, wanted, peer, LongPoll(), None)
    one_pass = FetchPass(parts, wanted, peer)
    if not one_pass.read():
        return _wait_for_data(parts, wanted, peer, LongPoll(), None)
    if one_pass.is_enough or wanted.max_wait_ms <= 0 or parts.stopping.is_set():
        return _taken(parts, one_pass)
    wait = LongPoll()
    one_pass.watch(wait)
    return _wait_for_data(parts, wanted, peer, wait, one_pass)


def _taken(parts: FetchParts, one_pass: FetchPass) -> list[TopicFetched]:
    parts.metrics.fetch_bytes_total += one_pass.size
    return one_pass.topics


async def _wait_for_data(
    parts: FetchParts, wanted: FetchRequest, peer: Peer, wait: LongPoll, watched: FetchPass | None
) -> list[TopicFetched]:
    """Reads until it is enough; `watched` is a first pass that was not, and watches its partitions."""
    wait_s = max(wanted.max_wait_ms, 0) / 1000
    wait.end_after(wait_s)
    try:
        while True:
            one_pass = watched or FetchPass(parts, wanted, peer, wait)
            try:
                if one_pass is not watched:
                    await work_in_turns(one_pass.steps())
                    if one_pass.is_enough or wait.is_over or not wait_s or parts.stopping.is_set():
                        return _taken(parts, one_pass)
                one_pass.topics = []  # holds their records: a wait must not keep them in memory
                await one_pass.until_worth_another()
            finally:
                one_pass.forget()
            watched = None
            wait.renew()
    finally:
        wait.cancel()


def _diverging_epoch(partition: Partition, offset: int, last_epoch: int) -> Divergence | None:
    """The point where the fetcher's log diverges from ours, by its last fetched epoch (KIP-595).

    Raises `KafkaError` OFFSET_OUT_OF_RANGE for an epoch newer than any in this log: there is no end
    offset that the fetcher could truncate to.
    """
    log = partition.log
    if last_epoch > log.leader_epochs.latest_epoch:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name} has no leader epoch {last_epoch}, only up to "
            f"{log.leader_epochs.latest_epoch}",
        )
    return find_divergence(log.leader_epochs, log.log_end_offset, offset, last_epoch)
