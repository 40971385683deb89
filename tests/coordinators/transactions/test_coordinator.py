"""The ids of one partition: replay, appends, producer ids, timers and expiry, each in the name of its id."""

from __future__ import annotations

import statistics
import time

import pytest

from echoless.coordinators.coordinator import CoordinatorCore
from echoless.coordinators.effects import AppendRecords, LogLine, Reply, SetTimer
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
)
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.config import TransactionConfig
from echoless.coordinators.transactions.coordinator import (
    EXPIRIES_MAX,
    EXPIRY,
    SPARE_IDS,
    CoordinatorEffect,
    CoordinatorEvent,
    IdRequest,
    IdTimer,
    MarkerOutcome,
    NeedProducerIds,
    ProducerIdsGiven,
    SendIdMarkers,
    TransactionCoordinator,
)
from echoless.coordinators.transactions.effects import TIMEOUT
from echoless.coordinators.transactions.events import MarkerAnswered
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    TransactionRequest,
)
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionStatus,
    TransactionValue,
    write_transaction_key,
    write_transaction_value,
)
from tests.coordinators.transactions.shell import TIMEOUT_MS, WALL_MS, A, B, stored

WEEK_MS = 7 * 24 * 3_600_000
INIT = InitTransactionalId(TIMEOUT_MS)


class Shard:
    """Commits records at once, unless they are held."""

    def __init__(self, **values: TransactionValue) -> None:
        self.core = TransactionCoordinator(TransactionConfig())
        self.as_shards_know_it: CoordinatorCore = self.core
        self.ms = 0
        self.holds_records = False
        self.held: list[int] = []
        self.answers: dict[int, TransactionAnswer] = {}
        self.effects: list[CoordinatorEffect] = []
        self.ids = 100
        self._replies = 0
        for transactional_id, value in values.items():
            key = write_transaction_key(transactional_id)
            assert self.core.apply(key, write_transaction_value(value)) is None
        for effects in self.core.start(self.now):
            self._perform(effects)

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    def happen(self, event: CoordinatorEvent) -> None:
        self._perform(self.core.step(event, self.now))

    def ask(self, transactional_id: str, request: TransactionRequest) -> int:
        self._replies += 1
        self.happen(Requested(self._replies, IdRequest(transactional_id, request)))
        return self._replies

    def status(self, transactional_id: str) -> TransactionStatus | None:
        value = self.core[transactional_id]
        return None if value is None else value.status

    def _perform(self, effects: list[CoordinatorEffect]) -> None:
        self.effects += effects
        for effect in effects:
            match effect:
                case AppendRecords(token):
                    self.held.append(token)
                    if not self.holds_records:
                        self.happen(AppendCommitted(self.held.pop()))
                case Reply(reply_id, answer):
                    self.answers[reply_id] = answer
                case NeedProducerIds(count):
                    self.ids += count
                    self.happen(ProducerIdsGiven(tuple(range(self.ids - count, self.ids))))
                case _:
                    pass


def test_each_new_id_gets_a_producer_id_of_its_own():
    """Reserves are refilled before they run out."""
    shard = Shard()
    replies = [shard.ask(f"id {number}", INIT) for number in range(3 * SPARE_IDS)]
    given = [shard.answers[reply_id].producer_id for reply_id in replies]
    assert given == list(range(100, 100 + 3 * SPARE_IDS))


def test_the_log_is_replayed():
    """The last record of an id counts; a tombstone removes it; other types are named."""
    core = TransactionCoordinator(TransactionConfig())
    key = write_transaction_key("t")
    for value in (stored("E"), stored("O", 7, 6, -1, A)):
        core.apply(key, write_transaction_value(value))
    core.apply(write_transaction_key("gone"), write_transaction_value(stored("E")))
    core.apply(write_transaction_key("gone"), None)
    assert core.apply(b"\x00\x05rest", b"") == "records of type 5 are not known"
    list(core.start(Now(0, WALL_MS)))
    assert len(core) == 1
    assert core["t"] == stored("O", 7, 6, -1, A)


def test_the_beginning_of_many_idle_ids_takes_many_steps():
    """So that their shard can serve others in between, although nothing follows from them."""
    core = TransactionCoordinator(TransactionConfig())
    for number in range(50):
        core.apply(write_transaction_key(str(number)), write_transaction_value(stored("E")))
    assert sum(1 for _ in core.start(Now(0, WALL_MS))) >= 50
    assert len(core) == 50


def test_a_record_that_cannot_be_read_is_named():
    """The id it is about is out of date, so the partition is not served."""
    core = TransactionCoordinator(TransactionConfig())
    with pytest.raises(DecodeError, match="'t' cannot be read: a transactional id of version 9"):
        core.apply(write_transaction_key("t"), b"\x00\x09")


