"""The de-duplication decision: is this batch new, a repeat, or wrong?

One pure function decides, one commits:

    decide(entry, header, partition) -> Append | Duplicate | Reject      (changes nothing)
    decide_epoch(entry, header)      -> Append | Reject                  (the same for a coordinator's batch)
    commit(entry, header, base_offset, ...) -> the new entry             (after the bytes are written)

Leader, follower, recovery, `echoless verify` and the audit all come here; `storage/` keeps the
entries of one partition and calls nothing else to judge a batch. A leader calls `decide` and then
`commit`; followers and recovery call `commit` alone, since everything
in a leader's log has already been decided.

The rules are Kafka 3.9's (`docs/protocol/deduplication.md`) with the differences that
`docs/differences.md` lists. In order, first match wins:

1. same epoch and exactly the sequences of a remembered batch  -> Duplicate (original offsets)
2. an older epoch (for an unknown id: one below -1)             -> Reject 47
3. an id (or an epoch-less entry) seen for the first time      -> sequence 0: Append; else
       where `unknown_producer_id=accept`: Append;
       an id that a deleted topic of the same name may have known (`older_ids_end`): Append;
       a log that never held a record: Reject 45 (KAFKA-15591); else Reject 59
4. a newer epoch                                               -> sequence 0: Append; else Reject 45
5. same epoch, the very next sequence                          -> Append
6. same epoch, all of it provably stored before                -> Reject 46
7. anything else (gap, overlap)                                -> Reject 45

Invariant: an entry's window is ordered oldest first, holds batches of `producer_epoch` only, and at
most as many as the partition retains.
Invariant: every sequence from `run_start` to the newest batch's last sequence was appended to this
partition in this epoch, so a batch inside that range is a repeat and nothing else.

Knows nothing of files, clocks and maps: times are passed in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from echoless.protocol.bound_ids import issue_number
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
)
from echoless.protocol.sequence import (
    DISTANCE_MAX,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    decrement,
    follows,
)

WINDOW_DEFAULT: Final = 5
"""Batches remembered per producer; Kafka's hard-coded number (KIP-1269 makes it a topic config)."""


_CHANGED_BITS: Final = LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT


class UnknownProducerId(enum.StrEnum):
    """Answer to a first sequence other than 0."""

    REJECT = "reject"
    ACCEPT = "accept"


class BatchMetadata(NamedTuple):
    """One remembered batch. `crc` is None if the broker itself changed the batch's bytes."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """last_offset - base_offset"""
    timestamp: int
    """The batch's max timestamp in ms, as stored."""
    crc: int | None

    @property
    def base_sequence(self) -> int:
        return decrement(self.last_sequence, self.offset_delta)

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer id on one partition.

    Replaced as a whole by `commit`, never edited.
    """

    producer_epoch: int
    """The epoch of the newest batch or marker; -1 if its batches carry none."""
    run_start: int
    """First sequence of the unbroken run that ends with the newest batch; -1 without batches."""
    last_append_ms: int
    """When this broker appended the newest batch, by its own clock. Expiry counts from here."""
    batches: tuple[BatchMetadata, ...]
    """The window, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        return self.batches[-1].timestamp if self.batches else -1


@dataclass(slots=True, eq=False)
class PartitionRules:
    """The properties of the partition on which the decision depends."""

    has_held_records: bool
    """Whether the log end offset has ever been above 0."""
    unknown_producer_id: UnknownProducerId = UnknownProducerId.REJECT
    older_ids_end: int = 0
    """Unknown ids below it may have been known to the partition of a deleted topic of the same name, and go on.

    By their numbers (`issue_number`). 0: there was no such topic, or not all that this log knew of such ids is
    known any more.
    """


class Append(NamedTuple):
    """Write it: the batch is new."""


class Duplicate(NamedTuple):
    """Do not write it: `original` is the same batch. `divergent`: same numbers, other bytes."""

    original: BatchMetadata
    divergent: bool


class Reject(NamedTuple):
    """Do not write it; answer with `code`. `reason` says what was expected and what was found."""

    code: ErrorCode
    reason: str


class OtherRecords(Reject):
    """Do not write it: its sequences are stored, with other records."""

    __slots__ = ()


