"""The log of a compacted partition as it was before any cleaning: from everything that any disk ever took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.simulation.checkers.logs import Batch, read_batches
from tests.simulation.observations import Append

EpochStart = tuple[int, int]
"""A leader epoch, and the first offset of it."""


def original_batches(
    appends: Iterable[Append], epochs: Sequence[EpochStart], end: int
) -> list[Batch]:
    """The batches from offset 0 to `end` as their leaders wrote them first.

    `epochs`: those of a replica that has the log. One that copied a cleaned log may lack epochs of which nothing is
    left, and begin the next one at the hole.
    """
    firsts: dict[EpochStart, Batch] = {}
    for append in appends:
        for batch in read_batches(append.data):
            firsts.setdefault((batch.leader_epoch, batch.base_offset), batch)
    found: list[Batch] = []
    offset = 0
    while offset < end:
        found.append(_batch_at(offset, firsts, epochs))
        offset = found[-1].next_offset
    return found


def _batch_at(
    offset: int, firsts: Mapping[EpochStart, Batch], epochs: Sequence[EpochStart]
) -> Batch:
    """The batch of the newest epoch that had begun by then; of an older one, if only that wrote anything here."""
    begun = max((epoch for epoch, start in epochs if start <= offset), default=epochs[0][0])
    for epoch in range(begun, -1, -1):
        batch = firsts.get((epoch, offset))
        if batch is not None:
            return batch
    raise AssertionError(f"no disk was seen to take offset {offset} in an epoch up to {begun}")
