"""Produce (0), versions 3-13: the request this broker exists for.

`broker/records/` appends its batches and decides when it is answered, for the native port too; what is here belongs to
the Kafka port: versions, errors in rows, rights.

v3 magic 2 only; v5 log_start_offset; v7 zstd; v8 record errors and messages; v9 flexible; v10 the
current leader with code 6, and its address; v13 topic ids. ApiVersions lists v0, because librdkafka stops
compressing otherwise (KAFKA-18659), but bodies of v0-2 are refused. v11 120 for a transactional batch that may be aborted; v12
adds the partitions of transactional batches to their transaction (`broker/records/transactional.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echoless.broker.config.names import IdempotentWriteAcl
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.permits import denied, denied_topics, on_topics
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, CloseConnectionError, Outcome, Request
from echoless.broker.records.in_flight import ACKS_NONE, Encoding, InFlightProduce
from echoless.broker.records.produce import has_producer_id
from echoless.broker.records.refused_rows import refused_whole
from echoless.broker.records.request import produce
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.produce import (
    PartitionProduced,
    encode_produce_response,
    encode_produced,
)
from echoless.protocol.produce_request import ProduceRequest

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)
_ENCODING: Final = Encoding(encode_produced, encode_produce_response)


def handle(request: Request, services: Services) -> Outcome:
    """Appends every batch; answers as soon as `acks` allows. See `broker/records/request.py`."""
    body: ProduceRequest = request.body
    flight = InFlightProduce(services.produce, request, body.acks, body.timeout_ms, _ENCODING)
    outcome: Outcome = produce(flight, body.topics, body.transactional_id)
    return outcome


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition. Raises `CloseConnectionError` if acks is 0."""
    if refusal.request.body.acks == ACKS_NONE:
        raise CloseConnectionError(str(refusal.error))
    code, message = refusal.error.code, refusal.error.message
    topics = [
        (key, [PartitionProduced(index, code, error_message=message) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_produce_response(refusal.request.version, topics)


def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
    """Needs Write on each topic and on the transactional id; IdempotentWrite if that is configured.

    A request that is refused as a whole because of its transaction is refused by the handler.
    """
    body: ProduceRequest = request.body
    write, topics = AclOperation.WRITE, body.topics
    if body.transactional_id is not None and not rights.may(
        write, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ):
        return Denial(denied(write, ResourceType.TRANSACTIONAL_ID))
    if (
        services.config.idempotent_write_acl is IdempotentWriteAcl.CLUSTER
        and not rights.may_with_cluster(AclOperation.IDEMPOTENT_WRITE)
        and any(has_producer_id(records) for _, rows in topics for _, records in rows)
    ):
        return Denial(denied(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
    denial = denied_topics(write, (topic for topic, _ in topics), rights, services, request.judged)
    if denial is None:
        return None
    are_served = services.produce.ask is not None
    refused = refused_whole(topics, body.transactional_id, are_served=are_served)
    return denial if refused is None else None


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("responses", "partition_responses"),
    permit=on_topics(AclOperation.WRITE, permit),
)