Decision = Append | Duplicate | Reject
APPEND: Final = Append()
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class: 1 % of a produce."""


def decide(  # noqa: C901 - flat, because each call costs every batch
    entry: ProducerEntry | None, header: BatchHeader, rules: PartitionRules
) -> Decision:
    """Judges a client's batch that carries a producer id. Changes nothing.

    Expects a validated header: `producer_id >= 0`, `base_sequence >= 0`, not a control batch.
    """
    if entry is None:
        return _decide_unknown(header, rules)
    epoch = header.producer_epoch
    if epoch == entry.producer_epoch:
        base_sequence = header.base_sequence
        last_sequence = base_sequence + header.last_offset_delta
        if last_sequence > SEQUENCE_MAX:
            last_sequence = header.last_sequence
        batches = entry.batches
        for batch in batches:
            if batch[0] == last_sequence:  # nearly never, and the only way to be a duplicate
                original = find_duplicate(entry, header)
                if original is not None:
                    divergent = original.crc is not None and original.crc != header.crc
                    return Duplicate(original, divergent)
        if epoch == NO_PRODUCER_EPOCH:
            return APPEND  # as Kafka: without an epoch there is nothing to check against
        if batches and base_sequence == batches[-1][0] + 1:
            return APPEND  # rule 5, without a wrap
        return _decide_sequence(entry, header)
    if epoch < entry.producer_epoch:
        return _reject_stale(entry, header)
    if entry.producer_epoch == NO_PRODUCER_EPOCH:
        return _decide_unknown(header, rules)
    if header.base_sequence == 0:
        return APPEND
    return Reject(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"epoch {epoch} is new (was {entry.producer_epoch}) and must start at sequence 0, "
        f"not {header.base_sequence}",
    )


def decide_epoch(entry: ProducerEntry | None, header: BatchHeader) -> Append | Reject:
    """Judges a batch of a coordinator by its producer epoch alone. Changes nothing."""
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        return _reject_stale(entry, header)
    return APPEND


def _reject_stale(entry: ProducerEntry, header: BatchHeader) -> Reject:
    return Reject(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {header.producer_epoch} is older than the current {entry.producer_epoch}",
    )


def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    """The remembered batch with exactly these sequences; comparing epochs is up to the caller."""
    last_sequence, offset_delta = header.last_sequence, header.last_offset_delta
    for batch in reversed(entry.batches):
        if batch[0] == last_sequence and batch.offset_delta == offset_delta:
            return batch
    return None


def _decide_unknown(header: BatchHeader, rules: PartitionRules) -> Decision:
    if header.producer_epoch < NO_PRODUCER_EPOCH:
        return Reject(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {header.producer_epoch} cannot be any producer's",
        )
    if header.base_sequence == 0 or rules.unknown_producer_id is UnknownProducerId.ACCEPT:
        return APPEND
    if rules.older_ids_end and issue_number(header.producer_id) < rules.older_ids_end:
        return APPEND
    if not rules.has_held_records:
        return Reject(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"the first sequence on a partition that never held a record must be 0, "
            f"not {header.base_sequence}",
        )
    return Reject(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer id {header.producer_id} is not known here and must start at sequence 0, "
        f"not {header.base_sequence}",
    )


def _decide_sequence(entry: ProducerEntry, header: BatchHeader) -> Decision:
    batches = entry.batches
    last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
    if follows(header.base_sequence, last_sequence):
        return APPEND
    if _is_proven_repeat(entry, header):
        return Reject(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"sequences {header.base_sequence} to {header.last_sequence} were stored before; "
            f"the last one stored is {last_sequence}",
        )
    return Reject(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} does not follow the last one stored, {last_sequence}",
    )


def _is_proven_repeat(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Whether all sequences of the batch lie in the unbroken run, with no wrap to confuse them.

    An entry without batches proves nothing: its last sequence is -1.
    """
    base, last = header.base_sequence, header.last_sequence
    newest = entry.last_sequence
    return entry.run_start <= base <= last <= newest and newest - last <= DISTANCE_MAX


def commit(
    entry: ProducerEntry | None,
    header: BatchHeader,
    base_offset: int,
    now_ms: int,
    window: int = WINDOW_DEFAULT,
) -> ProducerEntry:
    """Returns the entry after a batch that has an effect on it was written at `base_offset`. Checks nothing.

    A leader's own append and a replicated or recovered batch are committed alike; the epoch may
    therefore move back on a follower (the caller counts and logs that). A transaction marker, or a
    batch of a transaction that has no sequence, sets the epoch and adds no batch.
    """
    kept: tuple[BatchMetadata, ...] = ()
    run_start = NO_SEQUENCE
    epoch, attributes = header.producer_epoch, header.attributes
    if entry is not None and entry.producer_epoch == epoch:
        kept, run_start = entry.batches, entry.run_start
    base_sequence, offset_delta = header.base_sequence, header.last_offset_delta
    if attributes & CONTROL_BIT or base_sequence < 0:
        return ProducerEntry(epoch, run_start, now_ms, kept)
    last_sequence = base_sequence + offset_delta
    if last_sequence > SEQUENCE_MAX:
        last_sequence = header.last_sequence
    if not kept or (
        base_sequence != kept[-1][0] + 1 and not follows(base_sequence, kept[-1].last_sequence)
    ):
        run_start = base_sequence
    if run_start > last_sequence:
        run_start = 0  # a run that wrapped inside or before this batch holds everything from 0 on
    # The broker's own work has another CRC than what the producer sent: append time, compaction.
    is_changed = attributes & _CHANGED_BITS or header.record_count != offset_delta + 1
    crc = None if is_changed else header.crc
    last_offset = base_offset + offset_delta
    fields = (last_sequence, last_offset, offset_delta, header.max_timestamp, crc)
    newest = _new(BatchMetadata, fields)
    batches = (*kept[1 - window :], newest) if window > 1 else (newest,)
    return ProducerEntry(epoch, run_start, now_ms, batches)
