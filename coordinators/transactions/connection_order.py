"""The order of connections: how a delayed EndTxn of the first protocol generation is kept from ending the next transaction.

Such a request names producer id and epoch only, and both stay the same over many transactions. A client that repeats a
request does so on a newer connection. So for each session the newest connection that has spoken for it is remembered; a
request from an older one has no effect, and its connection is closed. A client that is alive comes again on a new one.

Connections from before this broker was elected count as older than any other: what they hold may have been answered by the
coordinator in between.
"""

from __future__ import annotations

from echoless.coordinators.transactions.config import StepInputs
from echoless.coordinators.transactions.requests import AddPartitions, EndTransaction
from echoless.coordinators.transactions.state import SessionConnection, TransactionalIdState


def is_overtaken(
    state: TransactionalIdState, request: AddPartitions | EndTransaction, given: StepInputs
) -> bool:
    """Whether a newer connection may have spoken for the session of the request."""
    if request.connection is None or not given.config.keeps_connection_order:
        return False
    if request.connection <= given.elected_connection:
        return True
    newest = state.newest
    return newest is not None and newest[:2] == request[:2] and request.connection < newest[2]


def with_connection(
    state: TransactionalIdState, request: AddPartitions | EndTransaction
) -> TransactionalIdState:
    """Remember the connection, if the request is of the current session."""
    value = state.value
    if request.connection is None or value is None or request[:2] != value[:2]:
        return state
    newest = SessionConnection(*request[:2], request.connection)
    return state if state.newest == newest else state._replace(newest=newest)
