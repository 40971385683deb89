"""`produce`: one batch for one partition, judged and acknowledged as on the Kafka port."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from broker.acknowledgement import acknowledged, answer_nothing, unacknowledged
from broker.handlers.produce import API
from broker.native.failure import failure
from broker.produce import (
    ACKS_NONE,
    TRANSACTIONS_REFUSED,
    Stored,
    Write,
    is_transactional,
    produce_batch,
)
from broker.request import NO_RESPONSE, NeedsNoFrame, NoResponse, Peer, Request
from protocol.errors import KafkaError
from protocol.headers import RequestHeader
from protocol.native.messages import Produce
from protocol.produce import PartitionProduced, TopicProduced

if TYPE_CHECKING:
    from broker.broker import Broker


def handle(
    message: Produce, peer: Peer, broker: Broker
) -> dict[str, Any] | NoResponse | Awaitable[dict[str, Any]]:
    """As the newest Produce version does; acks=0 answers nothing and ends the connection on errors."""
    outcome = _produce(message, peer, broker)
    if not isinstance(outcome, Stored):
        if message.acks == ACKS_NONE:
            answer_nothing([TopicProduced(message.topic, [outcome])])
        return _answer(outcome, is_duplicate=False)
    if message.acks == ACKS_NONE:
        return NO_RESPONSE
    if unacknowledged(message.acks, [outcome]):
        topics = [TopicProduced(message.topic, [outcome.produced])]
        waits = acknowledged(message.acks, topics, [outcome], message.timeout_ms / 1000)
        return NeedsNoFrame(_answer_later(waits, is_duplicate=outcome.is_duplicate))
    return _answer(outcome.produced, is_duplicate=outcome.is_duplicate)


def _produce(message: Produce, peer: Peer, broker: Broker) -> PartitionProduced | Stored:
    if is_transactional(message.batch):
        return TRANSACTIONS_REFUSED._replace(partition=message.partition)
    header = RequestHeader(API.key, API.version_max, message.correlation_id, peer.client_id, 0)
    write = Write(
        broker,
        Request(header, message, peer),
        message.acks,
        broker.now_ms(),
        broker.clock.steady_ms(),
    )
    return produce_batch(write, message.topic, message.partition, message.batch)


async def _answer_later(
    topics: Awaitable[list[TopicProduced]], *, is_duplicate: bool
) -> dict[str, Any]:
    (topic,) = await topics
    return _answer(topic.partitions[0], is_duplicate=is_duplicate)


def _answer(produced: PartitionProduced, *, is_duplicate: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "base_offset": produced.base_offset,
        "log_append_time": produced.log_append_time,
        "log_start_offset": produced.log_start_offset,
        "duplicate": is_duplicate,
    }
    if produced.current_leader is not None:
        leader_id, leader_epoch = produced.current_leader
        answer |= {"leader_id": leader_id, "leader_epoch": leader_epoch}
    if produced.error_code:
        message = produced.error_message or produced.reason
        answer |= failure(KafkaError(produced.error_code, message))
    return answer
