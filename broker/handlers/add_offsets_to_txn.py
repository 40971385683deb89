"""AddOffsetsToTxn (25), versions 0-4: puts the offsets of a consumer group into a transaction.

What is added is the group's partition of `__consumer_offsets`. v2: PRODUCER_FENCED. v3: flexible. v4 (KIP-890):
TRANSACTION_ABORTABLE, which is not answered here.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import translated
from echoless.broker.handlers.permits import denied
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.handlers.transaction_notes import note_answer
from echoless.broker.handlers.transaction_rows import code_of_version
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.requests import AddPartitions
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.state_records.partitioner import partition_of
from echoless.protocol.state_records.transaction_records import TransactionPartition

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)

_FENCED_FROM: Final = 2


def handle(request: Request, services: Services) -> Outcome:
    """A code."""
    if services.groups.topic.partition_count is None:
        return _when_created(request, services)
    return _ask(request, services)


async def _when_created(request: Request, services: Services) -> Answer:
    try:
        await services.groups.topic.until_created()
    except KafkaError as error:
        return {"error_code": error.code}
    answered = _ask(request, services)
    return await answered if isinstance(answered, Awaitable) else answered


def _ask(request: Request, services: Services) -> Outcome:
    body, name = request.body, services.groups.topic.name
    topic = services.registry.topics.get(name)
    if topic is None:
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    index = partition_of(body.group_id, topic.partition_count)
    asked = AddPartitions(
        body.producer_id,
        body.producer_epoch,
        frozenset({TransactionPartition(name, index, topic.topic_id.bytes)}),
        connection=request.peer.connection_id,
    )

    def fields(answer: TransactionAnswer) -> dict[str, Any]:
        note_answer(services, request, body.transactional_id, asked, answer)
        code = code_of_version(answer.error_code, request.version, fenced_from=_FENCED_FROM)
        return {"error_code": code}

    return translated(services.transactions.ask(body.transactional_id, asked), fields)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error."""
    return {"error_code": refusal.error.code}


def permit(request: Request, rights: Rights, _services: Services) -> Denial | None:
    """Needs Write on the transactional id, and Read on the group."""
    body = request.body
    for operation, resource_type, name in (
        (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id),
        (AclOperation.READ, ResourceType.GROUP, body.group_id),
    ):
        if not rights.may(operation, resource_type, name):
            return Denial(denied(operation, resource_type))
    return None


SERVED = Served(API, handle, refuse, permit=permit)
