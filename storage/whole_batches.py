"""Whole batches after damage: they distinguish a damaged log from one whose last write was torn.

The damaged batch's length cannot be trusted, so the next batch is searched for: a magic byte, an offset
that continues the log, a length within the file, and a CRC that matches. Called by `torn_tail.py`; knows
nothing of what may be cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from echoless.protocol.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    compute_crc,
    read_header,
)
from echoless.storage.batch_reader import PlacedHeader
from echoless.storage.file_system import File

_WINDOW_BYTES: Final = 1024 * 1024
_HIGH_BYTES: Final = 4
"""The high bytes of an offset: the same for all batches of a segment, or one more."""


@dataclass(slots=True, eq=False)
class WholeBatches:
    """The figures of the whole batches after the damage."""

    count: int = 0
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def see(self, header: BatchHeader) -> None:
        """Adds the next one."""
        if not self.count:
            self.first_offset = header.base_offset
        self.count += 1
        self.records += header.record_count
        self.last_offset = header.last_offset

    def __str__(self) -> str:
        if not self.count:
            return "no whole batch follows"
        return (
            f"{self.count} whole batches follow, {self.records} records of offsets "
            f"{self.first_offset} to {self.last_offset}"
        )


def whole_batches_after(
    file: File, position: int, offset: int, leader_epoch: int
) -> Iterator[PlacedHeader]:
    """Yields the whole batches from `position` and `offset` on, in order.

    None with an epoch below `leader_epoch`: the value of a record may contain a client's batch.
    """
    while position + HEADER_SIZE <= file.size:
        window = file.read(position, _WINDOW_BYTES)
        candidates = _candidates(file, window, position, offset)
        found = next(
            (c for c in candidates if c.header.partition_leader_epoch >= leader_epoch), None
        )
        if found is None:
            position += max(len(window) - HEADER_SIZE + 1, 1)
        else:
            yield found
            position, offset = found.end_position, found.header.next_offset


def _candidates(file: File, window: bytes, start: int, offset: int) -> Iterator[PlacedHeader]:
    high = {(offset >> 32) + step for step in (0, 1)}
    prefixes = {value.to_bytes(_HIGH_BYTES, "big") for value in high}
    at = window.find(MAGIC, MAGIC_POSITION)
    while at >= 0:
        place = at - MAGIC_POSITION
        if place + HEADER_SIZE > len(window):
            return
        if window[place : place + _HIGH_BYTES] in prefixes:
            header = read_header(window, place)
            if header.base_offset >= offset and _is_whole(file, start + place, header):
                yield PlacedHeader(start + place, header)
        at = window.find(MAGIC, at + 1)


def _is_whole(file: File, position: int, header: BatchHeader) -> bool:
    if header.batch_length < BATCH_LENGTH_MIN or position + header.size > file.size:
        return False
    return compute_crc(file.read(position, header.size)) == header.crc
