"""The order of connections, explored: a client of two transactions, connections that hold requests back, a coordinator that moves.

The client has one request under way. After any silence, or a refusal because the coordinator has moved, it sends the same
request on a new connection. A connection keeps its order; nothing else is ordered, and an old one may be read at any time.
Records and markers take no time here. Broken: an EndTxn of the first transaction ends one that the second has joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Requested
from echoless.coordinators.transactions.config import StepInputs, TransactionConfig
from echoless.coordinators.transactions.effects import (
    CloseConnection,
    SendMarkers,
    StoreTransaction,
    TransactionEffects,
)
from echoless.coordinators.transactions.events import MarkerAnswered, TransactionStored
from echoless.coordinators.transactions.requests import AddPartitions, EndTransaction
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.coordinators.transactions.transactional_id import load, step
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionStatus,
    TransactionValue,
)
from tests.coordinators.transactions.exploration.world import (
    NOW,
    PARTITIONS,
    TIMEOUT_MS,
    BrokenInvariantError,
)

_PRODUCER_ID: Final = 7
_TRANSACTIONS: Final = 2


class ClientRequest(NamedTuple):
    """A request of the client; `transaction` is what only the judge knows of it."""

    is_end: bool
    epoch: int
    transaction: int


class ClientConnection(NamedTuple):
    broker: int
    number: int
    """Counted by the broker as it accepts."""
    requests: tuple[ClientRequest, ...] = ()
    is_open: bool = True


class Client(NamedTuple):
    request: ClientRequest | None
    """The request under way; None if the client has finished or given up."""
    connection: int


class ConnectionWorld(NamedTuple):
    state: TransactionalIdState
    client: Client
    connections: tuple[ClientConnection, ...]
    accepted: tuple[int, int] = (0, 0)
    elected_at: tuple[int, int] = (0, 0)
    coordinator: int = 0
    moves: int = 0
    joined: int = 0
    """The newest transaction of the client that has joined the open one."""


class ConnectionBounds(NamedTuple):
    """The size of a search, and the rule that it tries."""

    connections: int
    moves: int
    version: int = 0
    keeps_order: bool = True


def explore(bounds: ConnectionBounds) -> int:
    """Visit every state; returns how many there are. Raises `BrokenInvariantError`."""
    value = TransactionValue(_PRODUCER_ID, 0, TIMEOUT_MS, TransactionStatus.EMPTY)
    world = ConnectionWorld(TransactionalIdState(value), Client(None, 0), ())
    start = _sent(world, ClientRequest(is_end=False, epoch=0, transaction=1))
    seen, queue = {start}, deque([start])
    while queue:
        for following in _following(queue.popleft(), bounds):
            if following not in seen:
                seen.add(following)
                queue.append(following)
    return len(seen)


def _following(world: ConnectionWorld, bounds: ConnectionBounds) -> Iterator[ConnectionWorld]:
    request = world.client.request
    if request is not None and len(world.connections) < bounds.connections:
        yield _sent(world, request)
    if world.moves < bounds.moves:
        yield _moved(world)
    for index, connection in enumerate(world.connections):
        if connection.is_open and connection.requests:
            yield _served(world, index, bounds)


def _sent(world: ConnectionWorld, request: ClientRequest) -> ConnectionWorld:
    """Send a request on a new connection to the coordinator."""
    broker = world.coordinator
    accepted = list(world.accepted)
    accepted[broker] += 1
    connection = ClientConnection(broker, accepted[broker], (request,))
    return world._replace(
        client=Client(request, len(world.connections)),
        connections=(*world.connections, connection),
        accepted=(accepted[0], accepted[1]),
    )


def _moved(world: ConnectionWorld) -> ConnectionWorld:
    """Elect the other broker, which loads the log."""
    broker = 1 - world.coordinator
    elected_at = list(world.elected_at)
    elected_at[broker] = world.accepted[broker]
    assert world.state.value is not None
    state, _ = load(world.state.value, NOW)
    return world._replace(
        state=state,
        coordinator=broker,
        moves=world.moves + 1,
        elected_at=(elected_at[0], elected_at[1]),
    )


def _served(world: ConnectionWorld, index: int, bounds: ConnectionBounds) -> ConnectionWorld:
    """Have a broker read the next request of a connection."""
    connection = world.connections[index]
    request, *rest = connection.requests
    world = _with(world, index, connection._replace(requests=tuple(rest)))
    if connection.broker != world.coordinator:
        return _heard(world, index, ErrorCode.NOT_COORDINATOR, request.epoch, bounds)
    config = TransactionConfig(
        transaction_version=bounds.version, hold_ms=0, keeps_connection_order=bounds.keeps_order
    )
    inputs = StepInputs(config, 8, world.elected_at[world.coordinator])
    before = world.state.value
    state, effects = _settled(world.state, _asked(request, connection.number, bounds), inputs)
    world = world._replace(state=state, joined=_joined(world, before, state.value, request))
    for effect in effects:
        if isinstance(effect, CloseConnection):
            return _with(world, index, connection._replace(requests=(), is_open=False))
        if isinstance(effect, Reply):
            answer = effect.answer
            epoch = max(request.epoch, answer.producer_epoch)
            return _heard(world, index, answer.error_code, epoch, bounds)
    return world


def _asked(
    request: ClientRequest, number: int, bounds: ConnectionBounds
) -> Requested[AddPartitions | EndTransaction]:
    pair = _PRODUCER_ID, request.epoch
    if request.is_end:
        end = EndTransaction(
            *pair, is_commit=True, client_version=bounds.version, connection=number
        )
        return Requested(1, end)
    partitions = frozenset(PARTITIONS[:1])
    return Requested(1, AddPartitions(*pair, partitions, bounds.version, number))


def _joined(
    world: ConnectionWorld,
    before: TransactionValue | None,
    after: TransactionValue | None,
    request: ClientRequest,
) -> int:
    """Judge what has happened; returns the newest transaction that has joined the open one."""
    was_open = before is not None and before.status is TransactionStatus.ONGOING
    is_open = after is not None and after.status is TransactionStatus.ONGOING
    if was_open and not is_open and request.transaction < world.joined:
        raise BrokenInvariantError("an EndTxn of the first transaction ends the second")
    if not request.is_end and is_open:
        return max(world.joined if was_open else 0, request.transaction)
    return world.joined


def _settled(
    state: TransactionalIdState,
    event: Requested[AddPartitions | EndTransaction],
    inputs: StepInputs,
) -> tuple[TransactionalIdState, TransactionEffects]:
    """Process a request, with all that follows from it at once."""
    state, found = step(state, event, NOW, inputs)
    todo = deque(found)
    while todo:
        effect = todo.popleft()
        more: TransactionEffects = []
        if isinstance(effect, StoreTransaction):
            state, more = step(state, TransactionStored(), NOW, inputs)
        elif isinstance(effect, SendMarkers):
            for partition in effect.partitions:
                marked = MarkerAnswered(effect.producer_id, effect.number, partition)
                state, more = step(state, marked, NOW, inputs)
        found += more
        todo += more
    return state, found


def _heard(
    world: ConnectionWorld, index: int, code: ErrorCode, epoch: int, bounds: ConnectionBounds
) -> ConnectionWorld:
    """Let the client hear an answer, if it still waits on this connection."""
    client = world.client
    if client.request is None or client.connection != index:
        return world
    if code is ErrorCode.NOT_COORDINATOR:
        is_possible = len(world.connections) < bounds.connections
        return _sent(world, client.request) if is_possible else _finished(world)
    following = _next(client.request, epoch)
    if code is not ErrorCode.NONE or following is None:
        return _finished(world)
    connection = world.connections[index]
    waiting = connection._replace(requests=(*connection.requests, following))
    return _with(world, index, waiting)._replace(client=Client(following, index))


def _next(request: ClientRequest, epoch: int) -> ClientRequest | None:
    if not request.is_end:
        return request._replace(is_end=True)
    if request.transaction == _TRANSACTIONS:
        return None
    return ClientRequest(is_end=False, epoch=epoch, transaction=request.transaction + 1)


def _finished(world: ConnectionWorld) -> ConnectionWorld:
    return world._replace(client=Client(None, 0))


def _with(world: ConnectionWorld, index: int, connection: ClientConnection) -> ConnectionWorld:
    connections = list(world.connections)
    connections[index] = connection
    return world._replace(connections=tuple(connections))