def test_vector_56_every_decided_end_is_carried_on():
    """Markers go to all partitions again; an id that is open gets its timer."""
    shard = Shard(a=stored("PC", 7, 5, -1, A, B), b=stored("O", 8, 0, -1, A), c=stored("CC"))
    (sent,) = [effect for effect in shard.effects if isinstance(effect, SendIdMarkers)]
    assert (sent.transactional_id, sent.markers.partitions) == ("a", {A, B})
    assert SetTimer(IdTimer("b", TIMEOUT), TIMEOUT_MS) in shard.effects
    for partition in (A, B):
        shard.happen(MarkerOutcome("a", MarkerAnswered(7, 1, partition)))
    assert shard.status("a") is TransactionStatus.COMPLETE_COMMIT


def test_records_of_two_ids_do_not_mix():
    """Tokens rise; each outcome is its id's."""
    shard = Shard(a=stored("E"), b=stored("E", 8))
    shard.holds_records = True
    first = shard.ask("a", AddPartitions(7, 5, frozenset({A})))
    second = shard.ask("b", AddPartitions(8, 5, frozenset({A})))
    token, other = shard.held
    assert token < other
    shard.happen(AppendFailed(token, ErrorCode.REQUEST_TIMED_OUT, may_commit=True))
    shard.happen(AppendFailed(other, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert shard.answers[first].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.answers[second].error_code is ErrorCode.NOT_COORDINATOR
    shard.happen(AppendCommitted(token))
    assert (shard.status("a"), shard.status("b")) == (
        TransactionStatus.ONGOING,
        TransactionStatus.EMPTY,
    )


def test_an_unknown_id_leaves_nothing_behind():
    """A client cannot fill the memory with names."""
    shard = Shard()
    asked = shard.ask("t", EndTransaction(7, 5, is_commit=True))
    assert shard.answers[asked].error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert len(shard.core) == 0


def test_a_request_that_waits_ends_with_its_connection():
    """The id is found by the reply."""
    shard = Shard(a=stored("PC", 7, 5, -1, A))
    asked = shard.ask("a", INIT)
    shard.happen(Abandoned(asked))
    shard.happen(Abandoned(asked))
    shard.happen(MarkerOutcome("a", MarkerAnswered(7, 1, A)))
    assert shard.status("a") is TransactionStatus.COMPLETE_COMMIT
    assert asked not in shard.answers


def test_a_timer_is_its_ids():
    """The log line names it, too."""
    shard = Shard(a=stored("O", 7, 5, -1, A), b=stored("O", 8, 5, -1, A))
    shard.ms = TIMEOUT_MS
    shard.happen(TimerFired(IdTimer("a", TIMEOUT)))
    assert (shard.status("a"), shard.status("b")) == (
        TransactionStatus.PREPARE_ABORT,
        TransactionStatus.ONGOING,
    )
    (line,) = [effect.message for effect in shard.effects if isinstance(effect, LogLine)]
    assert line.startswith("transactional id 'a': transaction 1 of producer 7 epoch 5 is aborted")


def test_ids_expire_in_the_order_of_their_last_record():
    """Only the first is looked at; one that ends does not hold up the others."""
    shard = Shard(stuck=stored("PC", 9, 5, -1, A), a=stored("E"), b=stored("E", 8))
    shard.ms = 1_000
    shard.ask("a", INIT)
    shard.ms = WEEK_MS
    shard.happen(TimerFired(EXPIRY))
    assert (shard.status("a"), shard.status("b")) == (TransactionStatus.EMPTY, None)
    assert shard.status("stuck") is TransactionStatus.PREPARE_COMMIT
    assert shard.effects[-1] == SetTimer(EXPIRY, WEEK_MS + 3_600_000)


def test_ids_that_are_idle_do_not_make_a_step_longer():
    """Neither one that lets others expire, of which the oldest are always the next, nor one that finds none due."""
    few, many = (idle_steps_s(count) for count in (1_000, 50_000))
    for name in few:
        assert many[name] < 2 * few[name] + 20e-6, name


def idle_steps_s(count: int) -> dict[str, float]:
    """The processor time of a step of the timer in which nothing is due, and of one in which all are."""
    shard = Shard()
    shard.core._replayed = {f"id {number}": stored("E") for number in range(count)}
    for _ in shard.core.start(shard.now):
        pass
    began_s = time.process_time()
    for _ in range(100):
        shard.core.step(TimerFired(EXPIRY), shard.now)
    none_due_s = (time.process_time() - began_s) / 100
    shard.ms = WEEK_MS
    took_s = []
    while len(shard.core):
        began_s = time.process_time()
        effects = shard.core.step(TimerFired(EXPIRY), shard.now)
        took_s.append(time.process_time() - began_s)
        for effect in effects:
            if isinstance(effect, AppendRecords):
                shard.core.step(AppendCommitted(effect.token), shard.now)
    return {"none is due": none_due_s, "all are due": statistics.median(took_s)}


def test_many_ids_expire_in_turns():
    """One step is short, however many are due."""
    shard = Shard(**{f"id {number}": stored("E") for number in range(EXPIRIES_MAX + 5)})
    shard.ms = WEEK_MS
    shard.happen(TimerFired(EXPIRY))
    assert len(shard.core) == 5
    shard.happen(TimerFired(EXPIRY))
    assert len(shard.core) == 0
