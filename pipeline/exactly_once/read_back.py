"""Reads back a producer's records: fetches the log as a consumer does, and picks its batches.

Only committed records can be fetched, so those read back stay. A record is identified by its
number, not by its position: batches may have been cut differently, and a compacted log lacks some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from echoless.client.sequenced_batch import distance
from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Stretch
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leaders import Leaders
from echoless.pipeline.exactly_once.stretches import Portion
from echoless.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from echoless.protocol.records import Record, read_records
from echoless.protocol.sequence import NO_PRODUCER_ID


class StoredRow(NamedTuple):
    row: int
    """Its index among the batch's rows for this partition."""
    record: Record
    has_own_timestamp: bool
    """False if the broker set its timestamp."""


class ReadBack:
    """One partition's log.

    `timeout_s` limits how long a record that the leader has may stay uncommitted.
    """

    def __init__(
        self,
        leaders: Leaders,
        target: TopicPartition,
        *,
        timeout_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leaders = leaders
        self._target = target
        self._timeout_s = timeout_s
        self._clock_s = clock_s

    def rows(self, portions: Sequence[Portion]) -> Iterator[StoredRow]:
        """The stored rows in order. Raises `SinkError` if they can no longer be read."""
        for portion in portions:
            yield from self._portion(portion)

    def count(self, stretch: Stretch, identity: Identity, end: int) -> int:
        """How many records of the stretch are below the offset `end`."""
        count = 0
        for header, _ in self._batches(stretch.log_end_offset, end):
            if is_under(header, identity):
                count = max(count, distance(header.last_sequence, stretch.sequence) + 1)
        return count

    def has_surplus(self, portions: Sequence[Portion]) -> bool:
        """Whether more was stored under an older identity than was counted under it.

        Rows that were not counted are at or after the offset at which the next identity began. The
        last one has rows; anything after its first batch is not looked at.
        """
        *older, last = portions
        counted = {portion.identity: portion for portion in older}
        for header, _ in self._batches(portions[1].stretch.log_end_offset, None):
            if is_under(header, last.identity):
                return False
            found = counted.get(Identity(header.producer_id, header.producer_epoch))
            if found is not None and not header.is_control:
                stored = distance(header.last_sequence, found.stretch.sequence) + 1
                if stored > found.rows:
                    return True
        return False

    def _portion(self, portion: Portion) -> Iterator[StoredRow]:
        stretch, identity, wanted = portion
        row = 0
        for header, batch in self._batches(stretch.log_end_offset, None):
            if not is_under(header, identity):
                continue
            first = distance(header.base_sequence, stretch.sequence)
            for record in read_records(batch):
                index = first + record.offset - header.base_offset
                if row <= index < wanted:
                    row = index + 1
                    own = not header.is_log_append_time
                    yield StoredRow(stretch.rows_before + index, record, own)
            if first + header.last_offset_delta + 1 >= wanted:
                return

    def _batches(self, start: int, end: int | None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Batches from the offset `start` up to `end`, or for as long as the caller takes them."""
        offset = start
        known_end = self._known_end()
        waited_s = 0.0
        while end is None or offset < end:
            data, took_s = self._fetch(offset)
            # The caller's time does not count, and others may keep writing there for ever.
            waited_s += took_s if offset >= known_end else 0
            for header, batch in split(data):
                if header.next_offset > offset:
                    offset = header.next_offset
                    yield header, batch
            if waited_s > self._timeout_s:
                raise SinkError(f"records from offset {offset} on were not committed in time")

    def _known_end(self) -> int:
        standings = self._leaders.ask([self._target], NO_PRODUCER_ID)
        return standings[self._target].log_end_offset

    def _fetch(self, offset: int) -> tuple[bytes, float]:
        """The answer, and the seconds it took."""
        start_s = self._clock_s()
        try:
            data = self._leaders.fetch(self._target, offset)
            return data, self._clock_s() - start_s
        except SinkError as error:
            raise SinkError(
                f"the rows stored by an earlier attempt cannot be read back: {error}"
            ) from error


def is_under(header: BatchHeader, identity: Identity) -> bool:
    """Whether a batch belongs to this producer and epoch."""
    return (header.producer_id, header.producer_epoch) == identity and not header.is_control


def split(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The whole batches in an answer; the last one may be cut off."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        end = position + header.size
        if end > len(data):
            return
        yield header, data[position:end]
        position = end
