"""A leader's patience with gaps: what is missing may be on its way back from a refusal.

Several batches of a producer may be in flight when the leader changes, or when it cannot take records
for a moment. The first one is refused by the old leader, or not answered, or refused by this leader
while it is in doubt or has too few replicas in sync; the next one, sent before the producer knew that,
finds a leader that takes it. This leader sees a gap, but nothing is lost: the producer is about to send
both again, in order. A 45 would make librdkafka raise its epoch for all partitions, and send what is
stored and not acknowledged yet a second time under new numbers.

So the first gap of a producer is no proof of anything until that producer has had a little time. After it,
or once a batch of the producer was stored again, a gap is a gap.

One object per reason to be patient. Pure: times are seconds of the caller's clock.
"""

from __future__ import annotations

from typing import Final

from protocol.dedup import ProducerEntry
from protocol.errors import ErrorCode
from protocol.record_batch import BatchHeader
from protocol.sequence import DISTANCE_MAX, decrement

GAP_GRACE_S: Final = 3.0
"""How long a producer has, from its first gap on, to send what is missing."""
PRODUCERS_MAX: Final = 10_000
"""Whose first gap is remembered; of more than that the one seen first has its time anew."""
GAP_CODES: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
"""What a gap is refused with, where it is one."""


class GapPatience:
    """The producers that may have been sending when something was refused, here or by another."""

    def __init__(self, since_offset: int) -> None:
        """What is stored from `since_offset` on was stored afterwards."""
        self._since_offset = since_offset
        self._first_gap_s: dict[int, float] = {}
        """By producer id, in the order in which they came."""

    def may_be_on_its_way(
        self, entry: ProducerEntry | None, header: BatchHeader, now_s: float
    ) -> bool:
        """Whether what is missing before this batch may still come, so that nobody can call it a gap.

        `entry` is what the log knows of the producer, by which the batch was refused with one of
        `GAP_CODES`.
        """
        if self._has_stored(entry) or not _leaves_gap(entry, header):
            return False
        first_s = self._first_gap_s.setdefault(header.producer_id, now_s)
        if len(self._first_gap_s) > PRODUCERS_MAX:
            del self._first_gap_s[next(iter(self._first_gap_s))]
        return now_s - first_s < GAP_GRACE_S

    def _has_stored(self, entry: ProducerEntry | None) -> bool:
        """Whether a batch of the producer was stored since."""
        return (
            entry is not None
            and bool(entry.batches)
            and entry.batches[-1].last_offset >= self._since_offset
        )


def _leaves_gap(entry: ProducerEntry | None, header: BatchHeader) -> bool:
    """Whether batches before this one would make it follow; an overlap stays wrong whatever comes."""
    if entry is None or header.producer_epoch != entry.producer_epoch:
        return header.base_sequence > 0
    expected = entry.last_sequence + 1
    return 0 < decrement(header.base_sequence, expected) <= DISTANCE_MAX
