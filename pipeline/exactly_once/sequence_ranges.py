"""Conclusions from the `begin` entries of a batch and from what the leaders have. Pure.

The entries cut the rows of each topic and partition into sequence ranges. Those under the identity of the
last entry are the current ones, to which new rows are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from echoless.client.sequenced_batch import distance
from echoless.client.sequencer import Identity, LeaderEntry
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Begin, SequenceRange
from echoless.protocol.sequence import increment


class StoredRange(NamedTuple):
    """The first rows of a sequence range: those that are stored."""

    sequence_range: SequenceRange
    identity: Identity
    rows: int


def current_ranges(begins: Sequence[Begin]) -> dict[TopicPartition, SequenceRange]:
    """Returns the sequence range of each target to which new rows are added."""
    return {
        sequence_range.target: sequence_range
        for begin in begins
        if begin.identity == begins[-1].identity
        for sequence_range in begin.sequence_ranges
    }


def stored_ranges_of(
    begins: Sequence[Begin], rows: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[StoredRange]]:
    """Returns, in order, the ranges in which the first `rows` of each target are stored."""
    stored = {
        target: [one for one in ranges if one.rows > 0]
        for target, ranges in _all_ranges(begins, rows).items()
    }
    return {target: ranges for target, ranges in stored.items() if ranges}


def handovers_of(
    begins: Sequence[Begin], rows: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[StoredRange]]:
    """Returns the ranges of those targets whose rows continue under a later identity.

    Each range has the rows that were counted under its identity. The last one has rows, whose first batch
    fenced any attempt still alive under an earlier identity.
    """
    found = {}
    for target, ranges in _all_ranges(begins, rows).items():
        while ranges and ranges[-1].rows <= 0:
            ranges.pop()
        if len(ranges) > 1:
            found[target] = ranges
    return found


def _all_ranges(
    begins: Sequence[Begin], rows: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[StoredRange]]:
    """Returns the ranges of each target, including those in which nothing is stored."""
    by_target: dict[TopicPartition, list[tuple[Identity, SequenceRange]]] = {}
    for begin in begins:
        for sequence_range in begin.sequence_ranges:
            by_target.setdefault(sequence_range.target, []).append((begin.identity, sequence_range))
    found = {}
    for target, ranges in by_target.items():
        ends = [following.rows_before for _, following in ranges[1:]] + [rows.get(target, 0)]
        found[target] = [
            StoredRange(sequence_range, identity, end - sequence_range.rows_before)
            for (identity, sequence_range), end in zip(ranges, ends, strict=True)
        ]
    return found


def agrees(found: LeaderEntry | None, identity: Identity, next_sequence: int) -> bool:
    """Whether a leader has exactly the acknowledged records."""
    if found is None or found.producer_epoch < identity.producer_epoch:
        return next_sequence == 0
    is_same_epoch = found.producer_epoch == identity.producer_epoch
    return is_same_epoch and increment(found.last_sequence, 1) == next_sequence


def is_ahead(found: LeaderEntry | None, identity: Identity, next_sequence: int) -> bool:
    """Whether a leader has records that no entry accounts for."""
    if found is None or found.producer_epoch < identity.producer_epoch:
        return False
    is_same_epoch = found.producer_epoch == identity.producer_epoch
    return not is_same_epoch or distance(found.last_sequence, next_sequence) >= 0


def count_found(
    found: LeaderEntry | None, identity: Identity, sequence_range: SequenceRange
) -> int | None:
    """Counts a leader's records of the range; None if it has forgotten the producer."""
    if found is None:
        return None
    if found.producer_epoch < identity.producer_epoch or found.last_sequence < 0:
        return None if sequence_range.sequence else 0
    count = distance(found.last_sequence, sequence_range.sequence) + 1
    return count if count >= 0 else None
