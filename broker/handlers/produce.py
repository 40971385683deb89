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
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.names import IdempotentWriteAcl
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.permits import denied, denied_topics
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.denial import Denial
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import (
    NO_RESPONSE,
    Answer,
    CloseConnectionError,
    NeedsFrameUntil,
    NeedsNoFrame,
    Outcome,
    Request,
)
from echoless.broker.network.turns import ROWS_PER_TURN, in_thread, work_in_turns
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
    has_producer_id,
    is_transactional,
    open_and_append,
    produce_batch,
    unless_deposed,
)
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce import (
    PartitionProduced,
    TopicProduced,
    encode_produce_response,
    encode_produced,
)
from echoless.protocol.produce_request import PartitionRecords, ProduceRequest, TopicRecords
from echoless.protocol.record_batch import ATTRIBUTES_LOW_POSITION, HEADER_SIZE, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)


_new: Final = tuple.__new__
_Topic = str | uuid.UUID
_Outcome = PartitionProduced | Stored | Unopened
_Rows = list[tuple[_Topic, list[_Outcome]]]
"""The outcome for each partition, by topic."""


def handle(request: Request, services: Services) -> Outcome:
    """Appends every batch at once; then waits only if the acknowledgement has to.

    A batch that takes long to open waits for a thread, and a request for many partitions for further turns;
    this connection's next requests wait for it.
    """
    body: ProduceRequest = request.body
    topics, acks = body.topics, body.acks
    write = Write(services.produce, request, request.header.api_version, acks)
    is_one = len(topics) == 1 and len(topics[0].partitions) == 1
    if request.peer.order.appends.places or (not is_one and _has_many_rows(topics)):
        return _acknowledge_later(write, partial(_append_later, write, None))
    if is_one and body.transactional_id is None:
        topic, ((index, records),) = topics[0]
        if not is_transactional(records):
            one = produce_batch(write, topic, index, records)
            if type(one) is Stored and acks and one.next_offset <= one.partition.high_watermark:
                return encode_produced(write.version, topic, one.produced)  # as nearly always
            return _acknowledge(write, [(topic, [one])])
    refusals = _refusals(body)
    rows: _Rows = []
    for topic, partitions in topics:
        outcomes: list[_Outcome] = []
        rows.append((topic, outcomes))
        _append(write, topic, partitions, refusals, outcomes)
    return _acknowledge(write, rows)


def _append(
    write: Write,
    topic: _Topic,
    partitions: Sequence[PartitionRecords],
    refusals: _Refusals | None,
    outcomes: list[_Outcome],
) -> None:
    """Adds the outcome of each partition to `outcomes`; its batch may be left unopened."""
    for index, records in partitions:
        if refusals is None:
            outcomes.append(produce_batch(write, topic, index, records))
        else:
            refused = refusals.take(topic, index)
            if refused is not None:
                outcomes += refused
            else:
                outcomes.append(produce_batch(write, topic, index, records))


def _has_many_rows(topics: Sequence[tuple[_Topic, Sequence[object]]]) -> bool:
    """Whether the partitions, and topics without any, are too many for one turn of the event loop."""
    if len(topics) == 1:
        return len(topics[0][1]) > ROWS_PER_TURN
    return sum(len(rows) or 1 for _, rows in topics) > ROWS_PER_TURN


def _append_by_steps(write: Write, rows: _Rows) -> Iterator[None]:
    """Adds the outcome of one partition per step to `rows`; a topic without partitions takes one too."""
    body: ProduceRequest = write.request.body
    refusals = _refusals(body)
    for topic, partitions in body.topics:
        outcomes: list[_Outcome] = []
        rows.append((topic, outcomes))
        for one in partitions:
            _append(write, topic, (one,), refusals, outcomes)
            yield
        if not partitions:
            yield


