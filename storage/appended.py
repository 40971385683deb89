"""What appending to a log comes to."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """Where a batch was written. `log_append_time` is -1 on topics with create time."""

    base_offset: int
    last_offset: int
    timestamp: int
    """The batch's max timestamp, as stored."""
    log_append_time: int


class ReplicatedAppend(NamedTuple):
    """What a follower appended of its leader's answer."""

    last_offset: int
    """The last offset of the log, also if there was nothing to append."""
    epochs_moved_back: int
    """Batches that took their producer to an older epoch, which no leader accepts; to be logged."""
