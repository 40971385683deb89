"""Produce (0), versions 3-13: the request this broker exists for.

Each partition is handled on its own: `broker/records/produce.py` says what is checked and in which
order, `broker/records/acknowledgement.py` when the answer is sent. Both serve the native port too.

v3 magic 2 only; v5 log_start_offset; v7 zstd; v8 record errors and messages; v9 flexible; v10 the
current leader with code 6; v13 topic ids. ApiVersions lists v0, because librdkafka stops
compressing otherwise (KAFKA-18659), but bodies of v0-2 are refused. Transactional batches are
refused: transactions are not supported.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.config.names import IdempotentWriteAcl
from broker.handlers.merged_responses import Rows
from broker.handlers.permits import denied, denied_topics
from broker.handlers.refusals import Refusal
from broker.handlers.served import Names, Served
from broker.network.denial import Denial
from broker.network.request import (
    NO_RESPONSE,
    Answer,
    CloseConnectionError,
    NeedsFrameUntil,
    NeedsNoFrame,
    Outcome,
    Request,
)
from broker.network.turns import ROWS_PER_TURN, in_thread, work_in_turns
from broker.records.acknowledgement import Acknowledgement, answer_nothing, is_unacknowledged
from broker.records.produce import (
    ACKS_NONE,
    TRANSACTIONS_REFUSED,
    Stored,
    Unopened,
    Write,
    has_producer_id,
    is_transactional,
    open_and_append,
    produce_batch,
    unless_deposed,
)
from broker.records.produce_turn import in_turn
from protocol.acl import AclOperation, ResourceType
from protocol.errors import ErrorCode
from protocol.produce import PartitionProduced, TopicProduced, encode_produce_response
from protocol.produce_request import ProduceRequest, TopicRecords, decode_produce_request
from protocol.record_batch import ATTRIBUTES_LOW_POSITION, HEADER_SIZE, TRANSACTIONAL_BIT
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.authorization.access import Rights
    from broker.services import Services

API = Api(
    key=0,
    name="produce",
    version_min=3,
    version_max=13,
    flexible_from=9,
    listed_min=0,
    read_request=decode_produce_request,
)


_new: Final = tuple.__new__
_Rows = list[tuple[str | uuid.UUID, dict[int, PartitionProduced | Stored | Unopened]]]
"""The outcome for each partition, by topic."""


def handle(request: Request, services: Services) -> Outcome:
    """Appends every batch at once; then waits only if the acknowledgement has to.

    A batch that takes long to open waits for a thread, and a request for many partitions for further turns;
    this connection's next requests wait for it.
    """
    body: ProduceRequest = request.body
    write = Write(services.produce, request, request.header.api_version, body.acks)
    if request.peer.appending is not None or _has_many_rows(body.topics):
        return _acknowledge_later(write, partial(_append_later, write, None))
    rows: _Rows = []
    if sum(_append_by_steps(write, rows)):  # each step but the usual one is a batch left unopened
        return _acknowledge_later(write, partial(_append_later, write, rows))
    return _acknowledge(write, rows)


def _has_many_rows(topics: Sequence[TopicRecords]) -> bool:
    """Whether the partitions, and topics without any, are too many for one turn of the event loop."""
    if len(topics) == 1:
        return len(topics[0].partitions) > ROWS_PER_TURN
    return sum(len(partitions) or 1 for _, partitions in topics) > ROWS_PER_TURN


def _append_by_steps(write: Write, rows: _Rows) -> Iterator[bool]:
    """Adds the outcome of one partition per step to `rows`; yields whether its batch is unopened."""
    body: ProduceRequest = write.request.body
    refused = _refuse_transactions(body)
    repeated = _listed_twice(body.topics)
    for topic, partitions in body.topics:
        produced: dict[int, PartitionProduced | Stored | Unopened] = {}
        rows.append((topic, produced))
        for index, records in partitions:
            if refused is not None:
                outcome: PartitionProduced | Stored | Unopened = refused._replace(partition=index)
            elif repeated and (topic, index) in repeated:
                outcome = _listed_twice_error(index)
            else:
                outcome = produce_batch(write, topic, index, records)
            produced[index] = outcome
            yield type(outcome) is Unopened
        if not produced:
            yield False


async def _append_later(write: Write, rows: _Rows | None) -> _Rows:
    """Appends what `rows` leaves unopened; None means that nothing was processed yet."""
    if rows is None:
        rows = []
        await work_in_turns(_append_by_steps(write.now(), rows))
    for _, produced in rows:
        for index, one in produced.items():
            if isinstance(one, Unopened):
                produced[index] = await open_and_append(write, one)
    return rows


def _without_deposed(write: Write, rows: _Rows) -> _Rows:
    """The outcomes after a wait, in which this broker may have lost the lead of some partitions."""
    if write.acks == ACKS_NONE:
        return rows
    for _, produced in rows:
        for index, one in produced.items():
            if type(one) is Stored:
                produced[index] = unless_deposed(one)
    return rows


# --- requests that are refused as a whole, or partitions that are listed twice ---


def _refuse_transactions(body: ProduceRequest) -> PartitionProduced | None:
    """The error of every partition, if the request is part of a transaction.

    A transactional batch without a transactional id is refused with the same code in Kafka.
    """
    if body.transactional_id is not None:
        return TRANSACTIONS_REFUSED
    for _, partitions in body.topics:
        for _, records in partitions:
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT
                and is_transactional(records)
            ):
                return TRANSACTIONS_REFUSED
    return None


def _listed_twice(topics: Sequence[TopicRecords]) -> Collection[tuple[str | uuid.UUID, int]]:
    """The partitions that the request lists more than once; Kafka lets the last one win."""
    if len(topics) == 1:
        partitions = topics[0].partitions
        if len(partitions) == 1 or len(dict(partitions)) == len(partitions):
            return ()
    seen: set[tuple[str | uuid.UUID, int]] = set()
    repeated: set[tuple[str | uuid.UUID, int]] = set()
    for topic, partitions in topics:
        for index, _ in partitions:
            (repeated if (topic, index) in seen else seen).add((topic, index))
    return repeated


def _listed_twice_error(index: int) -> PartitionProduced:
    return PartitionProduced(
        index,
        ErrorCode.INVALID_REQUEST,
        error_message=f"partition {index} is listed twice in one request",
    )


# --- acknowledgements ---


def _acknowledge(write: Write, rows: _Rows) -> Outcome:
    acks = write.acks
    topics: list[TopicProduced] = []
    waits: list[Stored] = []
    row_count = 0
    for topic, produced in rows:
        row_count += len(produced) or 1
        partitions: list[PartitionProduced] = []
        topics.append(_new(TopicProduced, (topic, partitions)))
        for one in produced.values():
            if type(one) is Stored:
                partitions.append(one.produced)
                if is_unacknowledged(acks, one):
                    waits.append(one)
            else:
                assert type(one) is PartitionProduced
                partitions.append(one)
    if acks == ACKS_NONE:
        answer_nothing(topics)
        return NO_RESPONSE
    has_many_rows = row_count > ROWS_PER_TURN
    if not waits:
        if has_many_rows:
            return in_thread(partial(encode_produce_response, write.version, topics))
        return encode_produce_response(write.version, topics)
    timeout_s = write.request.body.timeout_ms / 1000
    deadlines = write.parts.deadlines
    acknowledgement = Acknowledgement(acks, topics, waits, timeout_s, deadlines)
    if has_many_rows:
        return NeedsNoFrame(_encoded_later(write.version, acknowledgement))
    return acknowledgement.then(partial(encode_produce_response, write.version))


async def _encoded_later(version: int, topics: Awaitable[list[TopicProduced]]) -> bytes:
    return await in_thread(partial(encode_produce_response, version, await topics))


def _acknowledge_later(
    write: Write, append: Callable[[], Coroutine[Any, Any, _Rows]]
) -> NeedsFrameUntil:
    appended = in_turn(write.request.peer, append)
    return NeedsFrameUntil(_acknowledge_when(write, appended), appended)


async def _acknowledge_when(write: Write, appended: Awaitable[_Rows]) -> Answer:
    outcome = _acknowledge(write, _without_deposed(write, await appended))
    del write  # and with it the records, while the acknowledgement waits
    return await outcome if isinstance(outcome, Awaitable) else outcome


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition. Raises `CloseConnectionError` if acks is 0."""
    if refusal.request.body.acks == ACKS_NONE:
        raise CloseConnectionError(str(refusal.error))
    code, message = refusal.error.code, refusal.error.message
    topics = [
        TopicProduced(
            key, [PartitionProduced(index, code, error_message=message) for index in indexes]
        )
        for key, indexes in refusal.rows
    ]
    return encode_produce_response(refusal.request.version, topics)


def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
    """Needs Write on each topic and on the transactional id; IdempotentWrite if that is configured.

    Transactional batches are refused as a whole, with the same code, by the handler.
    """
    body: ProduceRequest = request.body
    write = AclOperation.WRITE
    if body.transactional_id is not None and not rights.may(
        write, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ):
        return Denial(denied(write, ResourceType.TRANSACTIONAL_ID))
    if (
        services.config.idempotent_write_acl is IdempotentWriteAcl.CLUSTER
        and not rights.may_with_cluster(AclOperation.IDEMPOTENT_WRITE)
        and any(has_producer_id(one.records) for _, rows in body.topics for one in rows)
    ):
        return Denial(denied(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
    denial = denied_topics(write, (one.topic for one in body.topics), rights, services)
    return denial if denial is None or _refuse_transactions(body) is None else None


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("responses", "partition_responses"),
    permit=permit,
)
