"""The de-duplication decision, row by row.

`SPECIFICATION` and `VERSIONS` are the tables "The decision" and "Versions" of
`docs/protocol/deduplication.md` (retention and expiry are tested in `tests/storage`), `DIFFERENCES` the
rows of `docs/differences.md`, "The decision"; `test_kafka_*` are those of Kafka's own
`ProducerStateManagerTest` and `UnifiedLogTest` that need neither transactions nor files.
`test_dedup_model.py` looks for cases that no row names.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

import pytest

from echoless.protocol.dedup import (
    WINDOW_DEFAULT,
    Append,
    Duplicate,
    PartitionRules,
    Reject,
    UnknownProducerId,
    commit,
    decide,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sequence import NO_SEQUENCE, SEQUENCE_MAX
from tests.protocol.sample_batches import header

HELD = PartitionRules(has_held_records=True)
NEVER_HELD = PartitionRules(has_held_records=False)
ACCEPT = PartitionRules(has_held_records=True, unknown_producer_id=UnknownProducerId.ACCEPT)
RECREATED = PartitionRules(has_held_records=False, older_ids_end=8)
RECREATED_LATER = PartitionRules(has_held_records=True, older_ids_end=7)
NEVER_HELD_ACCEPT = PartitionRules(
    has_held_records=False, unknown_producer_id=UnknownProducerId.ACCEPT
)

FIRST_OFFSET = 100
NOW_MS = 5000


def entry_after(*headers, window=WINDOW_DEFAULT, entry=None):
    """The entry once these batches were appended one after the other, from offset 100 on."""
    offset = FIRST_OFFSET
    for each in headers:
        entry = commit(entry, each, offset, NOW_MS, window)
        offset += each.record_count
    return entry


def singles(first, last, *, epoch=0):
    """One-record batches with the sequences `first` to `last`."""
    return [header(sequence, epoch=epoch) for sequence in range(first, last + 1)]


def answer(decision):
    """The answer to a client: "append", ("duplicate", base offset) or the error's number."""
    match decision:
        case Append():
            return "append"
        case Duplicate(original=original):
            return ("duplicate", original.base_offset)
        case Reject(code=code):
            return int(code)


class Row(NamedTuple):
    """One row of a table: what was appended before, what comes now, what is answered."""

    situation: str
    before: list
    batch: object
    expected: object
    rules: PartitionRules = HELD
    window: int = WINDOW_DEFAULT


def rows(table):
    return pytest.mark.parametrize("row", table, ids=[row.situation for row in table])


def check(row):
    entry = entry_after(*row.before, window=row.window)
    assert answer(decide(entry, row.batch, row.rules)) == row.expected


SPECIFICATION = [
    Row("exact repeat of the newest batch", singles(0, 4), header(4), ("duplicate", 104)),
    Row("exact repeat of the 5th newest batch", singles(0, 5), header(1), ("duplicate", 101)),
    Row("repeat older than 5 batches (Kafka: 45)", singles(0, 5), header(0), 46),
    Row(
        "re-batched: two batches sent again as one (Kafka: 45)",
        [header(0, 3), header(3, 3)],
        header(0, 6),
        46,
    ),
    Row(
        "re-batched: half of a batch sent again (Kafka: 45)",
        [header(0, 3), header(3, 3)],
        header(4, 2),
        46,
    ),
    Row("partial overlap with new sequences", [header(0, 3)], header(2, 2), 45),
    Row("overlap that contains all of the newest batch", [header(0, 3)], header(0, 4), 45),
    Row("gap of one", singles(0, 4), header(6), 45),
    Row("gap of many", singles(0, 4), header(1_000_000), 45),
    Row("unknown id, sequence 0", [], header(0), "append"),
    Row("unknown id, any epoch, sequence 0", [], header(0, epoch=7), "append"),
    Row("unknown id, sequence 1, accepting as Kafka does", [], header(1), "append", ACCEPT),
    Row("unknown id, largest sequence", [], header(SEQUENCE_MAX), "append", ACCEPT),
    Row("unknown id, any epoch, sequence 3", [], header(3, epoch=7), "append", ACCEPT),
    Row("known id, next epoch, sequence 0", singles(0, 4), header(0, epoch=1), "append"),
    Row("known id, epoch ahead by many, sequence 0", singles(0, 4), header(0, epoch=9), "append"),
    Row("known id, next epoch, sequence 1", singles(0, 4), header(1, epoch=1), 45),
    Row("known id, next epoch, the old epoch's next", singles(0, 4), header(5, epoch=1), 45),
    Row("lower epoch, next sequence", singles(0, 4, epoch=3), header(5, epoch=2), 47),
    Row(
        "lower epoch, sequences of an old batch",
        [*singles(0, 4, epoch=2), header(0, epoch=3)],
        header(4, epoch=2),
        47,
    ),
    Row("lower epoch, sequence 0", singles(0, 4, epoch=3), header(0, epoch=2), 47),
    Row("lower epoch: none at all", singles(0, 4, epoch=3), header(5, epoch=-1), 47),
    Row(
        "marker only, same epoch, sequence 0",
        [header(-1, epoch=2, is_control=True)],
        header(0, epoch=2),
        "append",
    ),
    Row(
        "marker only, same epoch, sequence 1",
        [header(-1, epoch=2, is_control=True)],
        header(1, epoch=2),
        45,
    ),
    Row("largest sequence, then 0", [header(SEQUENCE_MAX)], header(0), "append"),
    Row("largest sequence, then 1", [header(SEQUENCE_MAX)], header(1), 45),
    Row("no epoch, unknown id", [], header(0, epoch=-1), "append"),
    Row("epoch below none, unknown id", [], header(0, epoch=-2), 47),
    Row("epoch below none, known id", [header(0, epoch=-1)], header(1, epoch=-2), 47),
    Row("no epoch: never checked", [header(0, epoch=-1)], header(9, epoch=-1), "append"),
    Row(
        "no epoch: exact repeats are still found",
        [header(0, 2, epoch=-1), header(9, epoch=-1)],
        header(0, 2, epoch=-1),
        ("duplicate", 100),
    ),
]


