"""Finding records by their timestamps (the ListOffsets API). Called by `log.py`."""

from __future__ import annotations

from protocol.record_batch import NO_TIMESTAMP
from storage.batch_reader import PlacedHeader
from storage.segment import Segment
from storage.segments import Segments


def find_timestamp(
    segments: Segments, timestamp_ms: int, log_start_offset: int
) -> tuple[int, int] | None:
    """`(timestamp, offset)` of the first record, by offset, at least as new as `timestamp_ms`."""
    for segment in segments:
        if segment.next_offset <= log_start_offset or segment.indexes.top[0] < timestamp_ms:
            continue
        start = max(segment.indexes.times.offset_before(timestamp_ms), log_start_offset)
        for placed in segment.headers_from(start):
            if placed.header.max_timestamp >= timestamp_ms:
                found = _first_record(segment, placed, timestamp_ms, log_start_offset)
                if found is not None:
                    return found
    return None


def find_max_timestamp(segments: Segments, log_start_offset: int) -> tuple[int, int]:
    """`(timestamp, offset)` of the newest record, the first of equals; `(-1, -1)` without any."""
    newest = max(
        (s for s in segments if s.next_offset > log_start_offset),
        key=lambda segment: segment.indexes.top[0],
        default=None,
    )
    if newest is None or newest.indexes.top[0] == NO_TIMESTAMP:
        return NO_TIMESTAMP, -1
    timestamp, _ = newest.indexes.top
    found = find_timestamp(segments, timestamp, log_start_offset)
    return found if found is not None else _rescan(newest, log_start_offset)


def _rescan(segment: Segment, log_start_offset: int) -> tuple[int, int]:
    """The newest record of a segment whose overall newest lies below the log start."""
    newest = NO_TIMESTAMP, -1
    for placed in segment.headers_from(log_start_offset):
        top = placed.header.max_timestamp
        if top > newest[0]:
            found = _first_record(segment, placed, top, log_start_offset)
            newest = found if found is not None else newest
    return newest


def _first_record(
    segment: Segment, placed: PlacedHeader, timestamp_ms: int, log_start_offset: int
) -> tuple[int, int] | None:
    """The first record of the batch that is new enough and not deleted."""
    from protocol.records import read_records  # noqa: PLC0415 - brings codecs, which serve can do without

    header = placed.header
    if header.is_log_append_time:
        return header.max_timestamp, max(header.base_offset, log_start_offset)
    for record in read_records(segment.file.read(placed.position, header.size)):
        if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
            return record.timestamp, record.offset
    return None
