"""The open transactions of one partition, and the last stable offset that follows from them.

    note(header, base_offset, effect)     a batch was stored; returns the transaction that it ended
    last_stable_offset(high_watermark)    the end of what a reader of committed records may see

A transaction is open from its first batch to its marker. It holds readers back at its first offset until the marker
is below the high watermark: before that a fail-over might still lose the marker. So the last stable offset is the
least first offset of any transaction that is open, or whose marker is at or above the high watermark; without one
it is the high watermark (Kafka's `ProducerStateManager`).

The producer ids in it must not be forgotten, however long they are idle.

Invariant: a producer has at most one open transaction, and a later batch of it does not move its first offset.
Invariant: the last stable offset is at most the high watermark, and rises with it while the log is not cut.

Every call takes constant time, or time that the transactions ended since the last call have paid for. Pure: knows
nothing of files and of producer entries. A log that is cut builds it anew, from a snapshot that has what holds
readers back at its offset: transactions that are open, and those whose marker was not below the high watermark yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from echoless.protocol.control_records import MarkerType
from echoless.protocol.producer_effect import ProducerEffect
from echoless.protocol.record_batch import BatchHeader


class ClosedTransaction(NamedTuple):
    """A transaction whose marker is stored; if it was aborted, an entry of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The first offset of the oldest transaction still open then; without one, the offset after the marker."""


class OpenTransactions:
    """The transactions of one partition that hold readers of committed records back."""

    __slots__ = ("_ended", "first_offsets")

    def __init__(self) -> None:
        self.first_offsets: OrderedDict[int, int] = OrderedDict()
        """First offsets by producer id; they rise, since each is the end of the log when it is added.

        Only this class changes it.
        """
        self._ended: list[tuple[int, int]] = []
        """A heap of first offset and marker's offset, of those that ended and may be above the high watermark."""

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self.first_offsets)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self.first_offsets

    def items(self) -> Iterator[tuple[int, int]]:
        """Yields producer id and first offset of the open transactions, the oldest first."""
        return iter(self.first_offsets.items())

    def oldest(self) -> tuple[int, int] | None:
        """Producer id and first offset of the oldest open transaction."""
        return next(self.items(), None)

    def note(
        self, header: BatchHeader, base_offset: int, effect: ProducerEffect
    ) -> ClosedTransaction | None:
        """Adds a batch that was stored at `base_offset`, after all others.

        Returns the transaction that it aborted; None if it aborted none. A marker of another epoch ends it too.
        """
        if effect.opens:
            self.first_offsets.setdefault(header.producer_id, base_offset)
        elif effect.end is not None:
            first_offset = self.first_offsets.pop(header.producer_id, None)
            if first_offset is not None:
                last_offset = base_offset + header.last_offset_delta
                heappush(self._ended, (first_offset, last_offset))
                if effect.end.type is MarkerType.ABORT:
                    return self._aborted(header.producer_id, first_offset, last_offset)
        return None

    def _aborted(self, producer_id: int, first_offset: int, last_offset: int) -> ClosedTransaction:
        oldest = self.oldest()
        stable = last_offset + 1 if oldest is None else oldest[1]
        return ClosedTransaction(producer_id, first_offset, last_offset, stable)

    def note_committed(self, high_watermark: int) -> None:
        """Forgets the transactions whose marker is below the high watermark: they hold no one back."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            heappop(ended)

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """The last stable offset; `high_watermark` is at least that of the call before.

        A transaction whose first batches were deleted holds readers back at the log start.
        """
        self.note_committed(high_watermark)
        stable = high_watermark
        if self._ended:
            stable = min(stable, self._ended[0][0])
        oldest = self.oldest()
        if oldest is not None:
            stable = min(stable, oldest[1])
        return max(stable, min(log_start_offset, high_watermark))

    @property
    def holds_readers_back(self) -> bool:
        """Whether the last stable offset may be below the high watermark."""
        return bool(self.first_offsets or self._ended)

    def ended(self) -> list[tuple[int, int]]:
        """First offset and marker's offset of transactions that ended, and may hold readers back; in any order."""
        return list(self._ended)

    def load(
        self, transactions: Iterable[tuple[int, int]], ended: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Replaces everything by these open transactions, producer id and first offset, in any order, and `ended`."""
        self.first_offsets = OrderedDict(sorted(transactions, key=itemgetter(1)))
        self._ended = list(ended)
        heapify(self._ended)
