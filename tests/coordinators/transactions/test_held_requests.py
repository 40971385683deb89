"""Requests that arrive while something is under way wait a little, and are then served in their order."""

from __future__ import annotations

import pytest

from echoless.coordinators.events import Abandoned, TimerFired
from echoless.coordinators.transactions.effects import TransactionTimer, TransactionTimerKind
from echoless.coordinators.transactions.events import MarkerAnswered
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    TransactionRequest,
)
from echoless.protocol.errors import ErrorCode
from tests.coordinators.transactions.shell import TIMEOUT_MS, A, B, Shell, stored

REQUESTS = (
    AddPartitions(7, 5, frozenset({B})),
    EndTransaction(7, 5, is_commit=True),
    InitTransactionalId(TIMEOUT_MS),
)


def ending() -> Shell:
    """A transaction whose commit is decided, and whose marker is missing."""
    shell = Shell(stored("O", 7, 5, -1, A), hold_ms=100)
    shell.holds_markers = True
    shell.commit()
    return shell


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_is_served_once_the_end_is_complete(request_: TransactionRequest):
    """kafkajs never repeats an EndTxn, so 51 would be its end."""
    shell = ending()
    asked = shell.ask(request_)
    assert asked not in shell.answers
    shell.happen(MarkerAnswered(7, 1, A))
    assert shell.answers[asked].error_code is ErrorCode.NONE
    assert held_timers(shell) == []


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_that_waited_long_enough_is_refused(request_: TransactionRequest):
    """Then it is the client's turn to wait."""
    shell = ending()
    asked = shell.ask(request_)
    (timer,) = held_timers(shell)
    assert shell.timers[timer] == 100
    shell.happen(TimerFired(timer))
    assert shell.answers[asked].error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.happen(TimerFired(timer))
    shell.happen(MarkerAnswered(7, 1, A))
    assert len(shell.log) == 3


def test_requests_are_served_in_their_order():
    """One that stores something lets the others wait again."""
    shell = ending()
    first, second = shell.ask(REQUESTS[0]), shell.ask(REQUESTS[1])
    shell.holds_records = True
    shell.happen(MarkerAnswered(7, 1, A))
    shell.commit_record()
    assert (first in shell.answers, second in shell.answers) == (False, False)
    shell.commit_record()
    assert (first in shell.answers, second in shell.answers) == (True, False)
    shell.commit_record()
    assert shell.answers[second].error_code is ErrorCode.NONE


def test_a_connection_that_ends_takes_its_request_along():
    """Nothing is done for a client that is gone."""
    shell = ending()
    asked = shell.ask(REQUESTS[0])
    shell.happen(Abandoned(asked))
    shell.happen(MarkerAnswered(7, 1, A))
    assert shell.shown == ("CC", 7, 5, -1)
    assert asked not in shell.answers


def test_no_more_wait_than_the_bound():
    """The next is refused at once."""
    shell = ending()
    for _ in range(shell.config.held_max):
        shell.ask(REQUESTS[2])
    assert shell.init() == (51,)


def test_what_waits_for_a_tombstone_meets_an_unknown_id():
    """A request that came while the id expired is served as after it."""
    shell = ending()
    shell.happen(MarkerAnswered(7, 1, A))
    shell.ms = shell.config.transactional_id_expiration_ms
    shell.holds_records = True
    from echoless.coordinators.transactions.events import ExpiryCheck

    shell.happen(ExpiryCheck())
    asked = shell.ask(REQUESTS[0])
    shell.commit_record()
    assert shell.answers[asked].error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def held_timers(shell: Shell) -> list[TransactionTimer]:
    return [timer for timer in shell.timers if timer.kind is TransactionTimerKind.HOLD]


def changed_generation() -> Shell:
    """A transaction whose last partition a client of the second generation has added, and one of the first goes on."""
    shell = Shell(stored("O", 7, 5, -1, A, client_version=2))
    shell.add(B, version=0)
    shell.holds_markers = True
    return shell


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_client_that_changes_its_generation_waits_for_the_markers(is_commit: bool):
    """Its next batch comes unannounced and under the same epoch: it would go into the transaction that has just ended."""
    shell = changed_generation()
    asked = shell.ask(EndTransaction(7, 5, is_commit))
    shell.happen(MarkerAnswered(7, 1, A))
    assert asked not in shell.answers
    shell.happen(MarkerAnswered(7, 1, B))
    assert shell.answers[asked].error_code is ErrorCode.NONE


def test_such_an_end_that_is_not_stored_is_refused():
    """It is answered once, and its repetition ends the transaction."""
    shell = changed_generation()
    shell.holds_records = True
    asked = shell.ask(EndTransaction(7, 5, is_commit=True))
    shell.refuse_record(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.answers[asked].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.holds_records = shell.holds_markers = False
    assert shell.commit() == (0,)


def test_an_end_of_either_generation_is_answered_at_its_decision():
    """Only a changed generation has to wait for the slowest leader."""
    for version in (0, 2):
        shell = Shell(stored("O", 7, 5, -1, A, client_version=version), version=version)
        shell.holds_markers = True
        assert shell.commit(version=version)[0] == 0
