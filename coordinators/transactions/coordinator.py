"""The transactional ids of one partition of `__transaction_state`: which of them an event is about, and what leaves in its name.

Each id is a state machine of its own (`transactional_id.py`); here are the replay, the tokens of appends, the supply of
producer ids, and expiry. It begins from what is committed when this broker is elected: the shell replays up to the high
watermark, and loading ends when that has passed everything of earlier leaders.

Ids are kept in the order of their last record, so expiry looks at the first of them only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from echoless.coordinators.effects import (
    AppendRecords,
    CancelTimer,
    LogLine,
    Reply,
    SetTimer,
    StateRecord,
)
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
)
from echoless.coordinators.recovery import Recovery
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.config import StepInputs, TransactionConfig
from echoless.coordinators.transactions.effects import (
    CloseConnection,
    ForgetTransactionalId,
    SendMarkers,
    StoreTransaction,
    TakeProducerId,
    TransactionEffects,
    TransactionTimer,
)
from echoless.coordinators.transactions.events import (
    ExpiryCheck,
    MarkerAnswered,
    MarkersWritten,
    PartitionDeleted,
    TransactionEvent,
    TransactionNotStored,
    TransactionStored,
)
from echoless.coordinators.transactions.requests import TransactionRequest
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.coordinators.transactions.transactional_id import load, step
from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.transaction_records import (
    TransactionValue,
    read_transaction_key,
    read_transaction_value,
    write_transaction_key,
    write_transaction_value,
)

SPARE_IDS: Final = 16
"""Producer ids that are kept in reserve; more are asked for when half of them are in use."""
EXPIRIES_MAX: Final = 100
"""Ids that one step lets expire."""
_EXPIRY_INTERVAL_MS: Final = 3_600_000
_NOTHING: Final = TransactionalIdState()


class IdRequest(NamedTuple):
    """A request about one transactional id."""

    transactional_id: str
    request: TransactionRequest


class IdTimer(NamedTuple):
    """The timer of an id; without one it is that of expiry."""

    transactional_id: str = ""
    timer: TransactionTimer | None = None


class MarkerOutcome(NamedTuple):
    """The outcome of one or more markers of an id."""

    transactional_id: str
    outcome: MarkerAnswered | MarkersWritten | PartitionDeleted


class ProducerIdsGiven(NamedTuple):
    """Producer ids for a `NeedProducerIds`; no one else has them."""

    producer_ids: tuple[int, ...]


class SpareIdsOutdated(NamedTuple):
    """Give up the producer ids that are in reserve: new ones have to be above all that were issued so far."""


class SendIdMarkers(NamedTuple):
    """Markers of an id; a `MarkerOutcome` follows for each partition."""

    transactional_id: str
    markers: SendMarkers


class NeedProducerIds(NamedTuple):
    """Give this many producer ids, as soon as there are any."""

    wanted: int


CoordinatorEvent = (
    Requested[IdRequest]
    | Abandoned
    | AppendCommitted
    | AppendFailed
    | TimerFired[IdTimer]
    | MarkerOutcome
    | ProducerIdsGiven
    | SpareIdsOutdated
)
CoordinatorEffect = (
    AppendRecords
    | Reply[TransactionAnswer]
    | CloseConnection
    | SendIdMarkers
    | NeedProducerIds
    | SetTimer[IdTimer]
    | CancelTimer[IdTimer]
    | LogLine
)
EXPIRY: Final = IdTimer()


class TransactionCoordinator:
    """One leader epoch's view of the ids: made when the partition is led, dropped when the lead is lost."""

    def __init__(self, config: TransactionConfig, elected_connection: int = 0) -> None:
        """`elected_connection`: the number of the newest connection when this broker was elected."""
        self._config = config
        self._elected_connection = elected_connection
        self._replayed: dict[str, TransactionValue] = {}
        self._ids: OrderedDict[str, TransactionalIdState] = OrderedDict()
        """States in the order of their last record; none of an unknown id that nothing waits for.

        The first of a plain dictionary is found behind the places of all that have left it.
        """
        self._spare: deque[int] = deque()
        self._is_short = False
        """More producer ids have been asked for."""
        self._last_token = 0
        self._storing: dict[int, str] = {}
        """Ids by the tokens of their appends."""
        self._asked: dict[int, str] = {}
        """Ids by the requests without an answer."""

    # --- loading

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Replay a record of the log; only while loading. Returns why it was skipped, for a warning; else None.

        Raises `DecodeError` if the record cannot be read.
        """
        transactional_id = read_transaction_key(key)
        if isinstance(transactional_id, int):
            return f"records of type {transactional_id} are not known"
        self._replayed.pop(transactional_id, None)
        if value is not None:
            try:
                self._replayed[transactional_id] = read_transaction_value(value)
            except DecodeError as error:
                raise DecodeError(f"{transactional_id!r} cannot be read: {error}") from error
        return None

    def start(self, now: Now) -> Iterator[list[CoordinatorEffect]]:
        """Begin after the replay, a step for each id. Run to the end before any `step`."""
        yield [*self._supplied(), SetTimer(EXPIRY, now.monotonic_ms + _EXPIRY_INTERVAL_MS)]
        for transactional_id, value in self._replayed.items():
            self._ids[transactional_id], effects = load(value, now)
            yield self._performed(transactional_id, effects)
        self._replayed = {}

    # --- serving

    def step(self, event: CoordinatorEvent, now: Now) -> list[CoordinatorEffect]:
        """Process one event."""
        match event:
            case Requested(reply_id, asked):
                self._asked[reply_id] = asked.transactional_id
                return self._step(asked.transactional_id, Requested(reply_id, asked.request), now)
            case Abandoned(reply_id):
                about = self._asked.pop(reply_id, None)
                return [] if about is None else self._step(about, event, now)
            case AppendCommitted(token):
                about = self._storing.pop(token)
                self._ids.move_to_end(about)
                return self._step(about, TransactionStored(), now)
            case AppendFailed(token, code, may_commit):
                about = self._storing[token] if may_commit else self._storing.pop(token)
                return self._step(about, TransactionNotStored(code, may_commit), now)
            case TimerFired(key):
                if key.timer is None:
                    return self._expire(now)
                return self._step(key.transactional_id, TimerFired(key.timer), now)
            case MarkerOutcome(transactional_id, outcome):
                return self._step(transactional_id, outcome, now)
            case ProducerIdsGiven(producer_ids):
                self._spare += producer_ids
                self._is_short = False
                return self._supplied()
            case SpareIdsOutdated():
                self._spare.clear()
                return self._supplied()

    def recover(self, event: CoordinatorEvent, now: Now) -> Recovery | None:
        """Return None: an id that may be half changed is loaded again with all the others."""
        del event, now
        return None

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._ids)

    def __getitem__(self, transactional_id: str) -> TransactionValue | None:
        """The last committed record of an id, None if it is not known."""
        return self._ids.get(transactional_id, _NOTHING).value

    def stored_by(self, token: int) -> str:
        """The id whose record was appended with this token, and is neither committed nor refused."""
        return self._storing[token]

    def state_of(self, transactional_id: str) -> TransactionalIdState | None:
        """The state of an id; None if it is not known."""
        state = self._ids.get(transactional_id, _NOTHING)
        return None if state.value is None else state

    def all(self) -> Iterator[tuple[str, TransactionValue]]:
        """Each id with its last committed record; ids may change between two of them."""
        for transactional_id in list(self._ids):
            state = self.state_of(transactional_id)
            if state is not None and state.value is not None:
                yield transactional_id, state.value

    def _step(
        self, transactional_id: str, event: TransactionEvent, now: Now
    ) -> list[CoordinatorEffect]:
        spare = self._spare[0] if self._spare else None
        inputs = StepInputs(self._config, spare, self._elected_connection)
        state = self._ids.get(transactional_id, _NOTHING)
        changed, effects = step(state, event, now, inputs)
        if changed == _NOTHING:
            self._ids.pop(transactional_id, None)
        else:
            self._ids[transactional_id] = changed
        return self._performed(transactional_id, effects)

    def _performed(
        self, transactional_id: str, effects: TransactionEffects
    ) -> list[CoordinatorEffect]:
        """Translate the effects of an id."""
        found: list[CoordinatorEffect] = []
        for effect in effects:
            match effect:
                case StoreTransaction(value):
                    found.append(self._append(transactional_id, value))
                case SendMarkers():
                    found.append(SendIdMarkers(transactional_id, effect))
                case TakeProducerId(producer_id):
                    taken = self._spare.popleft()
                    assert taken == producer_id, "another producer id is taken than was offered"
                    found += self._supplied()
                case Reply() | CloseConnection():
                    self._asked.pop(effect.reply_id, None)
                    found.append(effect)
                case SetTimer(key, at_ms):
                    found.append(SetTimer(IdTimer(transactional_id, key), at_ms))
                case CancelTimer(key):
                    found.append(CancelTimer(IdTimer(transactional_id, key)))
                case LogLine(message):
                    found.append(LogLine(f"transactional id {transactional_id!r}: {message}"))
                case ForgetTransactionalId():
                    pass  # its state is gone already
        return found

    def _append(self, transactional_id: str, value: TransactionValue | None) -> AppendRecords:
        self._last_token += 1
        self._storing[self._last_token] = transactional_id
        data = None if value is None else write_transaction_value(value)
        record = StateRecord(write_transaction_key(transactional_id), data)
        return AppendRecords(self._last_token, (record,))

    def _supplied(self) -> list[CoordinatorEffect]:
        """Ask for producer ids before they run out."""
        if self._is_short or len(self._spare) > SPARE_IDS // 2:
            return []
        self._is_short = True
        return [NeedProducerIds(SPARE_IDS - len(self._spare))]

    def _expire(self, now: Now) -> list[CoordinatorEffect]:
        """Let the ids expire that have been idle for longest; one that may not goes behind the others."""
        effects: list[CoordinatorEffect] = []
        for _ in range(min(EXPIRIES_MAX, len(self._ids))):
            transactional_id, state = next(iter(self._ids.items()))
            due_ms = now.wall_ms - self._config.transactional_id_expiration_ms
            if state.value is not None and state.value.update_ms > due_ms:
                return [*effects, SetTimer(EXPIRY, now.monotonic_ms + _EXPIRY_INTERVAL_MS)]
            self._ids.move_to_end(transactional_id)
            effects += self._step(transactional_id, ExpiryCheck(), now)
        is_more = len(self._ids) > EXPIRIES_MAX
        delay_ms = self._config.retry_ms if is_more else _EXPIRY_INTERVAL_MS
        return [*effects, SetTimer(EXPIRY, now.monotonic_ms + delay_ms)]
