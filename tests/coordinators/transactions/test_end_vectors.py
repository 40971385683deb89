"""The test vectors of EndTxn and the end of transactions: 31 to 60, 78, 80, 82, 85 and 87."""

from __future__ import annotations

import pytest

from echoless.coordinators.events import TimerFired
from echoless.coordinators.transactions.effects import TIMEOUT
from echoless.coordinators.transactions.events import (
    ExpiryCheck,
    MarkerAnswered,
    MarkersWritten,
    PartitionDeleted,
)
from echoless.coordinators.transactions.requests import AddPartitions, EndTransaction
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionEnd
from tests.coordinators.transactions.shell import TIMEOUT_MS, A, B, Shell, ended, stored

WEEK_MS = 7 * 24 * 3_600_000
DONE_5 = ended(TransactionEnd.COMMITTED)


@pytest.mark.parametrize(
    ("is_commit", "prepared", "complete"),
    [pytest.param(True, "PC*", "CC", id="31"), pytest.param(False, "PA*", "CA", id="32")],
)
def test_vectors_31_and_32_an_end_is_answered_when_it_is_decided(
    is_commit: bool, prepared: str, complete: str
):
    """Not before the record is committed, and before any marker is written."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_records = shell.holds_markers = True
    asked = shell.ask(EndTransaction(7, 5, is_commit))
    assert (asked in shell.answers, shell.markers) == (False, [])
    shell.commit_record()
    assert shell.answers[asked].error_code is ErrorCode.NONE
    assert shell.shown == (prepared, 7, 5, -1)
    (markers,) = shell.markers
    assert (markers.is_commit, markers.producer_epoch, markers.number) == (is_commit, 5, 1)
    shell.happen(MarkerAnswered(7, 1, A))
    shell.commit_record()
    assert shell.shown == (complete, 7, 5, -1)


def test_vector_33_a_decided_end_is_waited_for():
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_markers = True
    shell.commit()
    for version in (0, 2):
        assert shell.commit(version=version) == (51,)
        assert shell.abort(version=version) == (51,)


@pytest.mark.parametrize(
    ("status", "last", "end", "request_", "code"),
    [
        pytest.param("CC", -1, None, "C4 5", (0,), id="34 commit"),
        pytest.param("CC", -1, None, "B4 5", (48,), id="34 abort"),
        pytest.param("CC", -1, DONE_5, "C4 5", (0,), id="34 commit, known"),
        pytest.param("CC", -1, DONE_5, "B4 5", (48,), id="34 abort, known"),
        pytest.param("CA", -1, None, "C4 5", (48,), id="35 commit"),
        pytest.param("CA", -1, None, "B4 5", (0,), id="35 abort"),
        pytest.param("E", -1, None, "C4 5", (48,), id="36 commit"),
        pytest.param("E", -1, None, "B4 5", (48,), id="36 abort"),
        pytest.param("O", -1, None, "C4 4", (90,), id="37 older"),
        pytest.param("O", -1, None, "C4 6", (90,), id="37 newer"),
        pytest.param("E", -1, None, "C5 5", (48,), id="45 commit"),
        pytest.param("E", -1, None, "C5 4", (90,), id="a repeated commit in Empty"),
        pytest.param("E", -1, None, "B5 4", (90,), id="a repeated abort in Empty"),
        pytest.param("O", -1, None, "B5 4", (90,), id="a repeated abort in Ongoing"),
    ],
)
def test_vectors_34_to_37_answers_that_follow_from_the_state(
    status: str, last: int, end: object, request_: str, code: tuple[int, ...]
):
    partitions = [A] if status == "O" else []
    shell = Shell(stored(status, 7, 5, last, *partitions, ended=end), version=2)  # type: ignore[arg-type]
    assert asked(shell, request_) == code
    assert len(shell.log) == 1


def asked(shell: Shell, request: str) -> tuple[int, ...]:
    """Ask as the vectors write it: B or C, the API's version, and the epoch."""
    what, epoch = request.split()
    return shell.answered(EndTransaction(7, int(epoch), what[0] == "C", 2 * (what[1] == "5")))


