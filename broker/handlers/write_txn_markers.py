"""WriteTxnMarkers (27), versions 1-2: ends transactions on partitions that this broker leads, for an administrator.

v2 (KIP-1228): the generation of the protocol that the transaction is of. In the second, the marker of a transaction has a higher
epoch than its batches (`broker/records/markers.py`); tools say 0, which asks for nothing. Version 0, of Kafka before 2.8, has no
client any more.

Kafka's coordinators send it to leaders; Echoless's have a message of their own (`write_markers`), so what comes here is of a
tool that ends a hanging transaction (`Admin.abortTransaction`). Such a marker has no transaction number, and is decided on by
epochs alone (`protocol/marker_decision.py`). Markers of one producer share a row of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.permits import denied
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, Request
from echoless.broker.records.markers import NO_STATE_PARTITION
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.control_records import NO_NUMBER
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionMarker
from echoless.protocol.state_records.transaction_records import TransactionPartition
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)
_DENIAL: Final = Denial(denied(AclOperation.ALTER, ResourceType.CLUSTER))


class WritableTxnMarker(NamedTuple):
    """The fields of all versions."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[Any, ...]
    coordinator_epoch: int
    transaction_version: int = 0


async def handle(request: Request, services: Services) -> Answer:
    """Answers once each marker is committed, or refused."""
    wanted = [typed(WritableTxnMarker, one) for one in request.body.markers]
    markers = [_marker(one) for one in wanted if _names_producer(one)]
    codes = iter(await services.markers.write(markers))
    found: list[Iterable[ErrorCode]] = [
        next(codes) if _names_producer(one) else _same(one, ErrorCode.INVALID_REQUEST)
        for one in wanted
    ]
    return _answer(zip(wanted, found, strict=True))


def _names_producer(wanted: WritableTxnMarker) -> bool:
    return wanted.producer_id >= 0 and wanted.producer_epoch >= 0


def _marker(wanted: WritableTxnMarker) -> TransactionMarker:
    partitions = [
        TransactionPartition(topic.name, index)
        for topic in wanted.topics
        for index in topic.partition_indexes
    ]
    return TransactionMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        number=NO_NUMBER,
        is_commit=wanted.transaction_result,
        state_partition=NO_STATE_PARTITION,
        coordinator_epoch=wanted.coordinator_epoch,
        client_version=wanted.transaction_version,
        partitions=tuple(partitions),
    )


def _same(wanted: Any, code: ErrorCode) -> Iterator[ErrorCode]:
    return (code for topic in wanted.topics for _ in topic.partition_indexes)


def _answer(rows: Iterable[tuple[Any, Iterable[ErrorCode]]]) -> Answer:
    """The response, from each marker with the codes of its partitions."""
    by_producer: dict[int, list[dict[str, Any]]] = {}
    for wanted, codes in rows:
        left = iter(codes)
        topics = by_producer.setdefault(wanted.producer_id, [])
        for topic in wanted.topics:
            partitions = [
                {"partition_index": index, "error_code": next(left)}
                for index in topic.partition_indexes
            ]
            topics.append({"name": topic.name, "partitions": partitions})
    return {
        "markers": [{"producer_id": one, "topics": topics} for one, topics in by_producer.items()]
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error for each partition."""
    return _answer([(one, _same(one, refusal.error.code)) for one in refusal.request.body.markers])


def permit(_request: Request, rights: Rights, _services: Services) -> Denial | None:
    """Needs Alter on the cluster, or ClusterAction as brokers have it."""
    if rights.may_with_cluster(AclOperation.ALTER):
        return None
    return None if rights.may_with_cluster(AclOperation.CLUSTER_ACTION) else _DENIAL


SERVED = Served(API, handle, refuse, Names.PARTITIONS, permit=permit)
