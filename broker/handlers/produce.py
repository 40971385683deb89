"""Produce (0), versions 3-13: the request this broker exists for.

For each partition, first failure wins (`dedup-spec.md` 1.2): known topic, container, acks, leader,
in-sync replicas, batch validation, then the de-duplication decision and the append in one step of
the partition's log. acks=0 answers nothing and closes the connection on an error; acks=1 answers
after the leader's append; acks=-1 waits until the high watermark has passed every batch of the
request - a repeat waits for its original exactly as the first copy did.

The native port comes here too: what is public here knows nothing of requests and responses.

v3 magic 2 only; v5 log_start_offset; v7 zstd; v8 record errors and messages; v9 flexible; v10 the
current leader with code 6; v13 topic ids. ApiVersions lists v0, because librdkafka stops
compressing otherwise (KAFKA-18659), but bodies of v0-2 are refused. Transactional batches are
refused: transactions are not served.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.partition import Partition
from broker.request import NO_RESPONSE, Answer, CloseConnectionError, Outcome, Request
from protocol.batch_validation import check_batch, check_container
from protocol.dedup import Duplicate, Reject
from protocol.errors import ErrorCode, KafkaError
from protocol.produce import PartitionProduced, TopicProduced, encode_produce_response
from protocol.record_batch import (
    ATTRIBUTES_LOW_POSITION,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from protocol.record_check import check_framing, check_records
from protocol.registry import Api
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=0, name="produce", version_min=3, version_max=13, flexible_from=9, listed_min=0)

_TOPIC_IDS_FROM: Final = 13
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

_HIDES_LOG_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors after which Kafka answers log_start_offset -1 (`dedup-spec.md` 5.2)."""

TRANSACTIONS_REFUSED: Final = PartitionProduced(
    0,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    error_message="transactions are not served; produce without a transactional id",
)


class Stored(NamedTuple):
    """A batch that is in the log, now or since an earlier request."""

    partition: Partition
    produced: PartitionProduced
    next_offset: int
    """The high watermark that commits it."""
    is_duplicate: bool = False
    """Whether it was stored by an earlier request."""


class Write(NamedTuple):
    """What holds for the whole request, from either port."""

    broker: Broker
    request: Request
    acks: int
    now_ms: int


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


def produce_batch(
    write: Write, topic: str | uuid.UUID, index: int, records: Buffer | None
) -> PartitionProduced | Stored:
    """One partition: everything up to the append. `topic` is a name, or the id where ids are used."""
    partition: Partition | None = None
    try:
        found = write.broker.find_partition(topic, index)
        header = check_container(records, write.request.version)
        assert records is not None
        partition = found  # as in Kafka, the errors before here do not tell its log start offset
        _check_role(partition, write.acks)
        rules = partition.rules
        check_batch(records, header, rules.bytes_max, rules.timestamps, write.now_ms)
        # Every field of a producer's first batch, which shows what it is worth; then the framing.
        check = check_records if header.base_sequence == 0 else check_framing
        check(records, header)
        return _append(write, partition, records, header)
    except KafkaError as error:
        return _failed(index, error, partition)
    except StorageError as error:
        write.broker.fail_storage(error)
        return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR)


def _check_role(partition: Partition, acks: int) -> None:
    if acks not in {ACKS_NONE, ACKS_LEADER, ACKS_ALL}:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    partition.check_leader()
    if acks == ACKS_ALL and len(partition.isr) < partition.rules.min_insync_replicas:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.name} has {len(partition.isr)} in-sync replicas, "
            f"{partition.rules.min_insync_replicas} are needed",
        )