def test_vector_38_the_second_generation_raises_the_epoch():
    shell = Shell(stored("O", 7, 5, -1, A), version=2)
    shell.holds_markers = True
    assert shell.commit(version=2) == (0, 7, 6)
    assert shell.shown == ("PC*", 7, 6, 5)
    assert shell.markers[0].producer_epoch == 6
    shell.happen(MarkerAnswered(7, 1, A))
    assert shell.shown == ("CC", 7, 6, 5)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param("C5 5", (0, 7, 6), id="39"),
        pytest.param("B5 5", (48,), id="40"),
        pytest.param("C5 6", (48,), id="41"),
        pytest.param("C4 5", (0,), id="78"),
        pytest.param("B4 5", (48,), id="78, the opposite"),
        pytest.param("C5 4", (90,), id="an earlier one"),
        pytest.param("C4 6", (48,), id="nothing is open"),
    ],
)
def test_vectors_39_to_41_and_78_a_repeated_end_gets_the_truth(
    request_: str, code: tuple[int, ...], is_known: bool
):
    """A record of Kafka's, which does not name the transaction that has ended, gives the same answers."""
    end = DONE_5 if is_known else None
    value = stored("CC", 7, 6, 5, client_version=2, ended=end)
    shell = Shell(value, version=2)
    assert asked(shell, request_) == code
    assert shell.log == [value]


@pytest.mark.parametrize(
    ("status", "epoch"), [pytest.param("CC", 6, id="42"), pytest.param("E", 5, id="45")]
)
def test_vectors_42_and_45_an_empty_abort_raises_the_epoch(status: str, epoch: int):
    """It has a number of its own, and no markers."""
    shell = Shell(stored(status, 7, epoch, epoch - 1), version=2)
    assert shell.abort(epoch=epoch, version=2) == (0, 7, epoch + 1)
    assert shell.shown == ("CA", 7, epoch + 1, epoch)
    assert [value and value.number for value in shell.log] == [1, 2, 2]
    assert shell.markers == []
    assert shell.abort(epoch=epoch, version=2) == (0, 7, epoch + 1)


def test_vector_43_a_quick_empty_abort_does_not_fence_itself():
    shell = Shell(stored("O", 7, 5, -1, A), version=2)
    shell.holds_markers = True
    shell.commit(version=2)
    assert shell.abort(epoch=6, version=2) == (51,)


def test_vector_44_a_delayed_end_does_not_end_the_next_transaction():
    shell = Shell(stored("CC", 7, 6, 5, ended=DONE_5), version=2)
    shell.add(B, epoch=6, version=2)
    assert shell.commit(epoch=5, version=2) == (90,)
    assert shell.shown == ("O", 7, 6, 5)


def test_vectors_46_47_80_and_81_the_last_epoch_is_followed_by_a_new_producer():
    """Repetitions get the truth, in both generations, and from the next coordinator."""
    shell = Shell(stored("O", 7, 32_766, -1, A), version=2)
    assert shell.commit(7, 32_766, 2) == (0, 8, 0)
    assert shell.markers[0].producer_epoch == 32_767
    assert shell.shown == ("CC", 8, 0, 32_766)
    for _ in range(2):
        assert shell.commit(7, 32_766, 2) == (0, 8, 0)
        assert shell.commit(7, 32_766) == (0,)
        assert shell.abort(7, 32_766) == (48,)
        shell.load()
    assert shell.init(7, 32_766) == (0, 8, 0)
    assert shell.commit(7, 32_766) == (0,)
    assert shell.add(A, producer_id=8, epoch=0) == (0,)
    assert shell.commit(7, 32_766) == (49,)


