"""A batch under its numbers, and what the numbers of a partition are compared by. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from protocol.sequence import increment

EPOCH_MAX: Final = 2**15 - 1
_HALF_CIRCLE: Final = 2**30


class Identity(NamedTuple):
    """The name under which the records of a partition are numbered."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True, eq=False)
class SequencedBatch:
    """Consecutive records under consecutive numbers. Identity and numbers change by rule 4 only."""

    identity: Identity
    base_sequence: int
    record_count: int
    payload: Any
    """The owner's; not looked at here."""
    attempts: int = 0
    is_in_flight: bool = False
    is_in_doubt: bool = False
    """Whether some attempt may have stored it. Only grows, until the numbers change."""
    is_skipped: bool = False
    """Not sent, because the leader has it; a later acknowledgement will confirm that."""
    stored: Acknowledged | None = None
    """Its outcome, while an earlier batch still has none."""

    @property
    def last_sequence(self) -> int:
        return increment(self.base_sequence, self.record_count - 1)

    def divided(self, count: int) -> tuple[SequencedBatch, SequencedBatch]:
        """The first `count` records and the rest, under the same numbers; payloads are the owner's task."""
        first = replace(self, record_count=count, payload=None)
        second = replace(
            self,
            base_sequence=increment(self.base_sequence, count),
            record_count=self.record_count - count,
            payload=None,
        )
        return first, second


class Acknowledged(NamedTuple):
    batch: SequencedBatch
    base_offset: int | None
    is_duplicate: bool | None
    """None where it cannot be known."""


def distance(sequence: int, other: int) -> int:
    """How far `sequence` is after `other` on the circle of 2**31; negative: before it."""
    return (sequence - other + _HALF_CIRCLE) % (2 * _HALF_CIRCLE) - _HALF_CIRCLE
