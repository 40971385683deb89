"""The path of one produced batch from either port: validation, de-duplication, append.

The first failure wins (`docs/protocol/deduplication.md`): known topic, container, acks, leader, in-sync replicas,
batch validation, records, then the de-duplication decision and the append in one step of the
partition's log. `acknowledgement.py` decides what the client is told and when.

Called by the Produce handlers of both ports. Knows nothing of requests and responses.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.clock import Clock
from echoless.broker.decisions.decisions import Decisions, window_of
from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.metrics import Metrics
from echoless.broker.network.request import Request
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.records.deadlines import Deadlines
from echoless.broker.records.record_thread import RecordThread
from echoless.protocol.batch_validation import check_batch, check_container
from echoless.protocol.compression import recompressed
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.known.batch import sound_header
from echoless.protocol.produce import PartitionProduced, RecordError
from echoless.protocol.record_batch import (
    ATTRIBUTES_LOW_POSITION,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
)
from echoless.protocol.record_check import KeylessRecordsError, Opening, check_all, check_at_once
from echoless.storage.appended import Appended
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.authentication.producer_binding import ProducerBinding
    from echoless.broker.quotas.quotas import Quotas

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
_ACKS: Final = frozenset({ACKS_NONE, ACKS_LEADER, ACKS_ALL})
_SUCCESS: Final = ErrorCode.NONE
"""Read once, because reading an enum's member takes longer than a name."""
_new: Final = tuple.__new__
"""Makes a named tuple in a third of the time of calling its class."""

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
"""Errors after which Kafka answers log_start_offset -1 (`docs/protocol/produce.md`)."""

RECOMPRESSED_AT_ONCE_BYTES: Final = 16 * 1024
"""A larger batch is compressed anew in a thread: zstd takes 0.1 ms for so much."""
TRANSACTIONS_REFUSED: Final = PartitionProduced(
    0,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    error_message="transactions are not served; produce without a transactional id",
)


class Stored(NamedTuple):
    """A batch that is in the log, appended now or by an earlier request."""

    partition: Partition
    produced: PartitionProduced
    """Success, or DUPLICATE_SEQUENCE_NUMBER for a duplicate older than the window."""
    next_offset: int
    """The high watermark that commits it."""
    leader_epoch: int
    """In which this broker led the partition: in a later one, other records may have these offsets."""
    is_duplicate: bool = False
    """Whether it was stored by an earlier request."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProduceParts:
    """The parts of the broker that an append needs."""

    find: Callable[[str | uuid.UUID, int], Partition]
    """The partition by topic name or id. Raises `KafkaError` 3, 100, 6 or 56."""
    fail_storage: Callable[[StorageError], None]
    decisions: Decisions
    metrics: Metrics
    clock: Clock
    thread: RecordThread
    deadlines: Deadlines
    quotas: Quotas
    binding: ProducerBinding | None = None
    """Tells whose producer ids are; None: they are everyone's."""


class Write:
    """The values shared by the whole request, from either port."""

    __slots__ = ("acks", "now_ms", "opening", "parts", "request", "steady_ms", "version")

    def __init__(self, parts: ProduceParts, request: Request, version: int, acks: int) -> None:
        """`version`: of the Produce request; the newest one on the native port."""
        self.parts = parts
        self.request = request
        self.version = version
        self.acks = acks
        clock = parts.clock
        self.now_ms = clock.wall_ms()
        """The wall-clock time."""
        self.steady_ms = clock.steady_ms()
        """The same moment by the data directory's clock (`clock.py`)."""
        self.opening = Opening()

    def now(self, request: Request | None = None) -> Write:
        """The same request with the present time, after a wait; or `request`, which it has become."""
        later = Write(self.parts, request or self.request, self.version, self.acks)
        later.opening = self.opening
        return later


class Unopened(NamedTuple):
    """A batch that takes too long to open on the loop, left for `open_and_append`."""

    topic: str | uuid.UUID
    partition: int
    records: Buffer
    header: BatchHeader


