"""AddPartitionsToTxn (24), versions 0-5: puts partitions into the transaction of a transactional id.

v0-3 are for clients: one transaction, whose partitions are added all or none. v2: PRODUCER_FENCED. v3: flexible. v4
(KIP-890) is for brokers of Kafka: many transactions, and `verify_only`, which only looks. v5: TRANSACTION_ABORTABLE. Echoless's
own brokers use `add_or_verify` instead (`broker/native/add_or_verify.py`). As in Kafka, brokers get that code in version 4, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import packed, translated, with_rows
from echoless.broker.handlers.permits import may, rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.transaction_notes import note_answer
from echoless.broker.handlers.transaction_rows import (
    EPOCH_BUMP_VERSION,
    PARTITIONS_MAX,
    code_of_version,
    count_of,
    located,
    topic_rows,
)
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import ROWS_PER_TURN
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.requests import AddPartitions, VerifyPartitions
from echoless.protocol.acl import CLUSTER_NAME, AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionPartition
from echoless.protocol.transaction_answers import encode_add_partitions_response

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)

BROKERS_FROM: Final = 4
"""The first version that brokers send."""
_FENCED_FROM: Final = 2
_ASKED_AT_ONCE: Final = 100
"""Transactions that are asked about in one step: each is a task, and thousands of them would hold the loop."""
_Codes = dict[tuple[str, int], ErrorCode]


def handle(request: Request, services: Services) -> Outcome:
    """A code for each partition."""
    if request.version >= BROKERS_FROM:
        return _for_brokers(request, services)
    body, rights = request.body, rights_of(request, services)
    transactional_id, topics = (
        body.v3_and_below_transactional_id,
        body.v3_and_below_topics,
    )
    if not may(rights, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _all(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if count_of(topics) > PARTITIONS_MAX:
        return _all(topics, ErrorCode.INVALID_REQUEST)
    partitions, errors = _judged(topics, rights, services)
    if errors:
        return _rows(topics, errors, ErrorCode.OPERATION_NOT_ATTEMPTED)
    asked = AddPartitions(
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        partitions,
        connection=request.peer.connection_id,
    )

    def code_of(answer: TransactionAnswer) -> ErrorCode:
        note_answer(services, request, transactional_id, asked, answer)
        return code_of_version(answer.error_code, request.version, fenced_from=_FENCED_FROM)

    answered = services.transactions.ask(transactional_id, asked)
    if len(partitions) > ROWS_PER_TURN:
        return translated(answered, lambda answer: _all(topics, code_of(answer)))
    named = [(topic.name, topic.partitions) for topic in topics]
    version = request.version
    return packed(
        answered, lambda answer: encode_add_partitions_response(version, named, code_of(answer))
    )


def _judged(
    topics: Iterable[Any], rights: Rights | None, services: Services
) -> tuple[frozenset[TransactionPartition], _Codes]:
    """The partitions, and the errors of those that the client may not add, or that do not exist."""
    places: list[TransactionPartition] = []
    errors: _Codes = {}
    allowed: dict[str, bool] = {}
    for name, index, place in located(topics, services):
        if name not in allowed:
            allowed[name] = name not in INTERNAL_TOPICS and may(
                rights, AclOperation.WRITE, ResourceType.TOPIC, name
            )
        if not allowed[name]:
            errors[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif place is None:
            errors[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            places.append(place)
    return frozenset(places), errors


async def _for_brokers(request: Request, services: Services) -> Answer:
    rights, transactions = rights_of(request, services), request.body.transactions
    if not may(rights, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused_to_brokers(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if sum([count_of(one.topics) for one in transactions]) > PARTITIONS_MAX:
        return _refused_to_brokers(ErrorCode.INVALID_REQUEST)
    results: list[dict[str, Any]] = []
    for first in range(0, len(transactions), _ASKED_AT_ONCE):
        some = transactions[first : first + _ASKED_AT_ONCE]
        results += await asyncio.gather(*(_ask(one, services) for one in some))
        await asyncio.sleep(0)
    fields = {"error_code": ErrorCode.NONE, "results_by_transaction": results}
    return with_rows(fields, range(sum([count_of(one.topics) for one in transactions])))


async def _ask(one: Any, services: Services) -> dict[str, Any]:
    """The row of one transaction, whose partitions are added or looked at."""
    places = {(name, index): place for name, index, place in located(one.topics, services)}
    partitions = frozenset(place for place in places.values() if place is not None)
    identity = one.producer_id, one.producer_epoch
    asked: AddPartitions | VerifyPartitions
    if None in places.values():
        return _result(
            one,
            lambda *row: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if places[row] is None
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            ),
        )
    if one.verify_only:
        asked = VerifyPartitions(*identity, partitions)
    else:
        asked = AddPartitions(*identity, partitions, EPOCH_BUMP_VERSION)
    answered = services.transactions.ask(one.transactional_id, asked)
    answer = await answered if isinstance(answered, Awaitable) else answered

    def code_of(name: str, index: int) -> ErrorCode:
        code = answer.error_code
        if code is ErrorCode.NONE and places[name, index] in answer.abortable:
            code = ErrorCode.TRANSACTION_ABORTABLE
        return code

    return _result(one, code_of)


def _result(one: Any, code_of: Any) -> dict[str, Any]:
    rows = topic_rows(one.topics, code_of)
    return {"transactional_id": one.transactional_id, "topic_results": rows}


def _rows(topics: Any, codes: _Codes, others: ErrorCode) -> dict[str, Any]:
    rows = topic_rows(topics, lambda *row: codes.get(row, others))
    return with_rows({"results_by_topic_v3_and_below": rows}, range(count_of(topics)))


def _all(topics: Any, code: ErrorCode) -> dict[str, Any]:
    return _rows(topics, {}, code)


def _refused_to_brokers(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "results_by_transaction": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each partition; on top for brokers."""
    request, code = refusal.request, refusal.error.code
    if request.version >= BROKERS_FROM:
        return _refused_to_brokers(code)
    return _all(request.body.v3_and_below_topics, code)


SERVED = Served(API, handle, refuse, Names.PARTITIONS, permit=permits.asked_by_handler)
