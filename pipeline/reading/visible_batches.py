"""Batches of a fetched piece of log that a reader sees: no control batches, and of transactions none that was aborted.

A fetch names the aborted transactions that overlap it, each by its producer id and first offset; from there on, the
producer's batches are left out, up to the abort marker. The id may be named again for a later transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from echoless.protocol.control_records import MarkerType, read_marker
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import BatchHeader, compute_crc, walk


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, on one partition."""

    first_offset: int
    producer_id: int


class VisibleBatch(NamedTuple):
    """A batch whose records a reader sees, among the bytes that were fetched."""

    header: BatchHeader
    batch: memoryview
    """The whole batch, header included."""
    position: int = 0
    """Position of the batch among those bytes, which are `batch.obj`."""


class VisiblePiece(NamedTuple):
    """The visible batches of a piece of log."""

    batches: Sequence[VisibleBatch]
    next_offset: int
    """Offset after the last whole batch, visible or not; that of the fetch if there is none."""


def find_visible(
    fetched: bytes, aborted: Iterable[AbortedTransaction], start: int, end: int
) -> VisiblePiece:
    """Finds those with offsets from `start` up to, not including, `end`. Raises `DecodeError` for damage."""
    batches, next_offset = [], start
    for position, header, batch in _committed(fetched, sorted(aborted)):
        if header.next_offset <= start:
            continue
        next_offset = max(next_offset, header.next_offset)
        if header.base_offset >= end:
            break
        if batch is not None and header.record_count > 0:
            if compute_crc(batch) != header.crc:
                raise DecodeError(f"the batch at offset {header.base_offset} is damaged (CRC)")
            batches.append(VisibleBatch(header, batch, position))
    return VisiblePiece(batches, next_offset)


def _committed(
    fetched: bytes, aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[int, BatchHeader, memoryview | None]]:
    """Yields each whole batch and its position; None in the place of the bytes of one that is not to be seen."""
    view = memoryview(fetched)
    hidden: set[int] = set()
    coming = list(reversed(aborted))
    for position, header in walk(fetched):
        batch = view[position : position + header.size]
        while coming and coming[-1].first_offset <= header.last_offset:
            hidden.add(coming.pop().producer_id)
        if header.is_control:
            marker = read_marker(batch) if header.producer_id in hidden else None
            if marker is not None and marker.type is MarkerType.ABORT:
                hidden.discard(header.producer_id)
            yield position, header, None
        elif header.is_transactional and header.producer_id in hidden:
            yield position, header, None
        else:
            yield position, header, batch
