"""The path of one produced batch: every check before the append.

The first failure wins (`docs/protocol/deduplication.md`): known topic, container, acks, leader, in-sync replicas,
batch validation, records, the coordinator of a transaction that is not open here (`transactional.py`), then the
de-duplication decision and the append (`append.py`).
"""

from __future__ import annotations

from typing import Final

from echoless.broker.partitions.partition import Partition
from echoless.broker.records.append import StoredBatch, append_batch, failed_produce
from echoless.broker.records.in_flight import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    InFlightProduce,
    TopicKey,
    Unsettled,
)
from echoless.broker.records.pending import DeferredValidation, append_or_ask, as_stored
from echoless.protocol.batch_validation import check_batch, check_container
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.known.batch import sound_header
from echoless.protocol.produce import PartitionProduced
from echoless.protocol.record_batch import (
    ATTRIBUTES_LOW_POSITION,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    Buffer,
    read_header,
)
from echoless.protocol.record_check import check_at_once
from echoless.storage.file_system import StorageError

_ACKS: Final = frozenset({ACKS_NONE, ACKS_LEADER, ACKS_ALL})
RECOMPRESSED_AT_ONCE_BYTES: Final = 16 * 1024
"""A larger batch is compressed anew in a thread: zstd takes 0.1 ms for so much."""


def produce_batch(  # noqa: C901 - flat, because each call costs every batch
    flight: InFlightProduce, topic: TopicKey, index: int, records: Buffer | None
) -> PartitionProduced | StoredBatch | Unsettled:
    """Does everything up to the append for one partition, and the append unless it has to wait."""
    partition: Partition | None = None
    try:
        found = flight.parts.find(topic, index)
        rules, acks, version = found.rules, flight.acks, flight.request.version
        if rules.is_internal:
            raise _internal_topic(found)
        header = sound = sound_header(records, version, rules.bytes_max, rules.timestamps)
        if header is None:
            header = check_container(records, version)
        assert records is not None
        partition = found  # as in Kafka, the errors above do not carry its log start offset
        if acks not in _ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)  # noqa: TRY301
        partition.check_leader()
        if acks == ACKS_ALL:
            partition.check_in_sync()
        if sound is None:
            check_batch(records, header, rules.bytes_max, rules.timestamps, flight.now_ms)
        codec = rules.codec
        is_changed = codec is not None and header.codec_id != codec.codec
        if (is_changed and len(records) > RECOMPRESSED_AT_ONCE_BYTES) or not check_at_once(
            records, header, flight.opening, needs_keys=rules.needs_keys
        ):
            return DeferredValidation(flight, topic, index, records, header)
        if is_changed:
            records, header = as_stored(records, header, rules)
        if header.attributes & TRANSACTIONAL_BIT:
            return append_or_ask(flight, partition, topic, records, header)
        return append_batch(flight, partition, records, header)
    except KafkaError as error:
        return failed_produce(flight, index, error, partition)
    except StorageError as error:
        flight.parts.fail_storage(error)
        return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR)


def _internal_topic(partition: Partition) -> KafkaError:
    message = f"Cannot append to internal topic {partition.topic}"
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


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
