"""The aborted transactions whose markers one segment holds, in Kafka's `.txnindex` format.

Entries of 34 bytes, big-endian, in the order of the markers; commits have none:

    i16 version (0) | i64 producer id | i64 first offset | i64 offset of the marker | i64 last stable offset

The last stable offset is the one right after the abort. No transaction whose marker comes later begins below it, so a
look-up ends at the first entry whose last stable offset is at or above its end.

Unlike the other two indexes it is evidence: it says which records readers of committed ones must not see, and a
transaction may have begun in an earlier segment, so the batches of this one do not suffice to make it again. A
segment without an aborted transaction has no file.

Invariant: the offsets of the markers rise strictly.

Knows nothing of files. Entries stay packed: a segment may hold millions.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from echoless.storage.producers.open_transactions import ClosedTransaction

_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
assert ENTRY_SIZE == 34
_LAST_OFFSET: Final = struct.Struct(">q")
_LAST_OFFSET_POSITION: Final = 18
_VERSION: Final = 0


class AbortedRanges(NamedTuple):
    """The aborted transactions of a range of offsets, as far as one segment knows them."""

    transactions: list[ClosedTransaction]
    is_complete: bool
    """Whether no later segment can hold more of them."""


class TransactionIndex:
    """Entries of one segment."""

    __slots__ = ("_base_offset", "_data")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data) // ENTRY_SIZE

    def __iter__(self) -> Iterator[ClosedTransaction]:
        return self._from(0)

    @property
    def last(self) -> ClosedTransaction | None:
        """The newest entry."""
        return next(self._from(len(self) - 1)) if self._data else None

    def append(self, aborted: ClosedTransaction) -> None:
        """Adds a transaction whose marker is after all others."""
        last = self.last
        assert last is None or aborted.last_offset > last.last_offset, f"{aborted} after {last}"
        self._data += _ENTRY.pack(_VERSION, *aborted)

    def find(self, start: int, end: int) -> AbortedRanges:
        """The aborted transactions that overlap the offsets from `start` up to `end`, by their markers."""
        found = []
        for aborted in self._from(self._place_of(start)):
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return AbortedRanges(found, is_complete=True)
        return AbortedRanges(found, is_complete=False)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or after `offset`."""
        del self._data[self._place_of(offset) * ENTRY_SIZE :]

    def encode(self) -> bytes:
        """The bytes of the file."""
        return bytes(self._data)

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TransactionIndex | None:
        """The index as read from `.txnindex`; None when the bytes cannot be one.

        Every entry is looked at, since nothing else says which records were aborted.
        """
        index = cls.decode_beginning(base_offset, data)
        return index if len(index) * ENTRY_SIZE == len(data) else None

    @classmethod
    def decode_beginning(cls, base_offset: int, data: bytes) -> TransactionIndex:
        """The entries before the first bytes that cannot be one."""
        newest, end = base_offset - 1, 0
        whole = memoryview(data)[: len(data) // ENTRY_SIZE * ENTRY_SIZE]
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(whole):
            if version != _VERSION or producer_id < 0 or last <= newest:
                break
            if not 0 <= first <= last or not 0 <= stable <= last + 1:
                break
            newest, end = last, end + ENTRY_SIZE
        index = cls(base_offset)
        index._data += data[:end]
        return index

    def _place_of(self, offset: int) -> int:
        """Place of the first entry whose marker is at or after `offset`."""
        return bisect_left(range(len(self)), offset, key=self._last_offset_at)

    def _last_offset_at(self, place: int) -> int:
        position = place * ENTRY_SIZE + _LAST_OFFSET_POSITION
        return int(_LAST_OFFSET.unpack_from(self._data, position)[0])

    def _from(self, place: int) -> Iterator[ClosedTransaction]:
        for position in range(place * ENTRY_SIZE, len(self._data), ENTRY_SIZE):
            _, *fields = _ENTRY.unpack_from(self._data, position)
            yield ClosedTransaction._make(fields)
