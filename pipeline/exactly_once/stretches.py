"""Conclusions from the entries of a batch and the answers of the leaders. Pure.

The `begin` entries of a batch cut the rows of each partition into stretches; those with the
producer id and epoch of the last entry are the current ones, to which new rows are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from echoless.client.sequenced_batch import distance
from echoless.client.sequencer import Found, Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Begin, Stretch
from echoless.protocol.sequence import increment


class Portion(NamedTuple):
    """Rows of a stretch that are stored."""

    stretch: Stretch
    identity: Identity
    rows: int


def current_stretches(begins: Sequence[Begin]) -> dict[TopicPartition, Stretch]:
    """The stretch of each target to which new rows are added."""
    return {
        stretch.target: stretch
        for begin in begins
        if begin.identity == begins[-1].identity
        for stretch in begin.stretches
    }


def portions_of(
    begins: Sequence[Begin], rows: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[Portion]]:
    """The numbers under which the first `rows` of each target are stored, in order."""
    stored = {
        target: [portion for portion in portions if portion.rows > 0]
        for target, portions in _all_portions(begins, rows).items()
    }
    return {target: portions for target, portions in stored.items() if portions}


def handovers_of(
    begins: Sequence[Begin], rows: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[Portion]]:
    """For targets whose rows continue under a later identity: the portion counted under each one.

    There are rows under the last one, which fenced any attempt still alive under an older one.
    """
    found = {}
    for target, portions in _all_portions(begins, rows).items():
        while portions and portions[-1].rows <= 0:
            portions.pop()
        if len(portions) > 1:
            found[target] = portions
    return found


def _all_portions(
    begins: Sequence[Begin], rows: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[Portion]]:
    """All portions, including empty ones."""
    by_target: dict[TopicPartition, list[tuple[Identity, Stretch]]] = {}
    for begin in begins:
        for stretch in begin.stretches:
            by_target.setdefault(stretch.target, []).append((begin.identity, stretch))
    found = {}
    for target, parts in by_target.items():
        ends = [stretch.rows_before for _, stretch in parts[1:]] + [rows.get(target, 0)]
        found[target] = [
            Portion(stretch, identity, end - stretch.rows_before)
            for (identity, stretch), end in zip(parts, ends, strict=True)
        ]
    return found


def agrees(found: Found | None, identity: Identity, next_sequence: int) -> bool:
    """Whether a leader has exactly the acknowledged records."""
    if found is None or found.producer_epoch < identity.producer_epoch:
        return next_sequence == 0
    is_same_epoch = found.producer_epoch == identity.producer_epoch
    return is_same_epoch and increment(found.last_sequence, 1) == next_sequence


def is_ahead(found: Found | None, identity: Identity, next_sequence: int) -> bool:
    """Whether a leader has records that no entry accounts for."""
    if found is None or found.producer_epoch < identity.producer_epoch:
        return False
    is_same_epoch = found.producer_epoch == identity.producer_epoch
    return not is_same_epoch or distance(found.last_sequence, next_sequence) >= 0


def count_found(found: Found | None, identity: Identity, stretch: Stretch) -> int | None:
    """How many records of the stretch a leader has; None if it cannot say."""
    if found is None:
        return None
    if found.producer_epoch < identity.producer_epoch or found.last_sequence < 0:
        return None if stretch.sequence else 0
    count = distance(found.last_sequence, stretch.sequence) + 1
    return count if count >= 0 else None
