"""The way past batches without records, which compaction leaves for the producers' sake.

A client that gets an answer without a record may stand still (kafka-go, kafkajs) or take the batch for larger
than its limits (librdkafka), so an answer begins at the first batch that has a record, in whatever segment. Only
if there is none below the end does it hold the last empty batch, from which clients learn how far they have come.
Behind a batch with records empty ones are left out: kafka-go takes what follows two of them for records.

A sparse batch may hold the fetched offset and no record from there on: kafka-go asks for the offset behind the last
record, and would get that batch again and again. So an answer that would be this batch alone goes on into the next one
that has records, beyond the limits if need be. Whether it is needed is not looked up: that takes opening the batch.

Invariant: a fetch answers without a record from its offset on only if no batch with such a record ends at or below the
readable end.

A search ends after a bounded number of batches and says where the next one goes on. Called by `log.py`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from echoless.protocol.record_batch import LOG_OVERHEAD, Buffer
from echoless.storage.segments import Segments

BATCHES_MAX: Final = 500
"""Batches that one search passes: half a millisecond."""
SEGMENTS_MAX: Final = 16
"""Segments that it opens: as much time, if each of them holds a single batch."""
SORTED_MAX: Final = 1000
"""Batches of one partition that an answer holds if it is looked for empty ones: a third of a millisecond."""
_RECORD_COUNT: Final = slice(57, 61)
"""The place of the number of records in a batch."""
_ZERO: Final = bytes(4)
_EXTENT: Final = struct.Struct(">8xi45xi")
"""The length field and the number of records."""
_OFFSETS: Final = struct.Struct(">qi11xi30xi")
"""Base offset, the length field, last offset delta and the number of records."""


class Passed(NamedTuple):
    """The place that a search has come to."""

    offset: int
    """An offset of the batch to read, or of the one to go on from."""
    is_over: bool


def begins_empty(batches: Buffer) -> bool:
    """Whether the first of these batches has no record; False if there is no batch."""
    return batches[_RECORD_COUNT] == _ZERO


def may_end_before(batches: bytes, offset: int) -> int | None:
    """The offset behind these batches if they are a single one whose records may all come before `offset`; else None."""
    if not batches:
        return None
    base_offset, length, last_offset_delta, record_count = _OFFSETS.unpack_from(batches)
    is_sparse = 0 < record_count <= last_offset_delta
    if base_offset >= offset or not is_sparse or length + LOG_OVERHEAD < len(batches):
        return None
    return int(base_offset + last_offset_delta + 1)


def with_records(batches: bytes) -> bytes:
    """The batches that have records; none if the first has not."""
    return b"" if begins_empty(batches) else without_empty(batches).batches


class Sorted(NamedTuple):
    """The batches of an answer without the empty ones."""

    batches: bytes
    looked_at: int
    """Number of batches until the end, or up to where the answer was cut."""


def without_empty(batches: bytes) -> Sorted:
    """Leaves out batches without records, unless the first is one, and the last ones of very many."""
    if begins_empty(batches):
        return Sorted(batches, 1)
    kept: list[bytes] = []
    start = place = count = 0
    size, extent = len(batches), _EXTENT.unpack_from
    while place < size and count < SORTED_MAX:
        length, record_count = extent(batches, place)
        end = place + length + LOG_OVERHEAD
        if not record_count:
            kept.append(batches[start:place])
            start = end
        place = end
        count += 1
    if not start and place == size:
        return Sorted(batches, count)
    kept.append(batches[start:place])
    return Sorted(b"".join(kept), count)


def pass_empty(segments: Segments, offset: int, end_offset: int) -> Passed:
    """Looks for the first batch with records that holds `offset` or a later one and ends at or below `end_offset`.

    Without any it is the last empty one, or `offset`.
    """
    last, batches = offset, 0
    for number, segment in enumerate(segments.from_offset(offset), 1):
        for placed in segment.headers_from(offset):
            header = placed.header
            if header.next_offset > end_offset:
                return Passed(last, is_over=True)
            last = header.last_offset
            if header.record_count:
                return Passed(last, is_over=True)
            batches += 1
            if batches == BATCHES_MAX:
                return Passed(last, is_over=False)
        if number == SEGMENTS_MAX and segment is not segments.active:
            return Passed(last, is_over=False)
    return Passed(last, is_over=True)
