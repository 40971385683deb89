"""A shell around one transactional id: records commit and markers are written at once, unless a test holds them."""

from __future__ import annotations

from echoless.coordinators.effects import CancelTimer, LogLine, Reply, SetTimer
from echoless.coordinators.events import Now, Requested, TimerFired
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.config import StepInputs, TransactionConfig
from echoless.coordinators.transactions.effects import (
    TIMEOUT,
    CloseConnection,
    ForgetTransactionalId,
    SendMarkers,
    StoreTransaction,
    TakeProducerId,
    TransactionEffect,
    TransactionTimer,
)
from echoless.coordinators.transactions.events import (
    MarkerAnswered,
    TransactionEvent,
    TransactionNotStored,
    TransactionStored,
)
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    TransactionRequest,
    VerifyPartitions,
)
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.coordinators.transactions.transactional_id import load, step
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    EndedTransaction,
    TransactionEnd,
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
    read_transaction_value,
    write_transaction_value,
)

WALL_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
A, B = TransactionPartition("t", 0), TransactionPartition("t", 1)
_STATUS = {
    "E": TransactionStatus.EMPTY,
    "O": TransactionStatus.ONGOING,
    "PC": TransactionStatus.PREPARE_COMMIT,
    "PA": TransactionStatus.PREPARE_ABORT,
    "CC": TransactionStatus.COMPLETE_COMMIT,
    "CA": TransactionStatus.COMPLETE_ABORT,
}
_NAMES = {status: name for name, status in _STATUS.items()}
Shown = tuple[str, int, int, int]
"""Status, producer id, epoch, last epoch; the status has a star while something is under way."""


def stored(
    status: str,
    producer_id: int = 7,
    epoch: int = 5,
    last_epoch: int = NO_PRODUCER_EPOCH,
    *partitions: TransactionPartition,
    previous: int = -1,
    client_version: int = 0,
    ended: EndedTransaction | None = None,
) -> TransactionValue:
    """A record as the vectors write it."""
    return TransactionValue(
        *(producer_id, epoch, TIMEOUT_MS, _STATUS[status], frozenset(partitions), WALL_MS),
        *(-1 if status == "E" else WALL_MS, previous, -1, client_version, 1, last_epoch, ended),
    )


class Shell:
    """Carries out effects. New producer ids are 8, 9, ..."""

    def __init__(
        self, value: TransactionValue | None = None, *, version: int = 0, hold_ms: int = 0
    ) -> None:
        self.config = TransactionConfig(transaction_version=version, hold_ms=hold_ms)
        self.ms = 0
        self.spare = 8
        self.elected_connection = 0
        self.holds_records = self.holds_markers = False
        self.log = [value] if value is not None else []
        """Committed records; None is a tombstone."""
        self.storing: StoreTransaction | None = None
        self.answers: dict[int, TransactionAnswer] = {}
        self.closed: list[int] = []
        self.markers: list[SendMarkers] = []
        self.timers: dict[TransactionTimer, int] = {}
        self.lines: list[str] = []
        self.is_forgotten = False
        self._replies = 0
        self.state = TransactionalIdState()
        if value is not None:
            self.load()

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    @property
    def inputs(self) -> StepInputs:
        return StepInputs(self.config, self.spare, self.elected_connection)

    @property
    def shown(self) -> Shown:
        value = self.state.value
        assert value is not None
        star = "*" if self.state.is_pending else ""
        return (
            *(f"{_NAMES[value.status]}{star}", value.producer_id),
            *(value.producer_epoch, value.last_epoch),
        )

    def load(self) -> None:
        """Lose the lead, and load the committed log, through its bytes."""
        self.storing = None
        self.timers.clear()
        value = self.log[-1]
        assert value is not None
        loaded, effects = load(read_transaction_value(write_transaction_value(value)), self.now)
        self.state = loaded
        self._perform(effects)

    def happen(self, event: TransactionEvent) -> None:
        self.state, effects = step(self.state, event, self.now, self.inputs)
        self._perform(effects)

    def ask(self, request: TransactionRequest) -> int:
        self._replies += 1
        self.happen(Requested(self._replies, request))
        return self._replies

    def answered(self, request: TransactionRequest) -> tuple[int, ...]:
        """The code, and the identity if there is one."""
        answer = self.answers[self.ask(request)]
        if answer.producer_id == -1:
            return (int(answer.error_code),)
        return int(answer.error_code), answer.producer_id, answer.producer_epoch

    def init(self, producer_id: int = -1, epoch: int = -1) -> tuple[int, ...]:
        return self.answered(InitTransactionalId(TIMEOUT_MS, producer_id, epoch))

    def add(
        self,
        *partitions: TransactionPartition,
        producer_id: int = 7,
        epoch: int = 5,
        version: int = 0,
    ) -> tuple[int, ...]:
        return self.answered(AddPartitions(producer_id, epoch, frozenset(partitions), version))

    def verify(self, *partitions: TransactionPartition) -> TransactionAnswer:
        return self.answers[self.ask(VerifyPartitions(7, 5, frozenset(partitions)))]

    def commit(self, producer_id: int = 7, epoch: int = 5, version: int = 0) -> tuple[int, ...]:
        return self.answered(EndTransaction(producer_id, epoch, True, version))

    def abort(self, producer_id: int = 7, epoch: int = 5, version: int = 0) -> tuple[int, ...]:
        return self.answered(EndTransaction(producer_id, epoch, False, version))

    def commit_record(self) -> None:
        """Let the record that is held become committed."""
        assert self.storing is not None
        self.log.append(self.storing.value)
        self.storing = None
        self.happen(TransactionStored())

    def refuse_record(self, code: ErrorCode, *, may_commit: bool = False) -> None:
        """Let the record that is held be refused, or its outcome be unknown."""
        if not may_commit:
            self.storing = None
        self.happen(TransactionNotStored(code, may_commit))

    def time_out(self) -> None:
        """Let the time of the transaction come."""
        self.ms += TIMEOUT_MS + 1
        self.happen(TimerFired(TIMEOUT))

    def _perform(self, effects: list[TransactionEffect]) -> None:
        for effect in effects:
            match effect:
                case StoreTransaction():
                    assert self.storing is None, "two records at a time"
                    self.storing = effect
                    if not self.holds_records:
                        self.commit_record()
                case SendMarkers():
                    self.markers.append(effect)
                    if not self.holds_markers:
                        for partition in sorted(effect.partitions):
                            self.happen(MarkerAnswered(*effect[0:3:2], partition))
                case TakeProducerId(producer_id):
                    assert producer_id == self.spare
                    self.spare += 1
                case _:
                    self._note(effect)

    def _note(self, effect: TransactionEffect) -> None:
        match effect:
            case Reply(reply_id, answer):
                assert reply_id not in self.answers, "answered twice"
                self.answers[reply_id] = answer
            case CloseConnection(reply_id):
                self.closed.append(reply_id)
            case SetTimer(key, at_ms):
                self.timers[key] = at_ms
            case CancelTimer(key):
                self.timers.pop(key, None)
            case ForgetTransactionalId():
                self.is_forgotten = True
            case LogLine(message):
                self.lines.append(message)


def ended(end: TransactionEnd, producer_id: int = 7, epoch: int = 5) -> EndedTransaction:
    return EndedTransaction(producer_id, epoch, end)
