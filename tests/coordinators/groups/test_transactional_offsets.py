"""Offsets that are committed in transactions: when they count, who may commit them, and what a replay makes of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from echoless.coordinators.effects import StateRecord
from echoless.coordinators.events import TransactionEnded
from echoless.coordinators.groups.answers import FetchedOffset
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.prepared_commit import prepare
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    DeleteGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TransactionalOffsetCommit,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.records import iterate_records
from tests.coordinators.groups.shell import LoggedInTransaction, Shell

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
DAY_MS = 86_400_000


def txn(offset: int, producer_id: int = 1, **fields: Any) -> TransactionalOffsetCommit:
    partition = fields.pop("partition", 0)
    rows = (CommittedPartition("t", partition, offset, 0, fields.pop("metadata", "")),)
    group = fields.pop("group_id", "g")
    return TransactionalOffsetCommit(group, producer_id, 0, rows, **fields)


def plain(offset: int, partition: int = 0, group_id: str = "g") -> OffsetCommit:
    return OffsetCommit(group_id, -1, "", None, (CommittedPartition("t", partition, offset),))


def fetched(shell: Shell, *, stable: bool = False, partition: int = 0, group: str = "g") -> Any:
    """The offset of a partition, or its error."""
    request = OffsetFetch(group, (("t", partition),), require_stable=stable)
    (row,) = shell.ask(request).partitions
    return row.error_code or row.offset


def codes(shell: Shell, request: Any) -> list[ErrorCode]:
    return list(shell.ask(request).error_codes)


def test_an_offset_counts_once_its_transaction_is_committed() -> None:
    """Until then the one before it does, and the partition is not stable."""
    shell = Shell()
    assert codes(shell, plain(3)) == [NONE]
    assert codes(shell, txn(7)) == [NONE]
    assert (fetched(shell), fetched(shell, stable=True)) == (3, UNSTABLE)
    shell.end_transaction(1, is_commit=True)
    assert (fetched(shell), fetched(shell, stable=True)) == (7, 7)


def test_an_offset_of_an_aborted_transaction_is_dropped() -> None:
    """A group that has nothing else is no group any more."""
    shell = Shell()
    shell.ask(txn(7))
    assert (fetched(shell), fetched(shell, stable=True)) == (-1, UNSTABLE)
    (row,) = shell.ask(OffsetFetch("g", None, require_stable=True)).partitions
    assert row == FetchedOffset("t", 0, error_code=UNSTABLE)
    shell.end_transaction(1, is_commit=False)
    assert (fetched(shell), fetched(shell, stable=True)) == (-1, -1)
    assert not shell.coordinator._store.durable.groups
    assert not shell.coordinator._store.live


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_latest_in_the_log_counts(*, is_commit: bool) -> None:
    """An offset committed outside, after the transaction's, is not replaced by it."""
    shell = Shell()
    shell.ask(txn(7))
    shell.ask(plain(9))
    assert (fetched(shell), fetched(shell, stable=True)) == (9, UNSTABLE)
    shell.end_transaction(1, is_commit=is_commit)
    assert (fetched(shell), fetched(shell, stable=True)) == (9, 9)


def test_of_two_transactions_the_later_offset_counts() -> None:
    """Whichever ends first."""
    for order in ((1, 2), (2, 1)):
        shell = Shell()
        shell.ask(txn(7, producer_id=1))
        shell.ask(txn(8, producer_id=2))
        shell.end_transaction(order[0], is_commit=True)
        assert fetched(shell, stable=True) == UNSTABLE
        assert fetched(shell) == (7 if order[0] == 1 else 8)
        shell.end_transaction(order[1], is_commit=True)
        assert fetched(shell, stable=True) == 8


def test_the_answer_waits_for_the_append() -> None:
    """And carries its error, as a coordinator's or as the producer's."""
    found = {
        ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.INVALID_TIMESTAMP: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    for refused, answered in found.items():
        shell = Shell()
        shell.holds_appends = True
        reply = shell.send(txn(7))
        assert reply not in shell.answers
        shell.refuse(refused)
        assert list(shell.answers[reply].error_codes) == [answered]
        assert fetched(shell, stable=True) == -1
        assert not shell.coordinator._store.live


def test_who_may_commit() -> None:
    """The member and its generation, if they are named; a rebalance keeps no one from it."""
    shell = Shell()
    assert codes(shell, txn(7, generation_id=3, member_id="m")) == [ErrorCode.ILLEGAL_GENERATION]
    (member,) = shell.stable()
    assert codes(shell, txn(7)) == [NONE]
    assert codes(shell, txn(7, generation_id=1, member_id=member)) == [NONE]
    assert codes(shell, txn(7, generation_id=2, member_id=member)) == [ErrorCode.ILLEGAL_GENERATION]
    assert codes(shell, txn(7, generation_id=1, member_id="x")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert codes(shell, txn(7, generation_id=1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    instance = codes(shell, txn(7, generation_id=1, member_id=member, group_instance_id="i"))
    assert instance == [ErrorCode.UNKNOWN_MEMBER_ID]
    shell.new_member()
    assert codes(shell, txn(8, generation_id=1, member_id=member)) == [NONE]


def test_metadata_that_is_too_long_fails_its_partition() -> None:
    """The others are stored."""
    shell = Shell()
    rows = (CommittedPartition("t", 0, 1, 0, "m" * 5000), CommittedPartition("t", 1, 2))
    answer = codes(shell, TransactionalOffsetCommit("g", 1, 0, rows))
    assert answer == [ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    shell.end_transaction(1, is_commit=True)
    assert [fetched(shell, partition=index) for index in (0, 1)] == [-1, 2]


def test_nothing_expires_while_its_transaction_is_open() -> None:
    """Neither the offset that it would replace nor the group; then both do, by the time of the commit."""
    shell = Shell()
    shell.ask(plain(3))
    shell.ask(txn(7))
    shell.pass_time(30 * DAY_MS)
    shell.expire()
    assert fetched(shell) == 3
    shell.end_transaction(1, is_commit=False)
    shell.expire()
    assert fetched(shell) == -1
    assert not shell.coordinator._store.durable.groups


def test_a_deleted_group_takes_its_open_offsets_along() -> None:
    """The commit that comes later brings nothing back; so it is with OffsetDelete."""
    for request in (DeleteGroup("g"), OffsetDelete("g", (("t", 0),))):
        shell = Shell()
        shell.ask(txn(7))
        answer = shell.ask(request)
        assert answer.error_code is NONE
        shell.end_transaction(1, is_commit=True)
        assert fetched(shell, stable=True) == -1
        shell.load()
        assert fetched(shell, stable=True) == -1


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_deleted_topic_takes_what_transactions_have_of_it(*, is_stored: bool) -> None:
    """A topic that is created again would be read from there, and its records before it skipped."""
    shell = Shell()
    if is_stored:
        shell.ask(plain(3))
    shell.ask(txn(7))
    topic = shell.forget("t")
    assert not topic.is_forgotten
    assert fetched(shell, stable=True) == -1
    shell.end_transaction(1, is_commit=True)
    shell.go_on_forgetting(topic)
    assert topic.is_forgotten
    assert fetched(shell) == -1


def test_an_offset_of_a_topic_that_was_created_again_stays() -> None:
    """The old one waits for its marker: a tombstone would take both."""
    shell = Shell()
    shell.ask(txn(7))
    deleted_ms = shell.now.wall_ms
    shell.pass_time(1)
    shell.ask(txn(8, producer_id=2))
    topic = shell.forget("t", deleted_ms)
    assert not topic.is_forgotten
    shell.end_transaction(1, is_commit=True)
    shell.go_on_forgetting(topic)
    assert not topic.is_forgotten
    shell.end_transaction(2, is_commit=True)
    shell.go_on_forgetting(topic)
    assert topic.is_forgotten
    assert fetched(shell, stable=True) == 8


def test_a_bug_at_the_end_of_a_transaction_leaves_more_than_a_group_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group of the last append is not the one that is half changed: everything is loaded again."""
    shell = Shell()
    shell.ask(plain(3, group_id="h"))
    shell.ask(txn(7))
    coordinator = shell.coordinator

    def fail(*_given: object, **_named: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(coordinator._store.durable, "end_transaction", fail)
    event = TransactionEnded(1, True)
    with pytest.raises(ZeroDivisionError):
        coordinator.step(event, shell.now)
    assert coordinator.recover(event, shell.now) is None


def test_the_metadata_of_a_request_has_room_as_a_whole() -> None:
    """Rows that fit one by one, and not together, are refused."""
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=100))
    rows = tuple(CommittedPartition("t", index, 1, 0, "m" * 60) for index in range(2))
    answer = codes(shell, TransactionalOffsetCommit("g", 1, 0, rows))
    assert answer == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2
    assert codes(shell, TransactionalOffsetCommit("g", 1, 0, rows[:1])) == [NONE]


def test_what_is_open_counts_towards_the_bounds() -> None:
    """And is given back when it ends."""
    shell = Shell()
    store = shell.coordinator._store
    shell.ask(txn(7, metadata="abc"))
    assert (store.usage.metadata, store.usage.offsets) == (3, 1)
    shell.ask(txn(8, metadata="abcd"))
    assert (store.usage.metadata, store.usage.offsets) == (4, 1)
    shell.end_transaction(1, is_commit=True)
    assert (store.usage.metadata, store.usage.offsets) == (4, 1)
    shell.ask(txn(9, metadata="x"))
    shell.end_transaction(1, is_commit=False)
    assert (store.usage.metadata, store.usage.offsets) == (4, 1)


class Model:
    """The offsets that are committed and pending, by the log alone, and slowly."""

    def __init__(self, log: list[Any]) -> None:
        self.offsets: dict[Any, tuple[int, Any]] = {}
        self.pending: dict[int, dict[Any, tuple[int, Any]]] = {}
        for place, one in enumerate(log):
            if isinstance(one, LoggedInTransaction):
                self.pending.setdefault(one.producer_id, {})[one.record.key] = (
                    place,
                    one.record.value,
                )
            elif hasattr(one, "is_commit"):
                ended = self.pending.pop(one.producer_id, {})
                for key, (at, value) in ended.items() if one.is_commit else ():
                    if key not in self.offsets or self.offsets[key][0] < at:
                        self.offsets[key] = at, value
            elif one.value is None:
                self.offsets.pop(one.key, None)
                for of_one in self.pending.values():
                    of_one.pop(one.key, None)
            else:
                self.offsets[one.key] = place, one.value

    @property
    def values(self) -> dict[Any, Any]:
        return {key: value for key, (_, value) in self.offsets.items()}


@pytest.mark.parametrize("seed", range(12))
def test_live_and_replayed_state_are_those_of_the_log(seed: int) -> None:
    """Random commits, ends, deletions, bounds and elections; the state is compared with a naive reading of the log."""
    shell, rng = Shell(), random.Random(seed)
    for _ in range(300):
        group, partition = rng.choice(["g", "h"]), rng.randrange(3)
        what = rng.random()
        shell.holds_appends = rng.random() < 0.3
        if what < 0.45:
            metadata = "m" * rng.randrange(3)
            request = txn(rng.randrange(100), rng.randrange(4), partition=partition, metadata=metadata, group_id=group)  # fmt: skip
            shell.send(request)
        elif what < 0.6:
            shell.send(plain(rng.randrange(100), partition, group))
        elif what < 0.85:
            shell.end_transaction(rng.randrange(4), is_commit=rng.random() < 0.5)
        elif what < 0.92:
            shell.send(OffsetDelete(group, (("t", partition),)))
        elif what < 0.94:
            shell.send(DeleteGroup(group))
        elif what < 0.97:
            shell.load()
        if rng.random() < 0.5:
            shell.commit_all()
    shell.holds_appends = False
    shell.commit_all()
    _compare(shell)
    shell.load()
    _compare(shell)


def _compare(shell: Shell) -> None:
    from echoless.protocol.state_records.group_keys import OffsetKey, read_key
    from echoless.protocol.state_records.offset_value import read_offset_value

    model = Model(shell.log)
    expected = {
        key: read_offset_value(value).offset
        for data, value in model.values.items()
        if isinstance(key := read_key(data), OffsetKey)
    }
    found = {}
    for group in ("g", "h"):
        rows = list(shell.ask(OffsetFetch(group, None)).partitions)
        found |= {OffsetKey(group, row.topic, row.partition): row.offset for row in rows}
    assert found == expected
    pending = {read_key(data) for of_one in model.pending.values() for data in of_one}
    unstable = set()
    for group in ("g", "h"):
        rows = shell.ask(OffsetFetch(group, None, require_stable=True)).partitions
        unstable |= {OffsetKey(group, row.topic, row.partition) for row in rows if row.error_code}
    assert unstable == pending
    usage = shell.coordinator._store.usage
    assert usage.offsets >= len(expected)
    assert (usage.offsets > len(expected)) <= bool(pending)


def test_prepared_offsets_are_stored_as_others_are() -> None:
    """The records, and the batch that was made of them, are those that the coordinator makes itself."""
    rows = tuple(CommittedPartition("t", n, n, 3, "m" * n) for n in range(4))
    request = txn(0)._replace(partitions=rows)
    usual, prepared = Shell(), Shell()
    assert codes(usual, request) == [NONE] * 4
    prepared.holds_appends = True
    prepared.send(prepare(request, prepared.now.wall_ms))
    (append,) = prepared.held
    assert append.batch is not None
    assert append.transaction is not None
    in_batch = [StateRecord(one.key or b"", one.value) for one in iterate_records(append.batch)]
    prepared.commit()
    assert in_batch == list(append.records)
    assert prepared.log == usual.log
    for shell in (prepared, usual):
        shell.end_transaction(1, is_commit=True)
        assert [fetched(shell, stable=True, partition=n) for n in range(4)] == list(range(4))


def test_only_what_is_accepted_of_prepared_offsets_is_stored() -> None:
    """Metadata that is too long fails its partition alone."""
    shell = Shell()
    longest = shell.config.offset_metadata_max_bytes
    rows = (CommittedPartition("t", 0, 5), CommittedPartition("t", 1, 6, -1, "m" * (longest + 1)))
    request = prepare(txn(0)._replace(partitions=rows), shell.now.wall_ms)
    assert codes(shell, request) == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    shell.end_transaction(1, is_commit=True)
    assert [fetched(shell, stable=True, partition=n) for n in range(2)] == [5, -1]
