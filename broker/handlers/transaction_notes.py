"""Requests of clients about transactions, noted for `/decisions` once they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from echoless.broker.decisions.decisions import CLIENT_ID_MAX
from echoless.broker.decisions.events import TransactionStep, TransactionStepName
from echoless.broker.decisions.transaction_steps import PARTITIONS_MAX, new_step
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.transactions.noted import begins, named_step
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


_Sender = tuple[int, str | None, str, str, int, int]
"""API key, client id, address, principal, connection id and correlation id of a request."""


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
    is_first = is_large = False
    if isinstance(asked, AddPartitions):
        is_first = begins(asked, _value_of(services, transactional_id))
        is_large = len(asked.partitions) > PARTITIONS_MAX
    now_ms = services.produce.clock.wall_ms()
    services.produce.decisions.record_transaction(
        *(_asked_step, _sender(request), transactional_id, asked, answer, now_ms, is_first),
        is_large=is_large or len(request.client_id or "") > CLIENT_ID_MAX,
    )


def _asked_step(  # noqa: PLR0917 - as it was recorded
    sender: _Sender,
    transactional_id: str,
    asked: InitTransactionalId | AddPartitions | EndTransaction,
    answer: TransactionAnswer,
    now_ms: int,
    is_first: bool,
) -> TransactionStep:
    return _sent(named_step(asked, answer, now_ms, is_first=is_first), transactional_id, sender)


def note_offsets(
    services: Services, request: Request, body: GroupOffsets, codes: Sequence[ErrorCode]
) -> None:
    """Notes that a group's positions have become part of a transaction, or the first error of them."""
    code = next(filter(None, codes), ErrorCode.NONE)
    services.produce.decisions.record_transaction(
        *(_offsets_step, _sender(request), body.transactional_id, body.group_id),
        *(body.producer_id, body.producer_epoch, code, services.produce.clock.wall_ms()),
        is_large=len(request.client_id or "") > CLIENT_ID_MAX,
    )


def _offsets_step(  # noqa: PLR0917 - as it was recorded
    sender: _Sender,
    transactional_id: str,
    group_id: str,
    producer_id: int,
    producer_epoch: int,
    code: ErrorCode,
    now_ms: int,
) -> TransactionStep:
    is_stored = code is ErrorCode.NONE
    step = TransactionStepName.OFFSETS if is_stored else TransactionStepName.REFUSE
    made = new_step(now_ms, step, (producer_id, producer_epoch), (), error_code=code)
    return _sent(made._replace(reason=f"of group {group_id}"), transactional_id, sender)


def _sender(request: Request) -> _Sender:
    peer = request.peer
    return (
        *(request.api_key, request.client_id, peer.address, peer.principal),
        *(peer.connection_id, request.correlation_id),
    )


def _sent(step: TransactionStep, transactional_id: str, sender: _Sender) -> TransactionStep:
    """The step with who has asked for it."""
    api_key, client_id, address, principal, connection_id, correlation_id = sender
    return step._replace(
        transactional_id=transactional_id,
        api=API_BY_KEY[api_key].name,
        client_id=client_id,
        address=address,
        principal=principal,
        connection_id=connection_id,
        correlation_id=correlation_id,
    )


def _value_of(services: Services, transactional_id: str) -> TransactionValue | None:
    state = services.transactions.look_at(transactional_id)
    return None if isinstance(state, ErrorCode) else state.value
