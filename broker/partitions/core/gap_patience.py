"""A leader's patience with gaps: the missing batches may be about to be sent again.

Several batches of a producer may be in flight when the leader changes, or when it cannot accept
records for a moment. The first one is rejected by the old leader, or not answered, or rejected by
this leader while it is in doubt or has too few replicas in sync; the next one, sent before the
producer knew that, reaches a leader that accepts it. This leader sees a gap, but nothing is lost:
the producer is about to send both again, in order. A 45 would make librdkafka bump its epoch for
all partitions, and send what is stored but not yet acknowledged a second time under new numbers.

So a producer's first gap proves nothing until that producer has had a little time. After that, or
once a batch of the producer has been stored again, a gap is a gap.

One object per reason to be patient. Pure: times are seconds of the caller's clock.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.dedup import ProducerEntry, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader
from echoless.protocol.sequence import DISTANCE_MAX, decrement

GAP_GRACE_S: Final = 3.0
"""The time a producer has, from its first gap on, to send the missing batches."""
PRODUCERS_MAX: Final = 10_000
"""Producers whose first gap is remembered; beyond that the oldest is forgotten."""
GAP_CODES: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
"""Codes with which a gap is rejected."""


class GapPatience:
    """The producers that may have been sending when something was refused, here or elsewhere."""

    def __init__(self, since_offset: int) -> None:
        """`since_offset`: the log end offset at that time; what lies above was stored afterwards."""
        self._since_offset = since_offset
        self._first_gap_s: dict[int, float] = {}
        """The time of each producer's first gap by producer id, in the order of arrival."""

    def retriable(
        self, reject: Reject, entry: ProducerEntry | None, header: BatchHeader, now_s: float
    ) -> Reject:
        """The rejection, made retriable if it is for a gap and may yet prove to be wrong.

        `entry` is what the log knows of the producer, by which the batch was rejected.
        """
        if reject.code in GAP_CODES and self.may_be_on_its_way(entry, header, now_s):
            reason = f"{reject.reason}; what is missing may be on its way"
            return Reject(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        return reject

    def may_be_on_its_way(
        self, entry: ProducerEntry | None, header: BatchHeader, now_s: float
    ) -> bool:
        """Whether what is missing before this rejected batch may still come: it is no gap yet."""
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
    """Whether only missing batches keep this one from following; an overlap stays wrong."""
    if entry is None or header.producer_epoch != entry.producer_epoch:
        return header.base_sequence > 0
    expected = entry.last_sequence + 1
    return 0 < decrement(header.base_sequence, expected) <= DISTANCE_MAX