def _append(
    write: Write, partition: Partition, records: Buffer, header: BatchHeader
) -> PartitionProduced | Stored:
    index = partition.index
    result = partition.append(records, header, write.now_ms)
    if header.has_producer_id:
        write.broker.decisions.record(write.request, partition, header, result, write.now_ms)
    if isinstance(result, Reject):
        return _failed(index, KafkaError(result.code), partition)._replace(reason=result.reason)
    is_duplicate = isinstance(result, Duplicate)
    if isinstance(result, Duplicate):
        original = result.original
        base_offset, last_offset = original.base_offset, original.last_offset
        append_time = original.timestamp
    else:
        write.broker.metrics.appended(header)
        base_offset, last_offset = result.base_offset, result.last_offset
        append_time = result.log_append_time
    start = partition.log.log_start_offset
    produced = PartitionProduced(index, ErrorCode.NONE, base_offset, append_time, start)
    return Stored(partition, produced, last_offset + 1, is_duplicate)


def _failed(index: int, error: KafkaError, partition: Partition | None) -> PartitionProduced:
    code = error.code
    start = -1
    if partition is not None and code not in _HIDES_LOG_START:
        start = partition.log.log_start_offset
    leader = None
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
        leader = (partition.leader_id, partition.leader_epoch)
    message = error.message or None
    return PartitionProduced(index, code, -1, -1, start, message, (), leader)


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


def is_transactional(records: Buffer | None) -> bool:
    """Whether the batch says that it is part of a transaction; False for what is no batch."""
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and bool(records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT)
        and records[MAGIC_POSITION] == MAGIC
    )


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


def unacknowledged(acks: int, stored: list[Stored]) -> list[Stored]:
    """The batches that `acks` does not let the broker promise yet."""
    return [one for one in stored if one.next_offset > _acknowledged_offset(one.partition, acks)]


def _acknowledged_offset(partition: Partition, acks: int) -> int:
    """Offsets below it may be acknowledged now."""
    return partition.high_watermark if acks == ACKS_ALL else partition.durable_offset


def acknowledged(
    acks: int, topics: list[TopicProduced], waits: list[Stored], timeout_s: float
) -> Awaitable[list[TopicProduced]]:
    """Waits for all partitions together, at most for the timeout; the topics with what came of it.

    The wait begins with the call, not with the first `await`: nothing is missed in between.
    """
    by_all = acks == ACKS_ALL
    futures = {one.partition.acknowledged(one.next_offset, by_all=by_all): one for one in waits}
    return _when_done(futures, topics, timeout_s, by_all=by_all)


async def _when_done(
    futures: Mapping[asyncio.Future[None], Stored],
    topics: list[TopicProduced],
    timeout_s: float,
    *,
    by_all: bool,
) -> list[TopicProduced]:
    done, late = await asyncio.wait(futures, timeout=max(timeout_s, 0))
    failed: dict[Partition, ErrorCode] = {}
    for future in late:
        future.cancel()
        failed[futures[future].partition] = ErrorCode.REQUEST_TIMED_OUT
    for future in done:
        partition = futures[future].partition
        error = future.exception()
        if isinstance(error, KafkaError):
            failed[partition] = error.code
        elif by_all and len(partition.isr) < partition.rules.min_insync_replicas:
            failed[partition] = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    waits = list(futures.values())
    return [_with_failures(topic, failed, waits) for topic in topics] if failed else topics


def _with_failures(
    topic: TopicProduced, failed: dict[Partition, ErrorCode], waits: list[Stored]
) -> TopicProduced:
    """The topic with the codes of batches that were appended but cannot be promised."""
    codes = {id(one.produced): failed[one.partition] for one in waits if one.partition in failed}
    partitions = [
        produced._replace(error_code=codes.get(id(produced), produced.error_code))
        for produced in topic.partitions
    ]
    return topic._replace(partitions=partitions)


def answer_nothing(topics: list[TopicProduced]) -> None:
    """acks=0: raises `CloseConnectionError` where something failed, as nobody can be told."""
    for topic in topics:
        for produced in topic.partitions:
            if produced.error_code:
                raise CloseConnectionError(
                    f"acks=0 produce to {topic.topic}-{produced.partition} failed: "
                    f"{produced.error_code.name}, and the client expects no answer"
                )