def produce_batch(
    write: Write, topic: str | uuid.UUID, index: int, records: Buffer | None
) -> PartitionProduced | Stored | Unopened:
    """Does everything up to the append for one partition. `topic` is a name, or the id if ids are used."""
    partition: Partition | None = None
    try:
        found = write.parts.find(topic, index)
        rules, acks = found.rules, write.acks
        if rules.is_internal:
            raise _internal_topic(found)
        header = sound = sound_header(records, write.version, rules.bytes_max, rules.timestamps)
        if header is None:
            header = check_container(records, write.version)
        assert records is not None
        partition = found  # as in Kafka, the errors above do not carry its log start offset
        if acks not in _ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)  # noqa: TRY301
        partition.check_produce(by_all=acks == ACKS_ALL)
        if sound is None:
            check_batch(records, header, rules.bytes_max, rules.timestamps, write.now_ms)
        codec = rules.codec
        is_changed = codec is not None and header.codec_id != codec.codec
        if (is_changed and len(records) > RECOMPRESSED_AT_ONCE_BYTES) or not check_at_once(
            records, header, write.opening, needs_keys=rules.needs_keys
        ):
            return Unopened(topic, index, records, header)
        if is_changed:
            records, header = _recompressed(records, header, rules)
        return _append(write, partition, records, header)
    except KafkaError as error:
        return _failed(index, error, partition)
    except StorageError as error:
        write.parts.fail_storage(error)
        return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR)


async def open_and_append(write: Write, unopened: Unopened) -> PartitionProduced | Stored:
    """Checks the records in a thread, then appends as `produce_batch` does."""
    topic, index, records, header = unopened
    parts = write.parts
    partition: Partition | None = None
    try:
        rules = parts.find(topic, index).rules
        records, header = await parts.thread.run(
            write.request.peer.host, _opened, records, header, write.opening, rules
        )
        partition = parts.find(topic, index)  # the role, or all of it, may have gone
        partition.check_produce(by_all=write.acks == ACKS_ALL)
        return _append(write.now(), partition, records, header)
    except KafkaError as error:
        return _failed(index, error, partition)
    except StorageError as error:
        parts.fail_storage(error)
        return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR)


def _opened(
    records: Buffer, header: BatchHeader, opening: Opening, rules: ProduceRules
) -> tuple[Buffer, BatchHeader]:
    """The batch as it is to be stored, its records checked; in a thread. Raises `KafkaError`."""
    check_all(records, header, opening, needs_keys=rules.needs_keys)
    if rules.codec is None or header.codec_id == rules.codec.codec:
        return records, header
    return _recompressed(records, header, rules)


def _recompressed(
    records: Buffer, header: BatchHeader, rules: ProduceRules
) -> tuple[Buffer, BatchHeader]:
    """The batch compressed as the topic asks, before it is decided on: its repeat becomes the same bytes."""
    assert rules.codec is not None
    changed, changed_header = recompressed(records, header, rules.codec)
    if len(changed) > rules.bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(changed)} bytes as compression.type stores it, which exceeds the maximum of "
            f"{rules.bytes_max}",
        )
    return changed, changed_header


def _internal_topic(partition: Partition) -> KafkaError:
    message = f"Cannot append to internal topic {partition.topic}"
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _append(
    write: Write, partition: Partition, records: Buffer, header: BatchHeader
) -> PartitionProduced | Stored:
    index, parts, producer_id = partition.index, write.parts, header.producer_id
    decisions = parts.decisions
    before = window_of(partition, producer_id) if decisions.is_followed else None
    now_ms = write.now_ms
    refusal, is_new_id = None, False
    if producer_id >= 0:
        if parts.binding is not None:
            refusal = parts.binding.refusal(producer_id, write.request.peer.principal)
        if parts.quotas.limits is not None:
            is_new_id = partition.log.producers.get(producer_id) is None
    result = refusal or partition.append(records, header, write.steady_ms, now_ms)
    if type(result) is Duplicate and result.divergent:
        result = _compared(partition, header, result)
    if producer_id >= 0:
        decisions.record(write.request, partition, header, result, now_ms, window_before=before)
    is_duplicate = False
    if type(result) is Appended:
        parts.metrics.appended(header)
        if is_new_id:
            request = write.request
            parts.quotas.count_new_id(request.peer, request.header.client_id)
        base_offset, last_offset, _, append_time = result
    elif isinstance(result, Duplicate):
        is_duplicate = True
        original = result.original
        base_offset, last_offset = original.base_offset, original.last_offset
        append_time = original.timestamp
    else:
        assert isinstance(result, Reject)
        return _refused(partition, header, result)
    start = partition.log.log_start_offset
    row = (index, _SUCCESS, base_offset, append_time, start, None, (), None, "")
    produced = _new(PartitionProduced, row)
    fields = (partition, produced, last_offset + 1, partition.leader_epoch, is_duplicate)
    return _new(Stored, fields)


