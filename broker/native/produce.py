"""`produce`: one batch for one partition, judged and acknowledged as on the Kafka port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers.produce import API
from echoless.broker.native.acknowledged import Acknowledged
from echoless.broker.native.failure import failure
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import (
    NO_RESPONSE,
    NeedsFrameUntil,
    NoResponse,
    Peer,
    Request,
)
from echoless.broker.records.acknowledgement import (
    Acknowledgement,
    answer_nothing,
    is_unacknowledged,
)
from echoless.broker.records.produce import (
    ACKS_NONE,
    TRANSACTIONS_REFUSED,
    Stored,
    Unopened,
    Write,
    is_transactional,
    open_and_append,
    produce_batch,
    unless_deposed,
)
from echoless.protocol.errors import KafkaError
from echoless.protocol.headers import RequestHeader
from echoless.protocol.native.messages import Produce
from echoless.protocol.produce import PartitionProduced, TopicProduced
from echoless.protocol.record_batch import ATTRIBUTES_LOW_POSITION, HEADER_SIZE, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from echoless.broker.services import Services

Answer = dict[str, Any] | Acknowledged
_KEY: Final = API.key
_VERSION: Final = API.version_max
_new: Final = tuple.__new__
"""Makes a named tuple in a third of the time of calling its class."""


def handle(
    message: Produce, peer: Peer, services: Services
) -> Answer | NoResponse | Awaitable[Answer | NoResponse]:
    """Acts like the newest Produce version; acks=0 answers nothing and closes the connection on errors."""
    fields = (_KEY, _VERSION, message.correlation_id, peer.client_id, 0)
    request = Request(_new(RequestHeader, fields), message, peer)
    write = Write(services.produce, request, _VERSION, message.acks)
    if peer.order.appends.places or message.unbuilt is not None:
        return _acknowledge_later(write, lambda: _append_in_turn(write))
    outcome = _append_at_once(write)
    if isinstance(outcome, Unopened):
        return _acknowledge_later(write, partial(open_and_append, write, outcome))
    return _acknowledge(write, outcome)


def _append_at_once(write: Write) -> PartitionProduced | Stored | Unopened:
    message: Produce = write.request.body
    batch = message.batch
    if (
        batch is not None
        and len(batch) >= HEADER_SIZE
        and batch[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT
        and is_transactional(batch)
    ):
        return TRANSACTIONS_REFUSED._replace(partition=message.partition)
    return produce_batch(write, message.topic, message.partition, batch)


async def _append_in_turn(write: Write) -> PartitionProduced | Stored:
    request = write.request
    if request.body.unbuilt is not None:
        built = await write.parts.thread.run(request.peer.host, request.body.built)
        request = replace(request, body=built)
    write = write.now(request)
    outcome = _append_at_once(write)
    if isinstance(outcome, Unopened):
        return await open_and_append(write, outcome)
    return outcome


def _acknowledge_later(
    write: Write, append: Callable[[], Coroutine[Any, Any, PartitionProduced | Stored]]
) -> NeedsFrameUntil:
    place = write.request.peer.order.appends.enter()
    return NeedsFrameUntil(_acknowledge_when(write, append, place), place.left)


async def _acknowledge_when(
    write: Write,
    append: Callable[[], Coroutine[Any, Any, PartitionProduced | Stored]],
    place: LanePlace,
) -> Answer | NoResponse:
    with place:
        await place.come()
        outcome = await append()
    if write.acks != ACKS_NONE:
        outcome = unless_deposed(outcome)
    answer = _acknowledge(write, outcome)
    del write, append  # and with it the records, while the acknowledgement waits
    return await answer if isinstance(answer, Awaitable) else answer


def _acknowledge(
    write: Write, outcome: PartitionProduced | Stored
) -> Answer | NoResponse | Awaitable[Answer]:
    message: Produce = write.request.body
    if not isinstance(outcome, Stored):
        if message.acks == ACKS_NONE:
            answer_nothing([TopicProduced(message.topic, [outcome])])
        return _answer(outcome, is_duplicate=False)
    if message.acks == ACKS_NONE:
        return NO_RESPONSE
    if is_unacknowledged(message.acks, outcome):
        topics = [TopicProduced(message.topic, [outcome.produced])]
        timeout_s, deadlines = message.timeout_ms / 1000, write.parts.deadlines
        acknowledgement = Acknowledgement(message.acks, topics, [outcome], timeout_s, deadlines)
        return acknowledgement.then(partial(_acknowledged, is_duplicate=outcome.is_duplicate))
    return _answer(outcome.produced, is_duplicate=outcome.is_duplicate)


def _acknowledged(topics: list[TopicProduced], *, is_duplicate: bool) -> Answer:
    (topic,) = topics
    return _answer(topic.partitions[0], is_duplicate=is_duplicate)


def _answer(produced: PartitionProduced, *, is_duplicate: bool) -> Answer:
    _, error_code, base_offset, append_time, log_start_offset = produced[:5]
    outcome = (base_offset, append_time, log_start_offset, is_duplicate)
    acknowledged: Acknowledged = _new(Acknowledged, outcome)
    if not error_code:
        return acknowledged
    answer = acknowledged.fields()
    if produced.current_leader is not None:
        leader_id, leader_epoch = produced.current_leader
        answer |= {"leader_id": leader_id, "leader_epoch": leader_epoch}
    message = produced.error_message or produced.reason
    return answer | failure(KafkaError(error_code, message))
