"""The old segments and snapshots that may go. Decides only; `pending_segment_removal.py` removes.

Kafka's three rules, oldest segment first, until one stays: its newest record is older than
`retention_ms`, or the log without it still holds `retention_bytes`, or it lies wholly below the log
start (DeleteRecords). Of the snapshots those at the base of a segment stay, the newest, and always
the newest at or below the log start, because it alone knows producers whose records are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from echoless.storage.file_system import FileSystem
from echoless.storage.log_config import LogConfig
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments


class Reason(StrEnum):
    """The rule by which a segment may be deleted."""

    LOG_START = "DeleteRecords"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


def find_expired(
    fs: FileSystem, segments: Segments, log_start_offset: int, config: LogConfig, now_ms: int
) -> list[Reason]:
    """Returns the reason for each of the oldest segments that have expired, the active one included."""
    excess = segments.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1
    reasons = []
    for segment in segments:
        if not segment.size:
            break
        if segment.next_offset <= log_start_offset:
            reason = Reason.LOG_START
        elif excess >= segment.size:
            reason = Reason.SIZE
        elif 0 <= config.retention_ms < now_ms - _newest_ms(fs, segment):
            reason = Reason.TIME
        else:
            break
        reasons.append(reason)
        excess -= segment.size
    return reasons


def next_expiry_ms(fs: FileSystem, segments: Segments, config: LogConfig) -> int | None:
    """The time from which on the oldest segment has expired by its age; None: it cannot, or is empty."""
    oldest = segments.first
    if config.retention_ms < 0 or not oldest.size:
        return None
    return _newest_ms(fs, oldest) + config.retention_ms + 1


def _newest_ms(fs: FileSystem, segment: Segment) -> int:
    """The newest record's time; if records have none, the time of the last write to the file."""
    timestamp, _ = segment.indexes.top
    return timestamp if timestamp >= 0 else fs.modified_ms(segment.file.path)


def snapshots_to_remove(
    offsets: Collection[int], base_offsets: Sequence[int], log_start_offset: int
) -> list[int]:
    """Returns the snapshots, of those at `offsets`, that no recovery can need.

    Recovery starts from the newest one at or below the first segment that it scans, which may be the
    log's first.
    """
    if not offsets:
        return []
    oldest_needed = _newest_at(offsets, base_offsets[0])
    needed = {oldest_needed, _newest_at(offsets, log_start_offset), max(offsets), *base_offsets}
    return [offset for offset in offsets if offset not in needed]


def _newest_at(offsets: Collection[int], limit: int) -> int:
    return max((offset for offset in offsets if offset <= limit), default=-1)