async def _append_later(write: Write, rows: _Rows | None) -> _Rows:
    """Appends what `rows` leaves unopened; None means that nothing was processed yet."""
    if rows is None:
        rows = []
        await work_in_turns(_append_by_steps(write.now(), rows))
    for _, outcomes in rows:
        for place, one in enumerate(outcomes):
            if isinstance(one, Unopened):
                outcomes[place] = await open_and_append(write, one)
    return rows


def _without_deposed(write: Write, rows: _Rows) -> _Rows:
    """The outcomes after a wait, in which this broker may have lost the lead of some partitions."""
    if write.acks == ACKS_NONE:
        return rows
    for _, outcomes in rows:
        for place, one in enumerate(outcomes):
            if type(one) is Stored:
                outcomes[place] = unless_deposed(one)
    return rows


# --- requests that are refused as a whole, or partitions that are listed twice ---


class _Refusals:
    """The refusals that rest on other rows of the request than the refused one."""

    def __init__(self, whole: PartitionProduced | None, repeated: set[tuple[_Topic, int]]) -> None:
        """`whole`: the error of every partition; `repeated`: those listed more than once."""
        self._whole = whole
        self._repeated = repeated
        self._answered: set[tuple[_Topic, int]] = set()

    def take(self, topic: _Topic, index: int) -> Sequence[PartitionProduced] | None:
        """The refusal of this row, none if an earlier row has answered for it; None: it is not refused."""
        key = topic, index
        if self._whole is None and key not in self._repeated:
            return None
        if key in self._answered:
            return ()
        self._answered.add(key)
        return (
            _listed_twice_error(index)
            if self._whole is None
            else self._whole._replace(partition=index),
        )


def _refusals(body: ProduceRequest) -> _Refusals | None:
    """None nearly always."""
    whole, repeated = _refuse_transactions(body), _listed_twice(body.topics)
    return _Refusals(whole, repeated) if whole is not None or repeated else None


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


def _listed_twice(topics: Sequence[TopicRecords]) -> set[tuple[_Topic, int]]:
    """The partitions that the request lists more than once; Kafka lets the last one win."""
    if len(topics) == 1:
        partitions = topics[0].partitions
        if len(dict(partitions)) == len(partitions):
            return set()
    seen: set[tuple[_Topic, int]] = set()
    repeated: set[tuple[_Topic, int]] = set()
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


def _acknowledge(write: Write, rows: _Rows, *, has_many_rows: bool = False) -> Outcome:
    """The answer, or a promise of it; if a batch is still unopened, it is opened and appended first."""
    acks = write.acks
    topics: list[TopicProduced] = []
    waits: list[Stored] = []
    for topic, outcomes in rows:
        partitions: list[PartitionProduced] = []
        topics.append(_new(TopicProduced, (topic, partitions)))
        for one in outcomes:
            if type(one) is Stored:
                partitions.append(one.produced)
                # Below the high watermark it may be acknowledged whatever the acks are.
                if one.next_offset > one.partition.high_watermark and is_unacknowledged(acks, one):
                    waits.append(one)
            elif type(one) is PartitionProduced:
                partitions.append(one)
            else:
                return _acknowledge_later(write, partial(_append_later, write, rows))
    if acks == ACKS_NONE:
        answer_nothing(topics)
        return NO_RESPONSE
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
    place = write.request.peer.order.appends.enter()
    return NeedsFrameUntil(_acknowledge_when(write, append, place), place.left)


async def _acknowledge_when(
    write: Write, append: Callable[[], Coroutine[Any, Any, _Rows]], place: LanePlace
) -> Answer:
    with place:
        await place.come()
        rows = _without_deposed(write, await append())
    outcome = _acknowledge(write, rows, has_many_rows=_has_many_rows(rows))
    del write, append  # and with it the records, while the acknowledgement waits
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
        and any(has_producer_id(records) for _, rows in body.topics for _, records in rows)
    ):
        return Denial(denied(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
    denial = denied_topics(write, (topic for topic, _ in body.topics), rights, services)
    return denial if denial is None or _refuse_transactions(body) is None else None


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("responses", "partition_responses"),
    permit=permit,
)
