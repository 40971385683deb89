"""The log of a compacted partition as it was before any cleaning: from everything that any disk ever took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.simulation.checkers.logs import Batch, read_batches
from tests.simulation.observations import Append

EpochStart = tuple[int, int]
"""A leader epoch, and the first offset of it."""


def original_batches(
    appends: Iterable[Append], epochs: Sequence[EpochStart], end: int
) -> list[Batch]:
    """The batches from offset 0 to `end` as their leaders wrote them first.

    `epochs`: those of a replica that has the log. One that copied a cleaned log may begin an epoch at the hole before
    its first batch.
    """
    firsts: dict[EpochStart, Batch] = {}
    for append in appends:
        for batch in read_batches(append.data):
            firsts.setdefault((batch.leader_epoch, batch.base_offset), batch)
    found: list[Batch] = []
    offset = 0
    while offset < end:
        reached = [epoch for epoch, start in epochs if start <= offset]
        batch = next(
            (firsts[epoch, offset] for epoch in reversed(reached) if (epoch, offset) in firsts),
            None,
        )
        assert batch is not None, f"no disk was seen to take offset {offset} in one of {reached}"
        found.append(batch)
        offset = batch.next_offset
    return found
