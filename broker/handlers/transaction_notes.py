"""Requests of clients about transactions, noted for `/decisions` once they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from echoless.broker.decisions.events import TransactionStep, TransactionStepName
from echoless.broker.decisions.transaction_steps import new_step
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.transactions.noted import named_step
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionValue

if TYPE_CHECKING:
    from echoless.broker.network.request import Request
    from echoless.broker.services import Services
    from echoless.coordinators.transactions.answers import TransactionAnswer


_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class GroupOffsets(Protocol):
    """The part of a TxnOffsetCommit that is noted."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def group_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


def note_answer(
    services: Services,
    request: Request,
    transactional_id: str,
    asked: InitTransactionalId | AddPartitions | EndTransaction,
    answer: TransactionAnswer,
) -> None:
    """Notes a client's request about an id, once it is answered; not if no coordinator is there to decide anything."""
    if answer.error_code in _NOT_READY:
        return
    value = _value_of(services, transactional_id)
    step = named_step(asked, answer, value, services.produce.clock.wall_ms())
    _note(services, request, transactional_id, step)


def note_offsets(
    services: Services, request: Request, body: GroupOffsets, codes: Sequence[ErrorCode]
) -> None:
    """Notes that a group's positions have become part of a transaction, or the first error of them."""
    code = next(filter(None, codes), ErrorCode.NONE)
    is_stored = code is ErrorCode.NONE
    step = TransactionStepName.OFFSETS if is_stored else TransactionStepName.REFUSE
    identity = body.producer_id, body.producer_epoch
    made = new_step(services.produce.clock.wall_ms(), step, identity, (), error_code=code)
    made = made._replace(reason=f"of group {body.group_id}")
    _note(services, request, body.transactional_id, made)


def _note(
    services: Services, request: Request, transactional_id: str, step: TransactionStep
) -> None:
    peer = request.peer
    services.produce.decisions.record_transaction(
        step._replace(
            transactional_id=transactional_id,
            api=API_BY_KEY[request.api_key].name,
            client_id=request.client_id,
            address=peer.address,
            principal=peer.principal,
            connection_id=peer.connection_id,
            correlation_id=request.correlation_id,
        )
    )


def _value_of(services: Services, transactional_id: str) -> TransactionValue | None:
    state = services.transactions.look_at(transactional_id)
    return None if isinstance(state, ErrorCode) else state.value