@pytest.mark.parametrize("version", [0, 2])
def test_vector_48_a_transaction_times_out(version: int):
    shell = Shell(stored("O", 7, 5, -1, A), version=version)
    shell.holds_markers = True
    shell.time_out()
    assert shell.shown == ("PA*", 7, 6, 5)
    assert shell.answers == {}


def test_a_timer_that_is_early_changes_nothing():
    """A record that was added meanwhile has set it again."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.ms = TIMEOUT_MS - 1
    shell.happen(TimerFired(TIMEOUT))
    assert shell.shown == ("O", 7, 5, -1)
    assert shell.timers[TIMEOUT] == TIMEOUT_MS


def test_vector_49_what_is_under_way_is_not_timed_out():
    """A commit that is being stored is decided by its record alone."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_records = True
    asked = shell.ask(EndTransaction(7, 5, is_commit=True))
    shell.time_out()
    shell.refuse_record(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.answers[asked].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.timers[TIMEOUT] == shell.ms + shell.config.retry_ms
    shell.happen(TimerFired(TIMEOUT))
    shell.commit_record()
    assert shell.shown == ("PA*", 7, 6, 5)


def test_a_timeout_whose_record_is_refused_waits_before_it_comes_again():
    """Else, while too few replicas are in sync, the coordinator does nothing but try."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_records = True
    shell.time_out()
    shell.refuse_record(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.timers[TIMEOUT] == shell.ms + shell.config.retry_ms


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param("B5 5", (0, 7, 6), id="50 abort"),
        pytest.param("C5 5", (120,), id="50 commit"),
        pytest.param("B4 5", (0,), id="51 abort"),
        pytest.param("C4 5", (49,), id="51 commit"),
    ],
)
def test_vectors_50_and_51_a_session_that_timed_out_may_go_on(request_: str, code: tuple[int, ...]):
    """A commit is refused by a code after which its clients take a new epoch or abort; no abort gets 120 (85)."""
    shell = Shell(stored("O", 7, 5, -1, A), version=2)
    shell.time_out()
    assert asked(shell, request_) == code


def test_vector_52_a_timeout_at_the_last_epoch_rotates():
    shell = Shell(stored("O", 7, 32_766, -1, A), version=2)
    shell.time_out()
    assert shell.markers[0].producer_epoch == 32_767
    assert shell.shown == ("CA", 8, 0, 32_766)
    assert shell.abort(7, 32_766, 2) == (0, 8, 0)
    assert shell.commit(7, 32_766, 2) == (120,)
    assert shell.commit(7, 32_766) == (49,)


def test_a_timeout_that_lacks_a_producer_id_comes_again():
    shell = Shell(stored("O", 7, 32_766, -1, A), version=2)
    shell.spare = None  # type: ignore[assignment]
    shell.time_out()
    assert shell.shown == ("O", 7, 32_766, -1)
    assert shell.timers[TIMEOUT] > shell.ms


@pytest.mark.parametrize("status", ["E", "CC", "CA"])
def test_vector_53_an_idle_id_expires(status: str):
    shell = Shell(stored(status))
    shell.ms = WEEK_MS - 1
    shell.happen(ExpiryCheck())
    assert not shell.is_forgotten
    shell.ms = WEEK_MS
    shell.happen(ExpiryCheck())
    assert shell.log[-1] is None
    assert shell.is_forgotten
    assert shell.add(A) == (49,)


def test_an_id_whose_tombstone_is_refused_is_kept():
    shell = Shell(stored("CC"))
    shell.ms = WEEK_MS
    shell.holds_records = True
    shell.happen(ExpiryCheck())
    assert shell.init() == (51,)
    shell.refuse_record(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.shown == ("CC", 7, 5, -1)


@pytest.mark.parametrize("status", ["O", "PC", "PA"])
def test_vector_54_an_open_transaction_does_not_expire(status: str):
    shell = Shell()
    shell.holds_markers = True
    shell.log.append(stored(status, 7, 5, -1, A))
    shell.load()
    shell.ms = WEEK_MS
    shell.happen(ExpiryCheck())
    assert len(shell.log) == 1


@pytest.mark.parametrize(
    ("code", "answered"),
    [(3, 15), (19, 15), (20, 15), (7, 15), (6, 16), (56, 16), (10, -1), (18, -1)],
)
@pytest.mark.parametrize(
    "request_", [AddPartitions(7, 5, frozenset({B})), EndTransaction(7, 5, True)]
)
def test_vector_55_a_record_that_is_refused_changes_nothing(
    code: int, answered: int, request_: AddPartitions | EndTransaction
):
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_records = True
    reply = shell.ask(request_)
    shell.refuse_record(ErrorCode(code))
    assert shell.answers[reply].error_code == answered
    assert shell.shown == ("O", 7, 5, -1)


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
def test_a_record_whose_outcome_is_unknown_stays_under_way(code: ErrorCode):
    """The client is answered; neither it nor the timeout can decide the opposite until the outcome is known."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_records = True
    reply = shell.ask(EndTransaction(7, 5, is_commit=True))
    shell.refuse_record(code, may_commit=True)
    assert shell.answers[reply].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.time_out()
    assert shell.abort() == (51,)
    shell.holds_records = False
    shell.commit_record()
    assert shell.shown == ("CC", 7, 5, -1)
    assert shell.commit() == (0,)


@pytest.mark.parametrize("status", ["PC", "PA"])
def test_vector_56_the_next_coordinator_sends_all_markers_again(status: str):
    shell = Shell()
    shell.holds_markers = True
    shell.log.append(stored(status, 7, 5, -1, A, B))
    shell.load()
    (markers,) = shell.markers
    assert (markers.partitions, markers.number, markers.is_commit) == ({A, B}, 1, status == "PC")
    assert shell.shown == (f"{status}*", 7, 5, -1)


def test_vector_58_a_marker_that_was_refused_is_sent_again():
    shell = Shell(stored("O", 7, 5, -1, A, B))
    shell.holds_markers = True
    shell.commit()
    shell.happen(MarkerAnswered(7, 1, A))
    shell.happen(MarkerAnswered(7, 1, B, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert shell.state.unmarked == {B}
    assert (shell.markers[-1].partitions, shell.markers[-1].is_retry) == ({B}, True)
    assert shell.lines == []


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_vector_59_a_marker_that_a_leader_contradicts_is_reported(code: ErrorCode):
    """Kafka gives the transaction up. Here it is sent until it is in, or the lead is lost."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_markers = True
    shell.commit()
    shell.happen(MarkerAnswered(7, 1, A, code))
    assert shell.markers[-1].is_retry
    assert f"t-0 refuses the marker of producer 7 epoch 5 with {code.name}" in shell.lines[0]


def test_markers_that_are_written_together_are_one_event():
    """Only those of this transaction count, and only where one is missing."""
    shell = Shell(stored("O", 7, 5, -1, A, B))
    shell.holds_markers = True
    shell.commit()
    for late in (MarkersWritten(7, 2, frozenset({A})), MarkersWritten(8, 1, frozenset({A}))):
        shell.happen(late)
    assert shell.state.unmarked == {A, B}
    shell.happen(MarkersWritten(7, 1, frozenset({A})))
    assert (shell.state.unmarked, shell.shown) == ({B}, ("PC*", 7, 5, -1))
    shell.happen(MarkersWritten(7, 1, frozenset({A, B})))
    assert shell.shown == ("CC", 7, 5, -1)
    shell.happen(MarkersWritten(7, 1, frozenset({A, B})))
    assert shell.shown == ("CC", 7, 5, -1)


def test_a_late_answer_of_a_marker_does_not_count_for_the_next_transaction():
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.commit()
    shell.holds_markers = True
    shell.add(A)
    shell.commit()
    shell.happen(MarkerAnswered(7, 1, A))
    assert shell.shown == ("PC*", 7, 5, -1)
    shell.happen(MarkerAnswered(7, 2, A))
    assert shell.shown == ("CC", 7, 5, -1)


def test_a_partition_of_a_deleted_topic_needs_no_marker():
    """It is not forgotten in silence."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_markers = True
    shell.commit()
    shell.happen(PartitionDeleted(7, 2, A))
    assert shell.shown == ("PC*", 7, 5, -1)
    shell.happen(PartitionDeleted(7, 1, A))
    assert shell.shown == ("CC", 7, 5, -1)
    assert shell.lines == ["t-0 gets no marker of transaction 1: its topic was deleted"]


def test_the_end_is_stored_again_until_it_is_committed():
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_markers = True
    shell.commit()
    shell.holds_records = True
    shell.happen(MarkerAnswered(7, 1, A))
    shell.refuse_record(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.shown == ("PC*", 7, 5, -1)
    (timer,) = shell.timers
    shell.holds_records = False
    shell.happen(TimerFired(timer))
    assert shell.shown == ("CC", 7, 5, -1)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("request_", ["B5 5", "B4 5", "C5 5", "C4 5"])
def test_vector_82_a_fenced_instance_does_not_come_back(version: int, request_: str):
    """Neither while the new instance waits for the abort, nor once it has begun. Kafka gives it the next epoch."""
    shell = Shell(stored("O", 7, 5, -1, A), version=version)
    shell.init()
    assert asked(shell, request_) == (90,)
    assert shell.init(7, 5) == (90,)
    assert shell.init() == (0, 7, 7)
    assert asked(shell, request_) == (90,)


def test_vector_82_an_instance_that_is_fenced_between_transactions_does_not_come_back():
    shell = Shell(stored("E"), version=2)
    shell.init()
    assert shell.abort(version=2) == (90,)


@pytest.mark.parametrize("status", ["E", "O", "CC", "CA"])
@pytest.mark.parametrize("end", [None, *TransactionEnd])
@pytest.mark.parametrize("request_", ["B5 5", "B5 6", "B4 5", "B4 6"])
def test_vector_85_no_abort_is_answered_with_120(
    status: str, end: TransactionEnd | None, request_: str
):
    """Java takes it for fatal there."""
    partitions = [A] if status == "O" else []
    known = None if end is None else ended(end)
    shell = Shell(stored(status, 7, 6, 5, *partitions, ended=known), version=2)
    assert asked(shell, request_) != (120,)


def test_vector_60_a_request_on_an_overtaken_connection_has_no_effect():
    """It may be a delayed copy of the EndTxn before; the connection is closed."""
    shell = Shell(stored("CC", ended=DONE_5))
    shell.ask(AddPartitions(7, 5, frozenset({A}), connection=9))
    delayed = shell.ask(EndTransaction(7, 5, is_commit=True, connection=4))
    assert (shell.closed, delayed in shell.answers) == ([delayed], False)
    assert shell.shown == ("O", 7, 5, -1)
    late = shell.ask(AddPartitions(7, 5, frozenset({B}), connection=4))
    assert shell.closed == [delayed, late]
    assert shell.answered(EndTransaction(7, 5, is_commit=True, connection=9)) == (0,)


def test_vector_87_a_connection_older_than_the_election_has_no_effect():
    """The coordinator in between may have answered what it holds."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.elected_connection = 9
    delayed = shell.ask(EndTransaction(7, 5, is_commit=True, connection=9))
    assert shell.closed == [delayed]
    assert shell.shown == ("O", 7, 5, -1)
    assert shell.answered(EndTransaction(7, 5, is_commit=True, connection=10)) == (0,)


def test_a_generation_1_end_of_a_generation_2_transaction_keeps_the_epoch():
    """Both may be mixed; the markers go out as those of the request that ends it."""
    shell = Shell(stored("CC", 7, 5), version=2)
    shell.add(A, version=2)
    assert shell.commit() == (0,)
    assert shell.shown == ("CC", 7, 5, -1)
    assert shell.markers[0].client_version == 0