def _compared(partition: Partition, header: BatchHeader, repeat: Duplicate) -> Duplicate:
    """The same, not divergent, if the batch is stored in another codec: `compression.type` has changed since.

    Raises `StorageError`.
    """
    log, base_offset = partition.log, repeat.original.base_offset
    if base_offset < log.log_start_offset:
        return repeat
    stored = read_header(log.read(base_offset, 1, log.log_end_offset))
    is_stored_whole = stored.base_offset == base_offset and stored.record_count
    return repeat._replace(divergent=not is_stored_whole or stored.codec_id == header.codec_id)


def _refused(
    partition: Partition, header: BatchHeader, reject: Reject
) -> PartitionProduced | Stored:
    """The error; a repeat that is too old for its offset to be known waits for the newest batch."""
    failed = _failed(partition.index, KafkaError(reject.code), partition)
    refused = failed._replace(reason=reject.reason)
    if reject.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return refused
    end = _end_of_window(partition, header.producer_id)
    return Stored(partition, refused, end, partition.leader_epoch)


def unless_deposed(outcome: PartitionProduced | Stored) -> PartitionProduced | Stored:
    """The outcome after a wait: NOT_LEADER_OR_FOLLOWER if this broker has not led ever since it stored.

    Another leader may have cut the batch off, and high watermarks say nothing of what it was replaced by.
    """
    if type(outcome) is not Stored:
        return outcome
    partition = outcome.partition
    if partition.is_leader and partition.leader_epoch == outcome.leader_epoch:
        return outcome
    return outcome.produced._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _end_of_window(partition: Partition, producer_id: int) -> int:
    """The end of any batch that a duplicate older than the window repeats; clients treat 46 as success."""
    entry = partition.log.producers.get(producer_id)
    assert entry is not None, "a repeat is proven by the producer's entry"
    return entry.batches[-1].last_offset + 1


def _failed(index: int, error: KafkaError, partition: Partition | None) -> PartitionProduced:
    code = error.code
    start = -1
    if partition is not None and code not in _HIDES_LOG_START:
        start = partition.log.log_start_offset
    leader = None
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
        leader = _other_leader(partition)
    message = error.message or None
    record_errors: tuple[RecordError, ...] = ()
    if isinstance(error, KeylessRecordsError) and partition is not None:
        message = f"Compacted topic cannot accept message without key in topic partition {partition.name}."
        record_errors = tuple(RecordError(place, message) for place in error.indexes)
    return PartitionProduced(index, code, -1, -1, start, message, record_errors, leader)


def _other_leader(partition: Partition) -> tuple[int, int] | None:
    """The leader to ask instead; no hint is better than "no leader", or this broker again."""
    if partition.leader_id == NO_LEADER or partition.is_leader:
        return None
    return partition.leader_id, partition.leader_epoch


def has_producer_id(records: Buffer | None) -> bool:
    """Whether the batch names a producer; False if it is not a batch at all."""
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and records[MAGIC_POSITION] == MAGIC
        and read_header(records).has_producer_id
    )


def is_transactional(records: Buffer | None) -> bool:
    """Whether the batch is marked as transactional; False if it is not a batch at all."""
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and bool(records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT)
        and records[MAGIC_POSITION] == MAGIC
    )
