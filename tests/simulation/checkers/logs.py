"""Logs as they lie on the disks, read by hand (layout: `docs/formats/record-batch.md`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tests.support.raw_batches import CONTROL

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_PREFIX: Final = 12
_CONTENT: Final = 21


class Batch(NamedTuple):
    """One batch out of a log."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: bytes
    attributes: int = 0

    @property
    def is_control(self) -> bool:
        """Whether it is a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.record_count

    @property
    def content(self) -> bytes:
        """The bytes written by the producer: everything after the CRC."""
        return self.data[_CONTENT:]


def read_batches(data: bytes) -> Iterator[Batch]:
    """The complete batches in the bytes of a log file; an incomplete last one is left out."""
    position = 0
    while position + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, position)
        end = position + _LENGTH_PREFIX + fields[1]
        if end > len(data):
            return
        yield Batch(
            base_offset=fields[0],
            leader_epoch=fields[2],
            producer_id=fields[9],
            producer_epoch=fields[10],
            base_sequence=fields[11],
            record_count=fields[6] + 1,
            data=data[position:end],
            attributes=fields[5],
        )
        position = end


def content_of(data: bytes) -> bytes:
    """The producer's bytes of one whole batch."""
    return data[_CONTENT:]


class ReplicaLog(NamedTuple):
    """One replica of one partition at the end of a history."""

    node: str
    start: int
    """The log start offset: below it nothing can be read."""
    batches: list[Batch]

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start

    def faults(self) -> Iterator[str]:
        """Gaps, and leader epochs that fall."""
        for before, after in zip(self.batches, self.batches[1:], strict=False):
            if before.next_offset != after.base_offset:
                yield f"{self.node}: offset {after.base_offset} follows {before.next_offset - 1}"
            if before.leader_epoch > after.leader_epoch:
                yield (
                    f"{self.node}: leader epoch {after.leader_epoch} follows "
                    f"{before.leader_epoch} at offset {after.base_offset}"
                )


def read_log(node: str, start: int, segments: Iterable[tuple[int, bytes]]) -> ReplicaLog:
    """The log in these segments."""
    batches = [batch for _, data in segments for batch in read_batches(data)]
    return ReplicaLog(node, start, batches)
