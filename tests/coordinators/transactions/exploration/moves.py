"""The moves that a world around one id can make, each with what it costs of the bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from echoless.coordinators.effects import CancelTimer, Reply, SetTimer
from echoless.coordinators.events import Now, Requested, TimerFired
from echoless.coordinators.transactions import transactional_id
from echoless.coordinators.transactions.config import StepInputs
from echoless.coordinators.transactions.effects import (
    COMPLETION,
    TIMEOUT,
    SendMarkers,
    StoreTransaction,
    TakeProducerId,
    TransactionEffect,
    TransactionTimer,
    TransactionTimerKind,
)
from echoless.coordinators.transactions.events import (
    ExpiryCheck,
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
)
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    read_transaction_value,
    write_transaction_value,
)
from tests.coordinators.transactions.exploration.judge import (
    answered,
    committed,
    judge_state,
    markers_sent,
)
from tests.coordinators.transactions.exploration.world import (
    LATER,
    MUCH_LATER,
    NOW,
    PARTITIONS,
    TIMEOUT_MS,
    IdWorld,
    InflightRecord,
)


class Move(NamedTuple):
    """A move, and the world after it."""

    name: str
    world: IdWorld
    requests: int = 0
    """Requests that it takes of those that may come."""
    faults: int = 0
    takes_id: bool = False


def moves(world: IdWorld, inputs: StepInputs, *, may_ask: bool, may_fail: bool) -> Iterator[Move]:
    """Every move. Raises `BrokenInvariantError` if one breaks an invariant."""
    if may_ask:
        for request in requests(world, is_two_phase=inputs.config.two_phase_commit_enable):
            yield _asked(world, request, inputs)
    if world.inflight:
        yield _commit(world, inputs)
    if world.inflight and world.state.storing is not None and may_fail:
        yield from _failures(world, inputs)
    if may_fail:
        yield from _crashes(world, inputs)
        if world.durable is not None:
            yield _happened("expiry", world, ExpiryCheck(), inputs, MUCH_LATER, faults=1)
    yield from _markers(world, inputs)
    yield from _timers(world, inputs)


def requests(world: IdWorld, *, is_two_phase: bool) -> Iterator[TransactionRequest]:
    """Every request that a client could have sent."""
    phases = ((False, False), (True, False), (True, True)) if is_two_phase else ((False, False),)
    for phase in phases:
        yield InitTransactionalId(TIMEOUT_MS, -1, -1, *phase)
    for identity in world.given:
        pair = identity[:2]
        for phase in phases:
            yield InitTransactionalId(TIMEOUT_MS, *pair, *phase)
        for partition in PARTITIONS:
            yield AddPartitions(*pair, frozenset({partition}))
        for is_commit in (True, False):
            for version in (0, 2):
                yield EndTransaction(*pair, is_commit, version)


def _asked(world: IdWorld, request: TransactionRequest, inputs: StepInputs) -> Move:
    taken = {reply_id for reply_id, _ in world.asked}
    reply_id = next(number for number in range(1, 99) if number not in taken)
    asked = world._replace(asked=(*world.asked, (reply_id, request)))
    return _happened(f"{request}", asked, Requested(reply_id, request), inputs, requests=1)


def _commit(world: IdWorld, inputs: StepInputs) -> Move:
    """Let the oldest record under way become committed. The core learns of it, if it waits for it."""
    is_awaited = world.state.storing is not None and len(world.inflight) == 1
    after = _committed(world, 1)
    if is_awaited:
        return _happened("commit", after, TransactionStored(), inputs)
    judge_state(after, inputs)
    return Move("commit", after)


def _committed(world: IdWorld, count: int) -> IdWorld:
    for record in world.inflight[:count]:
        world = committed(world, record.value, record.by)
    return world._replace(inflight=world.inflight[count:])


def _failures(world: IdWorld, inputs: StepInputs) -> Iterator[Move]:
    """Let the newest record be refused, or its outcome be unknown."""
    *others, record = world.inflight
    refused = world._replace(inflight=tuple(others))
    lost = TransactionNotStored(ErrorCode.NOT_ENOUGH_REPLICAS)
    yield _happened("refused", refused, lost, inputs, faults=1)
    if not record.is_unknown:
        unknown = world._replace(inflight=(*others, record._replace(is_unknown=True)))
        event = TransactionNotStored(ErrorCode.REQUEST_TIMED_OUT, may_commit=True)
        yield _happened("unknown", unknown, event, inputs, faults=1)


def _crashes(world: IdWorld, inputs: StepInputs) -> Iterator[Move]:
    """Move the coordinator; what is under way is in the log of the next, or lost."""
    for count in range(len(world.inflight) + 1):
        yield _loaded(f"crash, {count} records kept", _committed(world, count), inputs)


def _loaded(name: str, world: IdWorld, inputs: StepInputs) -> Move:
    world = world._replace(
        state=TransactionalIdState(),
        inflight=(),
        asked=(),
        sent=frozenset(),
        timers=frozenset(),
    )
    if world.durable is not None:
        value = read_transaction_value(write_transaction_value(world.durable))
        state, effects = transactional_id.load(value, NOW)
        world, _ = _performed(world._replace(state=state), effects)
    judge_state(world, inputs)
    return Move(name, world, faults=1)


def _markers(world: IdWorld, inputs: StepInputs) -> Iterator[Move]:
    for marker in sorted(world.network - world.written):
        yield Move(f"write {marker}", world._replace(written=world.written | {marker}))
    for marker in sorted(world.written):
        event = MarkerAnswered(*marker)
        yield _happened(f"answer of {marker}", world, event, inputs)


def _timers(world: IdWorld, inputs: StepInputs) -> Iterator[Move]:
    if "timeout" in world.timers:
        fired = world._replace(timers=world.timers - {"timeout"})
        yield _happened("timeout", fired, TimerFired(TIMEOUT), inputs, LATER)
    if "completion" in world.timers:
        fired = world._replace(timers=world.timers - {"completion"})
        yield _happened("completion", fired, TimerFired(COMPLETION), inputs)
    for held in world.state.held:
        key = TransactionTimer(TransactionTimerKind.HOLD, held.reply_id)
        yield _happened(f"held {held.reply_id}", world, TimerFired(key), inputs, LATER)


def _happened(
    name: str,
    world: IdWorld,
    event: TransactionEvent,
    inputs: StepInputs,
    now: Now = NOW,
    *,
    requests: int = 0,
    faults: int = 0,
) -> Move:
    state, effects = transactional_id.step(world.state, event, now, inputs)
    after, takes_id = _performed(world._replace(state=state), effects)
    judge_state(after, inputs)
    return Move(name, after, requests, faults, takes_id)


def _performed(world: IdWorld, effects: list[TransactionEffect]) -> tuple[IdWorld, bool]:
    """Carry out effects, in their order."""
    takes_id = False
    for effect in effects:
        match effect:
            case Reply(reply_id, answer):
                request = dict(world.asked)[reply_id]
                rest = tuple(each for each in world.asked if each[0] != reply_id)
                world = answered(world._replace(asked=rest), request, answer)
            case SendMarkers():
                world = markers_sent(world, effect)
            case TakeProducerId():
                takes_id = True
            case SetTimer(key) if key.kind is not TransactionTimerKind.HOLD:
                world = world._replace(timers=world.timers | {key.kind.value})
            case CancelTimer(key) if key.kind is not TransactionTimerKind.HOLD:
                world = world._replace(timers=world.timers - {key.kind.value})
            case StoreTransaction(value):
                storing = world.state.storing
                by = dict(world.asked).get(storing.reply_id or 0) if storing is not None else None
                record = InflightRecord(value, by)
                world = world._replace(inflight=(*world.inflight, record))
            case _:
                pass
    return world, takes_id
