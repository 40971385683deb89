"""The neighbours that a pass copies into one new segment. Pure. Called by `cleaning.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from echoless.storage.offset_order import RELATIVE_OFFSET_MAX
from echoless.storage.segment import SIZE_MAX

SOURCES_MAX: Final = 32
"""So many segments at most become one: a cut of the log waits until their files are removed."""


class SegmentExtent(Protocol):
    """The part of a log that one segment holds."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


def may_join(
    group: Sequence[SegmentExtent], written: int, segment: SegmentExtent, bytes_max: int
) -> bool:
    """Whether the segment may be copied behind its neighbours of `group`, of which `written` bytes are left.

    What is left counts, as passes would leave ever smaller segments otherwise. A new segment may become larger
    than `bytes_max` by an eighth: else one that has lost nearly all would stay alone beside each full one.
    """
    return (
        len(group) < SOURCES_MAX
        and (written + segment.size <= bytes_max or written <= bytes_max // 8)
        and written + segment.size <= SIZE_MAX
        and segment.next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )
