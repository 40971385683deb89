"""The test vectors of AddPartitionsToTxn, AddOffsetsToTxn and the verification: 20 to 26, 29 and 30."""

from __future__ import annotations

from itertools import product

import pytest

from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.joins import has_all, verified
from echoless.coordinators.transactions.requests import AddPartitions, VerifyPartitions
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    TransactionEnd,
    TransactionStatus,
    TransactionValue,
)
from tests.coordinators.transactions.shell import WALL_MS, A, B, Shell, ended, stored


def test_vector_20_an_unknown_id_has_no_producer():
    assert Shell().add(A) == (49,)
    assert Shell().verify(A).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("status", ["E", "CC", "CA"])
def test_vector_21_the_first_partition_begins_a_transaction(status: str):
    shell = Shell(stored(status))
    shell.ms = 5
    assert shell.add(A) == (0,)
    value = shell.state.value
    assert value is not None
    assert shell.shown == ("O", 7, 5, -1)
    assert (value.partitions, value.start_ms, value.number) == ({A}, WALL_MS + 5, 2)


def test_vector_22_a_known_partition_is_not_written_again():
    shell = Shell(stored("O", 7, 5, -1, A))
    assert shell.add(A) == (0,)
    assert len(shell.log) == 1


def test_vector_23_a_further_partition_keeps_start_and_number():
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.ms = 5
    assert shell.add(B) == (0,)
    value = shell.state.value
    assert value is not None
    assert (value.partitions, value.start_ms, value.number) == ({A, B}, WALL_MS, 1)


@pytest.mark.parametrize("epoch", [4, 6])
def test_vector_24_another_epoch_is_fenced(epoch: int):
    assert Shell(stored("E")).add(A, epoch=epoch) == (90,)


def test_vector_25_another_producer_id_is_not_known():
    assert Shell(stored("E")).add(A, producer_id=8) == (49,)


@pytest.mark.parametrize("status", ["PC", "PA"])
def test_vector_26_a_transaction_that_ends_is_waited_for(status: str):
    shell = Shell()
    shell.holds_markers = True
    shell.log.append(stored(status, 7, 5, -1, A))
    shell.load()
    assert shell.add(A) == (51,)
    assert shell.verify(A).error_code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_vector_29_a_leader_is_answered_for_each_partition():
    answer = Shell(stored("O", 7, 5, -1, A)).verify(A, B)
    assert (answer.error_code, answer.abortable) == (ErrorCode.NONE, {B})


def test_vector_30_nothing_is_open_after_a_commit():
    assert Shell(stored("CC")).verify(A).abortable == {A}


def test_nothing_is_answered_before_the_record_is_committed():
    """The partition is in the transaction then, and only then."""
    shell = Shell(stored("E"))
    shell.holds_records = True
    asked = shell.ask(AddPartitions(7, 5, frozenset({A})))
    assert asked not in shell.answers
    assert shell.verify(A).abortable == {A}
    shell.commit_record()
    assert shell.answers[asked].error_code is ErrorCode.NONE
    assert shell.verify(A).abortable == frozenset()


def test_a_client_whose_transaction_timed_out_takes_a_new_epoch():
    """The first generation goes on after 49; 90 would end it. A leader that asks is answered by the epoch."""
    shell = Shell(stored("CA", 7, 6, 5, ended=ended(TransactionEnd.TIMED_OUT)))
    assert shell.add(A) == (49,)
    assert shell.add(A, version=2) == (90,)
    assert shell.add(A, epoch=4) == (90,)


def test_the_usual_question_is_answered_as_by_the_whole_rule():
    """`has_all` says yes to nothing that `verified` does not; and to what it is for."""
    found = set()
    for status, kept, identity, partitions in product(
        TransactionStatus,
        (NO_PRODUCER_EPOCH, 4),
        ((7, 5), (8, 5), (7, 4)),
        (frozenset({A}), frozenset({A, B}), frozenset()),
    ):
        held = frozenset() if status is TransactionStatus.EMPTY else frozenset({A})
        value = TransactionValue(7, 5, 1000, status, held, number=3, kept_epoch=kept)
        is_quick = has_all(value, *identity, partitions)
        answer = verified(value, VerifyPartitions(*identity, partitions))
        is_yes = answer == TransactionAnswer(number=3)
        assert is_yes or not is_quick
        found.add((status, is_quick, is_yes))
    assert (TransactionStatus.ONGOING, True, True) in found
    assert (TransactionStatus.ONGOING, False, True) not in found
