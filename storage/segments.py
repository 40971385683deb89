"""The segments of one log, oldest first.

Invariant: base offsets rise strictly, and each segment but the last ends where the next begins.
Invariant: there is always at least one; the last is the active one, which is appended to.
Invariant: every segment with aborted transactions is in `aborting`, so that a look-up asks no other one.

Called by `log.py` and its kin. Knows nothing of files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.segment import Segment

_INDEXES_LOADED_MAX: Final = 4
"""The indexes of a full segment take about 600 KB."""
_ABORTS_LOADED_MAX: Final = 4
"""Files of aborted transactions: 34 bytes each, and a full segment of short ones has millions."""


class Segments:
    """An ordered, never empty list of segments."""

    __slots__ = ("_bases", "_recent", "_recent_aborts", "_segments", "aborting", "active")

    def __init__(self, segments: list[Segment], aborting: Iterable[int] = ()) -> None:
        """`aborting`: base offsets of those that have a file of aborted transactions."""
        assert segments, "a log has at least one segment"
        self._segments = segments
        self._recent: list[Segment] = []
        """Closed segments whose indexes readers have loaded, at most `_INDEXES_LOADED_MAX`."""
        self._recent_aborts: list[Segment] = []
        """Closed segments whose aborted transactions were looked up, at most `_ABORTS_LOADED_MAX`."""
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.aborting = sorted(aborting)
        """Base offsets of the segments that may have aborted transactions: none in nearly all logs."""
        self._check()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def closed(self) -> list[Segment]:
        return self._segments[:-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def for_reading(self, offset: int) -> Segment:
        """Returns `holding`, and keeps in memory the indexes of the closed segments read last."""
        segment = self.holding(offset)
        if segment is not self.active and segment not in self._recent:
            self._recent.append(segment)
            if len(self._recent) > _INDEXES_LOADED_MAX:
                self._recent.pop(0).indexes.release()
        return segment

    def holding(self, offset: int) -> Segment:
        """The segment that holds `offset`, or would; the first one for an offset below it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def base_after(self, offset: int) -> int | None:
        """The base offset of the segment after the one that holds `offset`; None if that is the last."""
        place = max(bisect_right(self._bases, offset), 1)
        return self._bases[place] if place < len(self._bases) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def aborting_from(self, offset: int) -> Iterator[Segment]:
        """Yields the segments that may have aborted transactions, from the one that holds `offset` on.

        Those of the closed segments looked up last stay in memory.
        """
        aborting = self.aborting
        base_offset = self.holding(offset).base_offset
        for place in range(bisect_left(aborting, base_offset), len(aborting)):
            segment = self.holding(aborting[place])
            if segment is not self.active and segment not in self._recent_aborts:
                self._recent_aborts.append(segment)
                if len(self._recent_aborts) > _ABORTS_LOADED_MAX:
                    self._recent_aborts.pop(0).indexes.release_aborted()
            yield segment

    def note_aborted(self, segment: Segment, aborted: ClosedTransaction) -> None:
        """Adds a transaction whose marker is in this segment, after all others of it."""
        segment.indexes.note_aborted(aborted)
        place = bisect_left(self.aborting, segment.base_offset)
        if self.aborting[place : place + 1] != [segment.base_offset]:
            self.aborting.insert(place, segment.base_offset)

    def add(self, segment: Segment) -> None:
        """Appends a segment, which becomes the active one."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self._check()

    def pop_first(self) -> Segment:
        self._bases.pop(0)
        return self._forget(self._segments.pop(0))

    def pop_last(self) -> Segment:
        """Removes the last one; the one before it becomes active."""
        assert len(self) > 1, "a log has at least one segment"
        self._bases.pop()
        segment = self._segments.pop()
        self.active = self._segments[-1]
        return self._forget(segment)

    def pop_above(self, offset: int) -> list[Segment]:
        """Removes the segments that begin above `offset`, newest first."""
        popped = []
        while self.active.base_offset > offset:
            popped.append(self.pop_last())
        return popped

    def begin_with(self, segment: Segment) -> None:
        """Replaces all segments by this one."""
        self._segments = [segment]
        self._bases = [segment.base_offset]
        self._recent.clear()
        self._recent_aborts.clear()
        self.aborting.clear()
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts `new` in the place of closed neighbours that hold the same offsets."""
        first = self._segments.index(old[0])
        end = first + len(old)
        assert [*old] == self._segments[first:end], "only neighbours are replaced"
        assert end < len(self._segments), "the active segment is not replaced"
        assert new.base_offset == old[0].base_offset
        assert new.next_offset == old[-1].next_offset
        self._segments[first:end] = [new]
        self._bases[first:end] = [new.base_offset]
        are_aborting = any(segment.base_offset in self.aborting for segment in old)
        for segment in old:
            self._forget(segment)
        if are_aborting:
            self.aborting.insert(bisect_left(self.aborting, new.base_offset), new.base_offset)

    def _forget(self, segment: Segment) -> Segment:
        if segment in self._recent:
            self._recent.remove(segment)
        if segment in self._recent_aborts:
            self._recent_aborts.remove(segment)
        if segment.base_offset in self.aborting:
            self.aborting.remove(segment.base_offset)
        return segment

    def _check(self) -> None:
        """Checks that the last two segments meet."""
        if len(self) > 1:
            before = self._segments[-2]
            assert before.next_offset == self.active.base_offset, "segments do not meet"