@rows(SPECIFICATION)
def test_situation(row):
    """The decision, with Echoless' 46 and its `unknown_producer_id` where Kafka differs."""
    check(row)


VERSIONS = [
    Row("unknown id, f != 0: 59 as in 2.0 to 2.4", [], header(3), 59),
    Row("the same where configured: accept as since 2.5", [], header(3), "append", ACCEPT),
    Row(
        "entry without batches, same epoch, f != 0: 45 as in 2.0 and since 2.5",
        [header(-1, epoch=1, is_control=True)],
        header(4, epoch=1),
        45,
    ),
    Row("new epoch, f != 0, known id: 45 always", singles(0, 2), header(3, epoch=1), 45),
    Row("gap: 45 always", singles(0, 2), header(4), 45),
    Row("old repeat: 46, in Kafka 45 always", singles(0, 9), header(2), 46),
    Row("stale epoch: 47 always", singles(0, 2, epoch=1), header(3), 47),
]


@rows(VERSIONS)
def test_version_row(row):
    """The answer that Echoless chose where Kafka's versions differ."""
    check(row)


DIFFERENCES = [
    Row("46: the very first batch again, long ago", singles(0, 99), header(0), 46),
    Row("46: just behind the window", singles(0, 99), header(94), 46),
    Row("46: many old batches sent again as one", singles(0, 99), header(10, 60), 46),
    Row("46: up to the newest sequence, cut differently", singles(0, 99), header(90, 10), 46),
    Row("45: one record of the repeat is new", singles(0, 99), header(90, 11), 45),
    Row("45 on a partition that never held a record", [], header(3), 45, NEVER_HELD),
    Row("the same, accepting: as Kafka", [], header(3), "append", NEVER_HELD_ACCEPT),
    Row("an id older than the topic's predecessor", [], header(3), "append", RECREATED),
    Row("a gap of such an id", [header(3)], header(5), 45, RECREATED),
    Row("an older repeat of such an id", singles(3, 12), header(4), 46, RECREATED),
    Row("before all that such an id has sent", singles(3, 12), header(2), 45, RECREATED),
    Row("the first id that is not older", [], header(3), 59, RECREATED_LATER),
    Row("sequence 0 on a partition that never held a record", [], header(0), "append", NEVER_HELD),
    Row("59 on a partition that held records", [], header(1), 59, HELD),
    Row("no epoch before, an epoch now: unknown", [header(4, epoch=-1)], header(5), 59),
    Row("the same with sequence 0", [header(4, epoch=-1)], header(0), "append"),
    Row("the same, accepting", [header(4, epoch=-1)], header(5), "append", ACCEPT),
    Row(
        "window of 1: the newest is remembered",
        singles(0, 4),
        header(4),
        ("duplicate", 104),
        window=1,
    ),
    Row("window of 1: the one before is proven", singles(0, 4), header(3), 46, window=1),
    Row("window of 8: the 8th newest", singles(0, 9), header(2), ("duplicate", 102), window=8),
    Row("window of 8: the 9th newest", singles(0, 9), header(1), 46, window=8),
    Row("46 proves nothing before the run's start", [header(50), header(51)], header(49), 45),
    Row(
        "nor where only a part lies before it",
        [header(50), header(51)],
        header(49, 2),
        45,
    ),
    Row(
        "a gap (on a follower) starts a new run: before it nothing is proven",
        [*singles(0, 9), *singles(20, 29)],
        header(5),
        45,
    ),
    Row("inside the new run it is", [*singles(0, 9), *singles(20, 29)], header(21), 46),
    Row("nor across the gap", [*singles(0, 9), *singles(20, 29)], header(9, 12), 45),
    Row(
        "a new epoch starts a new run",
        [*singles(0, 9), *singles(0, 1, epoch=1)],
        header(5, epoch=1),
        45,
    ),
    Row(
        "and is proven from its own start",
        [*singles(0, 9), *singles(0, 9, epoch=1)],
        header(1, epoch=1),
        46,
    ),
    Row(
        "wrapped run: what came before the wrap is ambiguous",
        [*singles(SEQUENCE_MAX - 9, SEQUENCE_MAX), *singles(0, 4)],
        header(SEQUENCE_MAX - 9),
        45,
    ),
    Row(
        "wrapped run: from 0 on it is proven",
        [*singles(SEQUENCE_MAX - 9, SEQUENCE_MAX), *singles(0, 9)],
        header(0),
        46,
    ),
    Row(
        "wrap inside a batch: from 0 on it is proven",
        [header(SEQUENCE_MAX - 1, 4), *singles(2, 9)],
        header(0, 2),
        46,
    ),
    Row(
        "wrap inside the first batch of all: the same before another batch came",
        [header(SEQUENCE_MAX - 1, 4)],
        header(0),
        46,
    ),
    Row(
        "a repeat that wraps itself is found in the window",
        [header(SEQUENCE_MAX - 1, 4), *singles(2, 4)],
        header(SEQUENCE_MAX - 1, 4),
        ("duplicate", 100),
    ),
    Row(
        "a repeat that wraps itself is ambiguous behind the window",
        [header(SEQUENCE_MAX - 1, 4), *singles(2, 9)],
        header(SEQUENCE_MAX - 1, 4),
        45,
    ),
    Row(
        "a repeat that is half a circle back is still proven",
        [header(0, 2), header(2, 2**30)],
        header(1),
        46,
        window=1,
    ),
    Row(
        "a repeat further back than half a circle is not",
        [header(0, 2), header(2, 2**30)],
        header(0),
        45,
        window=1,
    ),
]


