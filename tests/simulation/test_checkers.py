"""Each checker by itself, on small histories with one thing wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from echoless.protocol.records import Record, build_batch
from echoless.protocol.state_records.transaction_records import (
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
    write_transaction_key,
    write_transaction_value,
)
from tests.simulation.checkers import nodes, replicas, transactions
from tests.simulation.checkers.delivery import Delivery
from tests.simulation.checkers.logs import ReplicaLog, read_batches, read_log
from tests.simulation.observations import Append, Poll, SentBatch, Spot
from tests.support.raw_batches import plain_batch

SPOT = Spot("t", 0)


def stored(number: int, offset: int, epoch: int = 0) -> bytes:
    """Batch `number` of producer 7 as stored in a log."""
    batch = plain_batch(
        [f"{number}".encode()], producer_id=7, producer_epoch=0, base_sequence=number
    )
    batch.base_offset, batch.partition_leader_epoch = offset, epoch
    return batch.encode()


def sent(number: int, offset: int | None) -> SentBatch:
    """The same batch as its producer knows it; acknowledged at `offset`, or not."""
    data = stored(number, 0)
    return SentBatch(
        producer="p",
        spot=SPOT,
        number=number,
        values=(b"",),
        acks=-1,
        ready_at=0.0,
        producer_id=7,
        base_sequence=number,
        data=data,
        identities=[data],
        acknowledged_at=None if offset is None else 1.0,
        offset=offset,
    )


def adding(number: int) -> bytes:
    """A record of the coordinator: `SPOT` is added to transaction `number` of producer 7."""
    value = TransactionValue(
        *(7, 0, 1000, TransactionStatus.ONGOING),
        partitions=frozenset({TransactionPartition(*SPOT)}),
        number=number,
    )
    key, data = write_transaction_key("a"), write_transaction_value(value)
    return build_batch([Record(0, 0, key, data)])


def log(numbers: Sequence[int], start: int = 0, node: str = "broker-1") -> ReplicaLog:
    data = b"".join(stored(number, offset) for offset, number in enumerate(numbers))
    return read_log(node, start, [(0, data)])


def poll(number: int, offset: int) -> Poll:
    return Poll(1.0, "c", SPOT, offset, stored(number, offset))


def faults(
    numbers: Sequence[int], batches: Sequence[SentBatch], polls: Sequence[Poll] = (), start: int = 0
) -> list[str]:
    return list(Delivery(SPOT, batches, polls, log(numbers, start)).faults())


FINE = [sent(0, 0), sent(1, 1), sent(2, None)]


def test_what_was_promised_is_fine() -> None:
    """Acknowledged once and stored once; what was not acknowledged may be stored or not."""
    assert faults([0, 1], FINE, [poll(0, 0), poll(1, 1)]) == []
    assert faults([0, 1, 2], FINE) == []


@pytest.mark.parametrize(
    ("numbers", "polls", "word"),
    [
        ([0], [], "lost batch 1"),
        ([0, 1, 2, 1], [], "twice"),
        ([0, 1], [poll(2, 1)], "different batches at offset 1"),
        ([1, 0], [], "different batches"),
        ([0, 1, 9], [], "no client sent"),
        ([0, 1], [poll(1, 1)], "skipped"),
        ([0, 1], [poll(0, 0), poll(0, 0)], "again"),
    ],
)
def test_a_broken_promise_is_named(numbers: list[int], polls: list[Poll], word: str) -> None:
    """Loss, repetition, disagreement, invention, gaps and repeats of consumers."""
    assert any(word in fault for fault in faults(numbers, FINE, polls))


def test_order_is_that_of_the_producer() -> None:
    """Batches that were never acknowledged have to be in order, too."""
    unacknowledged = [sent(0, None), sent(1, None)]
    assert any("before it" in fault for fault in faults([1, 0], unacknowledged))


def test_what_was_deleted_is_not_lost() -> None:
    """Below the log start an acknowledgement is enough."""
    assert faults([0, 1], FINE, start=2) == []


def test_a_log_without_gaps_and_falling_epochs() -> None:
    """Offsets follow each other, leader epochs never fall."""
    data = stored(0, 0, epoch=1) + stored(1, 2, epoch=0)
    found = list(read_log("broker-1", 0, [(0, data)]).faults())
    assert len(found) == 2
    assert [batch.base_offset for batch in read_batches(data[:-1])] == [0]


def test_logs_and_states_are_compared() -> None:
    """Logs byte for byte from the highest log start on; producers entry by entry."""
    assert list(replicas.equal_logs("t", [log([0, 1]), log([9, 1], start=1)])) == []
    assert list(replicas.equal_logs("t", [log([0, 1]), log([0])])) != []
    known = replicas.KnownBatch(1, 1, 1, 1)
    state = {7: replicas.KnownProducer(0, (known,))}
    assert list(replicas.equal_states("t", {"a": state, "b": state})) == []
    assert list(replicas.equal_states("t", {"a": state, "b": {}})) != []
    assert list(replicas.state_follows_from_log("t", log([0, 1]), state, 1)) == []
    assert list(replicas.state_follows_from_log("t", log([0, 1]), state, 2)) != []


def test_one_epoch_has_one_writer() -> None:
    """The same offset in the same epoch is the same bytes, on any disk, at any time."""
    same = [Append(0.0, node, "t-0", stored(0, 0)) for node in ("a", "b")]
    assert list(replicas.one_leader_per_epoch(same)) == []
    assert list(replicas.one_leader_per_epoch([*same, Append(1.0, "b", "t-0", stored(1, 0))]))


def test_ids_are_used_once() -> None:
    """It does not matter by which broker."""
    assert list(nodes.unique_ids([(0.0, "a", 1), (0.0, "b", 2)])) == []
    assert list(nodes.unique_ids([(0.0, "a", 1), (0.0, "b", 1)])) != []


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "isr", "controller_epoch", "word"),
    [
        (2, 1, [1, 2], 5, None),
        (1, 0, [1], 5, None),
        (2, 0, [1, 2], 5, "two leaders"),
        (2, 1, [], 5, "no replica is in sync"),
        (3, 1, [1, 2], 5, "leader is not in sync"),
        (3, 1, [3], 5, "not in sync"),
        (2, 1, [1, 2], 4, "another epoch"),
        (-1, -1, [1, 2], 5, "fell"),
    ],
)
def test_states_are_sound(
    leader: int, leader_epoch: int, isr: list[int], controller_epoch: int, word: str | None
) -> None:
    """After leader 1 in epoch 0 with 1 and 2 in sync, these states can and cannot follow."""
    path = "/brokers/topics/t/partitions/0/state"
    before = {"leader": 1, "leader_epoch": 0, "isr": [1, 2], "controller_epoch": 5}
    after = {
        "leader": leader,
        "leader_epoch": leader_epoch,
        "isr": isr,
        "controller_epoch": controller_epoch,
    }
    changes: list[tuple[float, str, bytes | None]] = [(0.0, "/controller_epoch", b"5")]
    changes += [(1.0, path, json.dumps(state).encode()) for state in (before, after)]
    found = list(nodes.sound_states(changes))
    assert (word is None and not found) or any(word in fault for fault in found if word)


def test_a_batch_is_written_after_its_partition_was_added() -> None:
    """A batch of another leader epoch at the same offset was cut off, and is of another transaction (seed 5022860)."""
    appends = [
        Append(1.0, "broker-3", "t-0", stored(1, 28, epoch=1)),
        Append(2.0, "broker-2", "__transaction_state-0", adding(9)),
        Append(3.0, "broker-2", "t-0", stored(1, 28, epoch=2)),
    ]
    assert list(transactions.added_before_written(appends, {SPOT: {(2, 28): 9}})) == []
    (fault,) = transactions.added_before_written(appends, {SPOT: {(1, 28): 9}})
    assert fault.endswith("at 28 was written at 1.000, and added at 2.0")
