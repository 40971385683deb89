"""Produce (0), versions 3-13: the request this broker exists for.

Each partition on its own: `broker/produce.py` says what is checked and in which order,
`broker/acknowledgement.py` when the answer goes out. Both serve the native port too.

v3 magic 2 only; v5 log_start_offset; v7 zstd; v8 record errors and messages; v9 flexible; v10 the
current leader with code 6; v13 topic ids. ApiVersions lists v0, because librdkafka stops
compressing otherwise (KAFKA-18659), but bodies of v0-2 are refused. Transactional batches are
refused: transactions are not served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.acknowledgement import acknowledged, answer_nothing, unacknowledged
from broker.produce import (
    ACKS_NONE,
    TRANSACTIONS_REFUSED,
    Stored,
    Write,
    is_transactional,
    produce_batch,
)
from broker.request import NO_RESPONSE, Answer, Outcome, Request
from protocol.errors import ErrorCode
from protocol.produce import PartitionProduced, TopicProduced, encode_produce_response
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=0, name="produce", version_min=3, version_max=13, flexible_from=9, listed_min=0)

_TOPIC_IDS_FROM: Final = 13


def handle(request: Request, broker: Broker) -> Outcome:
    """Appends every batch at once; waits afterwards, and only where the acknowledgement has to."""
    body = request.body
    write = Write(broker, request, body.acks, broker.now_ms())
    refused = _refuse_transactions(request)
    repeated = _listed_twice(body.topic_data)
    topics: list[TopicProduced] = []
    stored: list[Stored] = []
    for topic_data in body.topic_data:
        topic = topic_data.topic_id if request.version >= _TOPIC_IDS_FROM else topic_data.name
        produced: dict[int, PartitionProduced] = {}
        for data in topic_data.partition_data:
            if refused is not None:
                outcome: PartitionProduced | Stored = refused._replace(partition=data.index)
            elif (topic, data.index) in repeated:
                outcome = _listed_twice_error(data.index)
            else:
                outcome = produce_batch(write, topic, data.index, data.records)
            if isinstance(outcome, Stored):
                stored.append(outcome)
                outcome = outcome.produced
            produced[data.index] = outcome
        topics.append(TopicProduced(topic, list(produced.values())))
    return _acknowledge(write, topics, stored)


# --- requests that are refused as a whole, or partitions that are listed twice ---


def _refuse_transactions(request: Request) -> PartitionProduced | None:
    """The error of every partition, if the request is part of a transaction.

    A transactional batch without a transactional id is refused with the same code in Kafka.
    """
    body = request.body
    if body.transactional_id is None and not any(
        is_transactional(data.records) for topic in body.topic_data for data in topic.partition_data
    ):
        return None
    return TRANSACTIONS_REFUSED


def _listed_twice(topics: Sequence[Any]) -> set[tuple[Any, int]]:
    """The partitions that stand in the request more than once; Kafka lets the last one win."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return set()
    seen: set[tuple[Any, int]] = set()
    repeated: set[tuple[Any, int]] = set()
    for topic in topics:
        key = getattr(topic, "name", None) or topic.topic_id
        for data in topic.partition_data:
            (repeated if (key, data.index) in seen else seen).add((key, data.index))
    return repeated


def _listed_twice_error(index: int) -> PartitionProduced:
    return PartitionProduced(
        index,
        ErrorCode.INVALID_REQUEST,
        error_message=f"partition {index} is listed twice in one request",
    )


# --- acknowledgements ---


def _acknowledge(write: Write, topics: list[TopicProduced], stored: list[Stored]) -> Outcome:
    if write.acks == ACKS_NONE:
        answer_nothing(topics)
        return NO_RESPONSE
    waits = unacknowledged(write.acks, stored)
    if not waits:
        return encode_produce_response(write.request.version, topics)
    timeout_s = write.request.body.timeout.total_seconds()
    return _answer_later(write, acknowledged(write.acks, topics, waits, timeout_s))


async def _answer_later(write: Write, topics: Awaitable[list[TopicProduced]]) -> Answer:
    return encode_produce_response(write.request.version, await topics)
