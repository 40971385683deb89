"""Transactions in two phases (KIP-939): without a timeout, and kept over a restart of their client."""

from __future__ import annotations

import pytest

from echoless.coordinators.events import TimerFired
from echoless.coordinators.transactions.effects import TIMEOUT
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    InitTransactionalId,
    VerifyPartitions,
)
from echoless.protocol.state_records.transaction_records import TransactionValue
from tests.coordinators.transactions.shell import TIMEOUT_MS, A, B, Shell, stored

NEW, KEEP = (True, False), (True, True)


def shell_of(value: TransactionValue | None = None, version: int = 2) -> Shell:
    shell = Shell(value, version=version)
    shell.config = shell.config._replace(two_phase_commit_enable=True)
    return shell


def opened(version: int = 2, epoch: int = 5) -> Shell:
    """An open transaction of producer 7 with partition A."""
    return shell_of(stored("O", 7, epoch, -1, A)._replace(is_two_phase=True), version)


def init(shell: Shell, producer_id: int = -1, epoch: int = -1, phases: tuple[bool, bool] = NEW):
    """The answer: code, identity, and that of the session whose transaction is kept."""
    request = InitTransactionalId(TIMEOUT_MS, producer_id, epoch, *phases)
    answer = shell.answers[shell.ask(request)]
    return (int(answer.error_code), *answer[1:3], *answer[5:])


def test_it_is_refused_unless_it_is_enabled():
    """53, as without the right; keeping needs two phases: 42."""
    assert init(Shell(stored("E")))[0] == 53
    assert init(shell_of(stored("E")), phases=(False, True))[0] == 42


def test_the_timeout_is_not_looked_at():
    """Kafka stores the longest one, and so do we; what counts is a flag."""
    shell = shell_of()
    assert shell.answered(InitTransactionalId(0, -1, -1, *NEW)) == (0, 8, 0)
    value = shell.state.value
    assert value is not None
    assert (value.timeout_ms, value.is_two_phase) == (2**31 - 1, True)
    assert shell.answered(InitTransactionalId(TIMEOUT_MS)) == (0, 8, 1)
    assert shell.state.value is not None
    assert not shell.state.value.is_two_phase


@pytest.mark.parametrize("is_two_phase", [True, False])
def test_nothing_but_the_flag_keeps_a_transaction_from_timing_out(is_two_phase: bool):
    """A client with the longest timeout is timed out nevertheless; after a load as well."""
    value = stored("O", 7, 5, -1, A)._replace(timeout_ms=2**31 - 1, is_two_phase=is_two_phase)
    shell = shell_of(value)
    assert (TIMEOUT in shell.timers) is not is_two_phase
    shell.ms = 2**31
    shell.happen(TimerFired(TIMEOUT))
    assert shell.shown[0] == ("O" if is_two_phase else "CA")


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_session_ends_what_it_keeps(version: int, is_commit: bool):
    """The markers carry an epoch above that of the batches; the old session is fenced."""
    shell = opened(version)
    assert init(shell, phases=KEEP) == (0, 7, 6, 7, 5)
    assert shell.shown == ("O", 7, 6, -1)
    shell.load()
    assert shell.commit(7, 5, version) == (90,)
    assert (shell.commit if is_commit else shell.abort)(7, 6, version)[0] == 0
    (markers,) = shell.markers
    assert (markers.is_commit, markers.partitions) == (is_commit, {A})
    assert markers.producer_epoch == (7 if version else 6)
    assert shell.shown[0] == ("CC" if is_commit else "CA")
    assert shell.state.value is not None
    assert shell.state.value.kept_epoch == -1


def test_it_is_kept_again_and_again():
    """Each answer names the session that wrote it; a retry of a session gets its epoch again."""
    shell = opened()
    assert init(shell, phases=KEEP) == (0, 7, 6, 7, 5)
    assert init(shell, phases=KEEP) == (0, 7, 7, 7, 5)
    assert init(shell, 7, 7, KEEP) == (0, 7, 8, 7, 5)
    assert init(shell, 7, 7, KEEP) == (0, 7, 8, 7, 5)
    assert init(shell, 7, 6, KEEP)[0] == 90


def test_nothing_is_added_to_what_is_kept():
    """Its records were complete when it was prepared: 48 for a client, and for a leader that asks."""
    shell = opened()
    init(shell, phases=KEEP)
    for partition in (A, B):
        assert shell.answered(AddPartitions(7, 6, frozenset({partition}))) == (48,)
        assert shell.answered(VerifyPartitions(7, 6, frozenset({partition}))) == (48,)


def test_a_session_that_keeps_nothing_aborts():
    """51 as usual, also for the session that has kept it before."""
    shell = opened()
    assert init(shell)[0] == 51
    assert shell.shown[0] == "CA"
    shell = opened()
    init(shell, phases=KEEP)
    assert init(shell, 7, 6)[0] == 51
    assert shell.shown[0] == "CA"


def test_a_late_request_of_the_epoch_before_aborts_nothing():
    """90, unless it asks for the transaction to be kept, too: then it is a retry."""
    shell = opened()
    assert init(shell, 7, 5, KEEP) == (0, 7, 6, 7, 5)
    assert init(shell, 7, 5)[0] == 90
    assert shell.shown == ("O", 7, 6, 5)
    assert init(shell, 7, 5, KEEP) == (0, 7, 6, 7, 5)


def test_nothing_to_keep():
    """A session begins as usual, and no other one is named."""
    assert init(shell_of(stored("CC")), phases=KEEP) == (0, 7, 6, -1, -1)


def test_what_has_a_timeout_is_not_kept():
    """It might be aborted at any time: it is aborted now."""
    assert init(shell_of(stored("O", 7, 5, -1, A)), phases=KEEP)[0] == 51


def test_the_last_epoch_ends_a_transaction_that_is_kept():
    """It has to be ended under its producer id; another one follows."""
    shell = opened(epoch=32_766)
    assert init(shell, phases=KEEP) == (0, 7, 32_767, 7, 32_766)
    assert init(shell, phases=KEEP) == (0, 7, 32_767, 7, 32_766)
    assert shell.commit(7, 32_767, 2) == (0, 8, 0)
    assert shell.shown[:3] == ("CC", 8, 0)
