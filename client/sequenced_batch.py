"""A batch with its numbers, and how the numbers of a partition are compared. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from echoless.protocol.sequence import increment

EPOCH_MAX: Final = 2**15 - 1
_HALF_CIRCLE: Final = 2**30


class Identity(NamedTuple):
    """The producer id and epoch under which the records of a partition are numbered."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True, eq=False)
class SequencedBatch:
    """Consecutive records under consecutive numbers. Identity and numbers change by rule 4 only."""

    identity: Identity
    base_sequence: int
    record_count: int
    payload: Any
    """Opaque; belongs to the owner."""
    attempts: int = 0
    is_in_flight: bool = False
    is_in_doubt: bool = False
    """Whether some attempt may have stored it. Only grows, until the numbers change."""
    is_skipped: bool = False
    """Set if it is not sent, because the leader has it; a later acknowledgement will confirm it."""
    stored: BatchAcknowledged | None = None
    """Its outcome, as long as an earlier batch has none."""

    @property
    def last_sequence(self) -> int:
        return increment(self.base_sequence, self.record_count - 1)

    def is_repeat(self, log_append_time: int, *, is_resumed: bool) -> bool | None:
        """Whether a success with this time acknowledges an earlier copy; None if that is unknown.

        A first attempt under fresh numbers has no earlier copy, and a fresh append no time.
        """
        if self.attempts == 1 and not is_resumed:
            return False
        max_timestamp: int = getattr(self.payload, "max_timestamp", -1)
        if max_timestamp < 0:
            return None
        if log_append_time < 0:
            return False
        return True if log_append_time == max_timestamp else None

    def divided(self, count: int) -> tuple[SequencedBatch, SequencedBatch]:
        """The first `count` records and the rest, with the same numbers. The owner sets payloads."""
        first = replace(self, record_count=count, payload=None)
        second = replace(
            self,
            base_sequence=increment(self.base_sequence, count),
            record_count=self.record_count - count,
            payload=None,
        )
        return first, second


class BatchAcknowledged(NamedTuple):
    """The acknowledgement of one batch."""

    batch: SequencedBatch
    base_offset: int | None
    is_duplicate: bool | None
    """None if that is unknown."""


def distance(sequence: int, other: int) -> int:
    """The distance from `other` to `sequence` on the circle of 2**31; negative if `sequence` comes before."""
    return (sequence - other + _HALF_CIRCLE) % (2 * _HALF_CIRCLE) - _HALF_CIRCLE
