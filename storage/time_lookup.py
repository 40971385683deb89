"""Finding records by their timestamps (the ListOffsets API). Called by `log.py`.

Headers show which batch may hold the record; whether it does is known only after decompressing the
batch, which may be large. So a look-up is a generator: it yields each batch to be opened, and is sent
what `echoless.protocol.records.first_record_since` found in it. The log may change in between, because nothing
read before is used afterwards.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from echoless.protocol.record_batch import NO_TIMESTAMP
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments


class ToOpen(NamedTuple):
    """A batch to be searched for its first record at least as new as `timestamp_ms`, from `offset` on."""

    batch: bytes
    timestamp_ms: int
    offset: int


Found = tuple[int, int] | None
"""`(timestamp, offset)` of a record."""
LookUp = Generator[ToOpen, Found, Found]


def find_timestamp(segments: Segments, timestamp_ms: int, log_start_offset: int) -> LookUp:
    """Finds the first record, by offset, at least as new as `timestamp_ms`."""
    offset = log_start_offset
    while (located := _find_batch(segments, timestamp_ms, offset)) is not None:
        batch, offset = located
        found = yield ToOpen(batch, timestamp_ms, log_start_offset)
        if found is not None:
            return found
    return None


def find_max_timestamp(segments: Segments, log_start_offset: int) -> LookUp:
    """Finds the newest record, the first of equals; `(-1, -1)` without any."""
    newest = max(
        (s for s in segments if s.next_offset > log_start_offset),
        key=lambda segment: segment.indexes.top[0],
        default=None,
    )
    if newest is None or newest.indexes.top[0] == NO_TIMESTAMP:
        return NO_TIMESTAMP, -1
    found = yield from find_timestamp(segments, newest.indexes.top[0], log_start_offset)
    if found is None:
        found = yield from _find_below(segments, log_start_offset)
    return (NO_TIMESTAMP, -1) if found is None else found


def _find_below(segments: Segments, log_start_offset: int) -> LookUp:
    """Finds the newest record if the first segment's newest one is below the log start."""
    first, *others = [one for one in segments if one.next_offset > log_start_offset]
    tops = _tops(first, log_start_offset)
    tops += [(top, one.base_offset) for one in others if (top := one.indexes.top[0]) >= 0]
    for top, offset in sorted(tops, key=lambda top: (-top[0], top[1])):
        located = _find_batch(segments, top, offset)
        if located is not None:
            found = yield ToOpen(located[0], top, log_start_offset)
            if found is not None:
                return found
    return None


def _tops(segment: Segment, log_start_offset: int) -> list[tuple[int, int]]:
    """`(max timestamp, base offset)` of each batch that reaches beyond the log start."""
    headers = (placed.header for placed in segment.headers_from(log_start_offset))
    return [(header.newest_record_ms, header.base_offset) for header in headers]


def _find_batch(segments: Segments, timestamp_ms: int, offset: int) -> tuple[bytes, int] | None:
    """The first batch from `offset` on that may hold a record so new, and its next offset."""
    for segment in segments:
        if segment.next_offset <= offset or segment.indexes.top[0] < timestamp_ms:
            continue
        start = max(segment.indexes.times.offset_before(timestamp_ms), offset)
        for placed in segment.headers_from(start):
            header = placed.header
            if header.record_count and header.max_timestamp >= timestamp_ms:
                return segment.file.read(placed.position, header.size), header.next_offset
    return None
