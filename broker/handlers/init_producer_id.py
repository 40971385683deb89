"""InitProducerId (22), versions 0-6: a new producer id with epoch 0; of a transactional id the identity of its session.

v2 flexible; v3 (KIP-360) the client may name its old id and epoch, which only matters to
transactions; v4 PRODUCER_FENCED and v5 TRANSACTION_ABORTABLE are for transactions too; v6 (KIP-939) is for two-phase commit, and listed only where the setting allows it. Without a
transactional id every call gets a new id, from the block this broker has claimed; with one its coordinator decides
(`coordinators/transactions/initialisations.py`).

Where transactions are not served, a transactional id is refused with an error that clients never retry.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from echoless.broker.config.names import IdempotentWriteAcl
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.permits import denied
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.metadata.producer_id_block import ProducerIdBlockError
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, Outcome, Peer, Request
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.init_producer_id import (
    InitProducerIdRequest,
    encode_init_producer_id_response,
)
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from echoless.broker.authentication.producer_binding import ProducerBinding
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services
    from echoless.coordinators.transactions.answers import TransactionAnswer

API = declared(__name__)

_FENCED_FROM = 4


def handle(request: Request, services: Services) -> Outcome:
    """The next producer id; waits only while the next block is still being claimed."""
    body: InitProducerIdRequest = request.body
    if body.transactional_id:
        return _init_transactional_id(request, body, services)
    if body.transactional_id == "" or (body.producer_id == NO_PRODUCER_ID) != (
        body.producer_epoch == NO_PRODUCER_EPOCH
    ):
        return _answer(request, ErrorCode.INVALID_REQUEST)
    issued = next_producer_id(services, request.peer)
    if isinstance(issued, int):
        return _answer(request, ErrorCode.NONE, issued, 0)
    return _answer_later(request, issued)


def _init_transactional_id(
    request: Request, body: InitProducerIdRequest, services: Services
) -> Outcome:
    """The identity that the id's coordinator gives; where transactions are not served, an error that no client retries."""
    if not services.features.transaction_version:
        return _answer(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    from echoless.broker.handlers.group_answers import packed
    from echoless.broker.handlers.transaction_notes import note_answer
    from echoless.broker.handlers.transaction_rows import code_of_version
    from echoless.coordinators.transactions.requests import InitTransactionalId

    name = body.transactional_id
    assert name is not None
    asked = InitTransactionalId(
        *(body.timeout_ms, body.producer_id, body.producer_epoch),
        body.enable2_pc,
        body.keep_prepared_txn,
    )

    def pack(answer: TransactionAnswer) -> bytes:
        note_answer(services, request, name, asked, answer)
        code = code_of_version(answer.error_code, request.version, fenced_from=_FENCED_FROM)
        return encode_init_producer_id_response(
            *(request.version, code, answer.producer_id, answer.producer_epoch),
            (answer.kept_producer_id, answer.kept_producer_epoch),
        )

    return packed(services.transactions.ask(name, asked), pack)


def next_producer_id(services: Services, peer: Peer) -> int | Awaitable[int]:
    """A producer id that was never used before, for either port; bound to the client, if ids are.

    Awaiting it raises `KafkaError`: COORDINATOR_LOAD_IN_PROGRESS while no block can be claimed,
    UNKNOWN_SERVER_ERROR when none ever can.
    """
    producer_ids, binding = services.producer_ids, services.produce.binding
    ready = producer_ids.next_producer_id()
    if ready is not None and binding is None:
        return ready
    issued = _wait_for_block(producer_ids) if ready is None else _ready(ready)
    return issued if binding is None else _bound(issued, binding, peer)


async def _ready(producer_id: int) -> int:
    return producer_id


async def _bound(issued: Awaitable[int], binding: ProducerBinding, peer: Peer) -> int:
    return binding.bound(await issued, peer.principal)


async def _wait_for_block(producer_ids: ProducerIds) -> int:
    try:
        return await producer_ids.wait_for_producer_id()
    except ProducerIdBlockError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


async def _answer_later(request: Request, issued: Awaitable[int]) -> Answer:
    try:
        return _answer(request, ErrorCode.NONE, await issued, 0)
    except KafkaError as error:
        return _answer(request, error.code)


def _answer(
    request: Request,
    error_code: ErrorCode,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytes:
    return encode_init_producer_id_response(
        request.version, error_code, producer_id, producer_epoch
    )


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no id."""
    return _answer(refusal.request, refusal.error.code)


def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
    """Needs Write on the transactional id, and TwoPhaseCommit for that; without an id, IdempotentWrite or, by default, Write on any topic."""
    transactional_id = request.body.transactional_id
    if transactional_id is None:
        return (
            None
            if may_be_idempotent(rights, services)
            else Denial(denied(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
        )
    needed = [AclOperation.WRITE]
    if request.body.enable2_pc:
        needed.append(AclOperation.TWO_PHASE_COMMIT)
    for operation in needed:
        if not rights.may(operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return Denial(denied(operation, ResourceType.TRANSACTIONAL_ID))
    return None


def may_be_idempotent(rights: Rights, services: Services) -> bool:
    """Whether the client may have a producer id, on either port."""
    if rights.may_with_cluster(AclOperation.IDEMPOTENT_WRITE):
        return True
    if services.config.idempotent_write_acl is IdempotentWriteAcl.CLUSTER:
        return False
    return rights.may_with_any(AclOperation.WRITE, ResourceType.TOPIC)


SERVED = Served(API, handle, refuse, permit=permit)