@rows(DIFFERENCES)
def test_difference(row):
    """Echoless answers differently exactly as far as `docs/differences.md` says."""
    check(row)


def test_duplicate_with_other_bytes_is_divergent():
    """The window keeps each batch's CRC, so a repeat with other bytes is recognised."""
    entry = entry_after(header(0, crc=11), header(1, crc=12))
    assert decide(entry, header(0, crc=11), HELD) == Duplicate(entry.batches[0], divergent=False)
    assert decide(entry, header(0, crc=12), HELD) == Duplicate(entry.batches[0], divergent=True)


def test_batch_whose_bytes_the_broker_changed_is_never_divergent():
    """A log-append-time batch has the broker's CRC, so it says nothing about the client's bytes."""
    entry = entry_after(header(0, crc=11, attributes=0x08))
    assert decide(entry, header(0, crc=12), HELD) == Duplicate(entry.batches[0], divergent=False)


def test_duplicate_carries_the_original_offsets_and_timestamp():
    """A repeat is answered with what the first copy was answered."""
    entry = entry_after(header(0, 3, max_timestamp=1234), header(3, 2))
    decision = decide(entry, header(0, 3), HELD)
    assert isinstance(decision, Duplicate)
    assert (decision.original.base_offset, decision.original.last_offset) == (100, 102)
    assert decision.original.timestamp == 1234


@pytest.mark.parametrize(
    ("before", "batch", "parts"),
    [
        ([], header(3), ["7", "0", "3"]),
        (singles(0, 4), header(9), ["9", "4"]),
        (singles(0, 9), header(2, 3), ["2", "4", "9"]),
        (singles(0, 4, epoch=3), header(5, epoch=2), ["2", "3"]),
        (singles(0, 4), header(5, epoch=1), ["1", "0", "5"]),
    ],
)
def test_reason_names_expected_and_found(before, batch, parts):
    """A rejection's reason holds the numbers needed to debug a producer."""
    decision = decide(entry_after(*before), batch, HELD)
    assert isinstance(decision, Reject)
    assert [part for part in parts if part not in decision.reason] == []


def test_smaller_window_takes_effect_with_the_next_append():
    """Reconfigured from 8 to 3, the entry keeps the newest three, the new batch among them."""
    entry = entry_after(*singles(0, 7), window=8)
    entry = entry_after(header(8), window=3, entry=entry)
    assert [batch.base_sequence for batch in entry.batches] == [6, 7, 8]


def test_commit_notes_when_the_broker_appended():
    """`last_append_ms` is the broker's clock, `last_timestamp` the batch's."""
    entry = commit(None, header(0, max_timestamp=77), 0, now_ms=9000)
    assert (entry.last_append_ms, entry.last_timestamp) == (9000, 77)


