"""Batches as a follower receives them: all are checked before the first is written.

Nothing is decided here: the leader has decided on what it stored. Called by `log.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from echoless.protocol.control_records import EndMarker, read_marker
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import CONTROL_BIT, BatchHeader, compute_crc, walk
from echoless.storage.log_config import LogConfig
from echoless.storage.offset_order import breach
from echoless.storage.segment import Segment


class CheckedBatch(NamedTuple):
    """A batch that continues the log."""

    end_position: int
    header: BatchHeader
    marker: EndMarker | None


def check_batches(batches: memoryview, next_offset: int, leader_epoch: int) -> list[CheckedBatch]:
    """The batches that continue a log which ends at `next_offset`, one directly after the other.

    Raises `DecodeError` unless all are whole, their CRCs match, their markers can be read, and neither
    their offsets nor their leader epochs fall below `next_offset`, `leader_epoch` or each other. A hole
    between offsets must fit into a segment, since the leader's does.
    """
    end = 0
    checked = []
    for position, header in walk(batches):
        end = position + header.size
        if breach(header, next_offset, next_offset):
            raise DecodeError(
                f"batch of offsets {header.base_offset} to {header.last_offset} "
                f"where {next_offset} is next"
            )
        if header.partition_leader_epoch < leader_epoch:
            raise DecodeError(
                f"leader epoch {header.partition_leader_epoch} at offset {next_offset} "
                f"after epoch {leader_epoch}"
            )
        batch = batches[position:end]
        if compute_crc(batch) != header.crc:
            raise DecodeError(f"the CRC of the batch at offset {next_offset} does not match")
        marker = read_marker(batch) if header.attributes & CONTROL_BIT else None
        checked.append(CheckedBatch(end, header, marker))
        next_offset, leader_epoch = header.next_offset, header.partition_leader_epoch
    if end != len(batches):
        raise DecodeError(f"{len(batches) - end} bytes are left over after the last whole batch")
    return checked


def count_run(
    checked: Sequence[CheckedBatch], segment: Segment, now_ms: int, config: LogConfig
) -> int:
    """Counts the batches with the first one's leader epoch that fit into `segment` together."""
    epoch = checked[0].header.partition_leader_epoch
    run = takewhile(lambda one: one.header.partition_leader_epoch == epoch, checked)
    headers = [one.header for one in run]
    return segment.count_fitting(headers, now_ms, config)
