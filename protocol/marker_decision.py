"""The decisions that transactions add to those of `dedup.py`: on markers, and on batches beside an open transaction.

    decide_marker(entry, last, header, marker)      -> Append | Duplicate | Reject     (changes nothing)
    decide_membership(header, is_open)              -> Append | Reject                 (the same for a client's batch)

A marker is what a coordinator has the leader of a partition append. In order, first match wins:

1. the number is that of the last marker or an earlier one's  -> Duplicate: nothing is appended. The coordinator
       sends a marker again until it is answered, so copies arrive late, even in the midst of the next transaction
2. an older producer epoch                                     -> Reject 47
3. an older coordinator epoch than that of the last marker     -> Reject 52: the coordinator has been replaced
4. anything else                                               -> Append, also where nothing is open

A marker without a number, of a tool, is decided on by 2 to 4, as in Kafka 3.9. A repetition that contradicts the last
marker with its number is refused with 48: no coordinator decides twice.

Invariant: a marker with a number ends only the transaction with that number.
"""

from __future__ import annotations

from typing import NamedTuple

from echoless.protocol.control_records import NO_NUMBER, EndMarker, MarkerType
from echoless.protocol.dedup import (
    APPEND,
    Append,
    BatchMetadata,
    Duplicate,
    ProducerEntry,
    Reject,
    decide_epoch,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader
from echoless.protocol.sequence import NO_SEQUENCE


class LastMarker(NamedTuple):
    """The last marker of a producer on one partition."""

    type: MarkerType
    """Type of the marker with that number."""
    coordinator_epoch: int
    number: int
    """The highest number that a marker had; `NO_NUMBER` if none had one."""
    offset: int
    timestamp: int
    """ms, as stored."""


def decide_marker(
    entry: ProducerEntry | None, last: LastMarker | None, header: BatchHeader, marker: EndMarker
) -> Append | Duplicate | Reject:
    """Judges a marker; `entry` and `last` are what the partition knows of its producer."""
    if last is not None and NO_NUMBER < marker.number <= last.number:
        if marker.number == last.number and marker.type is not last.type:
            return Reject(
                ErrorCode.INVALID_TXN_STATE,
                f"transaction {marker.number} has ended in {last.type.name}, not in {marker.type.name}",
            )
        original = BatchMetadata(NO_SEQUENCE, last.offset, 0, last.timestamp, None)
        return Duplicate(original, divergent=False)
    decision = decide_epoch(entry, header)
    if decision is not APPEND:
        return decision
    if last is not None and marker.coordinator_epoch < last.coordinator_epoch:
        return Reject(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} is older than {last.coordinator_epoch}, "
            f"which sent the last marker",
        )
    return APPEND


def decide_membership(header: BatchHeader, *, is_open: bool) -> Append | Reject:
    """Judges a client's batch that is new, by whether its producer has a transaction open here."""
    if is_open and not header.is_transactional:
        return Reject(
            ErrorCode.INVALID_TXN_STATE,
            f"producer id {header.producer_id} has a transaction open here, and the batch is not part of one",
        )
    return APPEND
