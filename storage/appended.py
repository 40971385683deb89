"""The results of appending to a log."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """The place of an appended batch. `log_append_time` is -1 on topics with create time."""

    base_offset: int
    last_offset: int
    timestamp: int
    """The batch's max timestamp, as stored."""
    log_append_time: int


class ReplicatedAppend(NamedTuple):
    """The result of appending a leader's batches."""

    last_offset: int
    """The last offset of the log, also if there was nothing to append."""
    epochs_moved_back: int
    """Batches that took their producer to an older epoch, which no leader accepts; to be logged."""