def test_kafka_basic_id_mapping():
    """Kafka's testBasicIdMapping: 0 and 1 pass, 5 is a gap, epoch + 1 begins at 0, the old epoch ends."""
    entry = entry_after(header(0), header(1))
    assert answer(decide(entry, header(1), HELD)) == ("duplicate", 101)
    assert answer(decide(entry, header(5), HELD)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(decide(entry, header(0, epoch=1), HELD)) == "append"
    entry = entry_after(header(0, epoch=1), entry=entry)
    assert answer(decide(entry, header(0), HELD)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_kafka_marker_without_state():
    """Kafka's testAppendTxnMarkerWithNoProducerState: a marker makes an entry without batches."""
    entry = commit(None, header(-1, epoch=5, is_control=True), 0, NOW_MS)
    assert (entry.producer_epoch, entry.last_sequence) == (5, -1)
    assert answer(decide(entry, header(0, epoch=4), HELD)) == 47
    assert answer(decide(entry, header(17, epoch=5), HELD)) == 45
    assert answer(decide(entry, header(0, epoch=5), HELD)) == "append"


def test_kafka_wrap_around():
    """Kafka's testProducerSequenceWrapAround: after the largest comes 0; the window holds both."""
    entry = entry_after(header(SEQUENCE_MAX), header(0))
    assert [batch.base_sequence for batch in entry.batches] == [SEQUENCE_MAX, 0]
    assert entry.last_sequence == 0


def test_kafka_wrap_around_inside_a_batch():
    """Kafka's testProducerSequenceWithWrapAroundBatchRecord: sequences and offsets stay right."""
    entry = commit(None, header(SEQUENCE_MAX - 10, 21), 2000, NOW_MS)
    (batch,) = entry.batches
    assert (batch.base_sequence, batch.last_sequence) == (SEQUENCE_MAX - 10, 9)
    assert (batch.base_offset, batch.last_offset) == (2000, 2020)


def test_kafka_replica_accepts_what_its_leader_wrote():
    """Kafka's testAcceptAppendWithoutProducerStateOnReplica, ...WithSequenceGapsOnReplica."""
    entry = commit(None, header(16), 0, NOW_MS)
    entry = commit(entry, header(40), 1, NOW_MS)
    assert [batch.base_sequence for batch in entry.batches] == [16, 40]
    assert answer(decide(entry, header(42), HELD)) == 45


def test_replica_lets_the_epoch_move_back():
    """A follower accepts a stale epoch and forgets the newer one's window."""
    entry = entry_after(*singles(0, 4, epoch=3), header(9, epoch=2))
    assert entry.producer_epoch == 2
    assert [batch.base_sequence for batch in entry.batches] == [9]


def test_kafka_marker_bumps_the_epoch():
    """Kafka's testControlRecordBumpsProducerEpoch, testOutOfSequenceAfterControlRecordEpochBump."""
    entry = entry_after(*singles(0, 1), header(-1, epoch=1, is_control=True))
    assert (entry.producer_epoch, entry.batches, entry.run_start) == (1, (), NO_SEQUENCE)
    assert answer(decide(entry, header(2, epoch=1), HELD)) == 45
    assert answer(decide(entry, header(2, epoch=2), HELD)) == 45
    assert answer(decide(entry, header(0, epoch=1), HELD)) == "append"


def test_kafka_marker_of_the_same_epoch_keeps_the_window():
    """8.1 updateProducerTransactionState: only a new epoch empties the window."""
    before = entry_after(*singles(0, 9))
    after = commit(before, header(-1, is_control=True), 110, NOW_MS)
    assert after.batches == before.batches
    assert answer(decide(after, header(10), HELD)) == "append"
    assert answer(decide(after, header(1), HELD)) == 46


@pytest.mark.parametrize(
    "batch", [header(0), header(5), header(4), header(9), header(0, epoch=1), header(0, epoch=-1)]
)
def test_kafka_deciding_and_committing_change_no_entry(batch):
    """Kafka's testPrepareUpdateDoesNotMutate: nothing visible changes before the write succeeded."""
    entry = entry_after(*singles(0, 4))
    untouched = dataclasses.replace(copy.deepcopy(entry))
    decide(entry, batch, HELD)
    commit(entry, batch, 105, NOW_MS + 1)
    assert entry == untouched


def test_kafka_duplicate_appends():
    """Kafka's testDuplicateAppends: five are remembered; a part of one is no duplicate."""
    entry = entry_after(*(header(3 * index, 3) for index in range(6)))
    for index in range(1, 6):
        expected = ("duplicate", FIRST_OFFSET + 3 * index)
        assert answer(decide(entry, header(3 * index, 3), HELD)) == expected
    assert answer(decide(entry, header(15, 2), HELD)) == 46
    assert answer(decide(entry, header(0, 3), HELD)) == 46
