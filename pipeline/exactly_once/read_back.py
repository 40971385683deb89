"""Reads back a producer's records: fetches the log as a consumer does, and picks its batches.

Only committed records can be fetched, so those read back stay. A record is identified by its sequence, not by its
offset: batches may have been cut differently, and a compacted log lacks some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from echoless.client.sequenced_batch import distance
from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import SequenceRange
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries
from echoless.pipeline.exactly_once.sequence_ranges import StoredRange
from echoless.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from echoless.protocol.records import Record, read_records


class StoredRow(NamedTuple):
    """A row as it is stored."""

    row: int
    """Index among the batch's rows for this partition."""
    record: Record
    has_own_timestamp: bool
    """Whether the timestamp is the producer's; False: the broker set it (log append time)."""


class ReadBack:
    """One partition's log, read from its leader."""

    def __init__(
        self,
        leaders: LeaderQueries,
        target: TopicPartition,
        *,
        timeout_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s` limits how long a record that the leader has may stay uncommitted."""
        self._leaders = leaders
        self._target = target
        self._timeout_s = timeout_s
        self._clock_s = clock_s

    def rows(self, stored_ranges: Sequence[StoredRange]) -> Iterator[StoredRow]:
        """Yields the stored rows in order. Raises `SinkError` if they can no longer be read."""
        for stored_range in stored_ranges:
            yield from self._rows_of(stored_range)

    def count(self, sequence_range: SequenceRange, identity: Identity, end: int) -> int:
        """Counts the range's records below the offset `end`. Raises `SinkError`."""
        count = 0
        for header, _ in self._batches(sequence_range.log_end_offset, end):
            if is_under(header, identity):
                count = max(count, distance(header.last_sequence, sequence_range.sequence) + 1)
        return count

    def has_surplus(self, stored_ranges: Sequence[StoredRange]) -> bool:
        """Whether more was stored under an earlier identity than was counted under it.

        Rows that were not counted are at or after the offset at which the next identity began. The last range
        has rows; nothing after its first batch is read. Raises `SinkError`.
        """
        *earlier, last = stored_ranges
        counted = {stored_range.identity: stored_range for stored_range in earlier}
        for header, _ in self._batches(stored_ranges[1].sequence_range.log_end_offset, None):
            if is_under(header, last.identity):
                return False
            found = counted.get(Identity(header.producer_id, header.producer_epoch))
            if found is not None and not header.is_control:
                stored = distance(header.last_sequence, found.sequence_range.sequence) + 1
                if stored > found.rows:
                    return True
        return False

    def _rows_of(self, stored_range: StoredRange) -> Iterator[StoredRow]:
        sequence_range, identity, wanted = stored_range
        row = 0
        for header, batch in self._batches(sequence_range.log_end_offset, None):
            if not is_under(header, identity):
                continue
            first = distance(header.base_sequence, sequence_range.sequence)
            for record in read_records(batch):
                index = first + record.offset - header.base_offset
                if row <= index < wanted:
                    row = index + 1
                    own = not header.is_log_append_time
                    yield StoredRow(sequence_range.rows_before + index, record, own)
            if first + header.last_offset_delta + 1 >= wanted:
                return

    def _batches(self, start: int, end: int | None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yields batches from the offset `start` up to `end`; None: as many as the caller takes."""
        offset = start
        known_end = self._known_end()
        waited_s = 0.0
        while end is None or offset < end:
            data, took_s = self._fetch(offset)
            # The caller's time does not count, and other producers may write there without end.
            waited_s += took_s if offset >= known_end else 0
            for header, batch in split(data):
                if header.next_offset > offset:
                    offset = header.next_offset
                    yield header, batch
            if waited_s > self._timeout_s:
                raise SinkError(f"records from offset {offset} on were not committed in time")

    def _known_end(self) -> int:
        return self._leaders.log_ends([self._target])[self._target]

    def _fetch(self, offset: int) -> tuple[bytes, float]:
        """Returns the answer, and the seconds it took."""
        start_s = self._clock_s()
        try:
            data = self._leaders.fetch(self._target, offset)
            return data, self._clock_s() - start_s
        except SinkError as error:
            raise SinkError(
                f"the rows stored by an earlier attempt cannot be read back: {error}"
            ) from error


def is_under(header: BatchHeader, identity: Identity) -> bool:
    """Whether a batch has records of this producer and epoch."""
    return (header.producer_id, header.producer_epoch) == identity and not header.is_control


def split(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yields the whole batches in an answer; the last one may be cut off."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        end = position + header.size
        if end > len(data):
            return
        yield header, data[position:end]
        position = end
