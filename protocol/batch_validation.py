"""The checks that a produced batch must pass before its records or its producer are looked at.

Codes and order are Kafka 3.9's (`docs/protocol/produce.md`); the first failure wins:

container (`check_container`; a handler runs it before it looks at acks or leadership)
 1. no complete batch                                    -> 87 INVALID_RECORD
 2. impossible length or magic                           -> 2 CORRUPT_MESSAGE
 3. magic other than 2                                   -> 87
 4. zstd before Produce v7 (KIP-110)                     -> 76 UNSUPPORTED_COMPRESSION_TYPE
 5. a second complete batch                              -> 87
    other bytes after the batch                          -> 2 (Kafka drops them silently)
batch (`check_batch`; once the partition is known to lead)
 6. base offset other than 0                             -> 87
 7. larger than the topic's max.message.bytes            -> 10 MESSAGE_TOO_LARGE
 8. CRC-32C differs                                      -> 2
 9. unknown codec                                        -> 76 (Kafka: -1 UNKNOWN_SERVER_ERROR)
10. record count <= 0, or not last offset delta + 1      -> 87
11. control batch                                        -> 87
    the time of compaction's tombstones (bit 6, KIP-534) -> 87 (Kafka: taken for its own)
12. producer id with a negative sequence                 -> 87
13. more records than its bytes can hold (uncompressed)  -> 87
    more than `RECORDS_MAX` (compressed)                 -> 87 (Kafka: no bound)
14. timestamps (`TimestampRules`)                        -> 32 INVALID_TIMESTAMP

A usual batch passes all of them in one look (`known/batch.py`).

The records themselves stay closed: `record_check` opens them. Step 13 is what can be known without:
a count that nothing backs would move the log's end by up to 2**31. Knows nothing of partitions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.record_batch import (
    BATCH_LENGTH_MIN,
    BATCH_PREFIX,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    RECORDS_MAX,
    BatchHeader,
    Buffer,
    Codec,
    compute_crc,
    read_header,
)

ZSTD_PRODUCE_VERSION_MIN: Final = 7
_LAST_CODEC: Final = int(Codec.ZSTD)
_LEGACY_LENGTH_MIN: Final = 14
"""The smallest message of magic 0: Kafka calls a shorter length corrupt before it sees the magic."""


class TimestampRules(NamedTuple):
    """A topic's `message.timestamp.type`, `...before.max.ms` and `...after.max.ms`."""

    log_append_time: bool = False
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 2**63 - 1


ANY_TIMESTAMP: Final = TimestampRules()
"""Kafka 3.9's defaults: create time, no limit."""


def validate_client_batch(
    records: Buffer | None,
    *,
    produce_version: int,
    bytes_max: int,
    timestamp_rules: TimestampRules = ANY_TIMESTAMP,
    now_ms: int = 0,
) -> BatchHeader:
    """Returns the header of the one valid batch in `records`, a partition's records field.

    Raises `KafkaError` as the module's table says.
    """
    header = check_container(records, produce_version)
    check_batch(records or b"", header, bytes_max, timestamp_rules, now_ms)
    return header


def check_container(records: Buffer | None, produce_version: int) -> BatchHeader:
    """Steps 1 to 5: `records` is exactly one batch of magic 2. Raises `KafkaError`."""
    size = 0 if records is None else _measure_batch(records, 0)
    if records is None or size == 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"expected one record batch, but {len(records or b'')} bytes hold no complete one",
        )
    magic = records[MAGIC_POSITION]
    if magic != MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch has magic {magic}, not {MAGIC}")
    if size < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch has {size} bytes, its header alone takes {HEADER_SIZE}",
        )
    header = read_header(records)
    if produce_version < ZSTD_PRODUCE_VERSION_MIN and header.codec_id == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{ZSTD_PRODUCE_VERSION_MIN}, this is v{produce_version}",
        )
    if size != len(records):
        _refuse_bytes_behind(records, size)
    return header


def _measure_batch(records: Buffer, position: int) -> int:
    """Bytes of the batch of some magic at `position`; 0 if the batch is incomplete.

    Raises `KafkaError` (CORRUPT_MESSAGE) if the bytes present cannot begin a batch.
    """
    left = len(records) - position
    if left < LOG_OVERHEAD:
        return 0
    _, length = BATCH_PREFIX.unpack_from(records, position)
    if length < _LEGACY_LENGTH_MIN:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch claims {length} bytes after its length, at least {BATCH_LENGTH_MIN} are needed",
        )
    if left <= MAGIC_POSITION:
        return 0
    magic = records[position + MAGIC_POSITION]
    if magic > MAGIC:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is unknown, {MAGIC} is expected"
        )
    size: int = length + LOG_OVERHEAD
    return size if size <= left else 0


def _refuse_bytes_behind(records: Buffer, size: int) -> None:
    if _measure_batch(records, size):
        raise KafkaError(ErrorCode.INVALID_RECORD, "expected exactly one record batch, found more")
    raise KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{len(records) - size} bytes follow the batch of {size} bytes",
    )


def check_batch(
    batch: Buffer,
    header: BatchHeader,
    bytes_max: int,
    timestamp_rules: TimestampRules = ANY_TIMESTAMP,
    now_ms: int = 0,
) -> None:
    """Steps 6 to 14 for a batch that `check_container` passed. Raises `KafkaError`."""
    if header.base_offset:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the base offset must be 0, not {header.base_offset}"
        )
    if len(batch) > bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(batch)} bytes, which exceeds the maximum of {bytes_max}",
        )
    crc = compute_crc(batch)
    if crc != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch is corrupt (stored crc = {header.crc:#010x}, computed crc = {crc:#010x})",
        )
    _check_numbers(header)
    if timestamp_rules is not ANY_TIMESTAMP or header.attributes & LOG_APPEND_TIME_BIT:
        _check_timestamps(header, timestamp_rules, now_ms)


def _check_numbers(header: BatchHeader) -> None:
    """Steps 9 to 13: whether the header's fields agree with each other."""
    attributes, count = header.attributes, header.record_count
    codec_id = attributes & CODEC_MASK
    if codec_id > _LAST_CODEC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"codec {codec_id} is unknown, the known ones are 0 to {Codec.ZSTD:d}",
        )
    if count <= 0 or count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{count} records and a last offset delta of {header.last_offset_delta} do not match",
        )
    if attributes & CONTROL_BIT:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if attributes & DELETE_HORIZON_BIT:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"attribute {DELETE_HORIZON_BIT:#x} says when compaction removes tombstones: clients may not set it",
        )
    if header.base_sequence < 0 <= header.producer_id:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer id {header.producer_id} needs a base sequence of at least 0, "
            f"not {header.base_sequence}",
        )
    if codec_id:
        if count > RECORDS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"a compressed batch of {count} records; at most {RECORDS_MAX} are taken",
            )
    elif count * RECORD_BYTES_MIN > header.batch_length - BATCH_LENGTH_MIN:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{count} records cannot fit in a batch of {header.size} bytes",
        )


def _check_timestamps(header: BatchHeader, rules: TimestampRules, now_ms: int) -> None:
    """Step 14, from the header alone: the first record's timestamp and the largest one.

    Kafka clears a log-append-time bit that a client set on a create-time topic; here it is refused,
    because changing the bytes would require a new CRC.
    """
    if header.is_log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type to log append"
        )
    if rules.log_append_time:
        return
    earliest_ms, latest_ms = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest_ms <= timestamp <= latest_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is not between {earliest_ms} and {latest_ms}",
            )
