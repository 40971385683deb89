"""Opens a produced batch and checks that its records are whole, as Kafka does with every batch.

A batch with a good CRC can still hold nonsense when its producer is broken; stored, it would stop
every consumer of the partition at that offset. Any fault is 87 INVALID_RECORD, as in Kafka, which
however answers -1 to data that does not decompress. Two more differences: offset deltas must be
0, 1, 2 ... (Kafka rewrites a compressed batch and stores an uncompressed one as it is), and what a
batch may decompress to is bounded.

Two depths, because time per record is the price: `check_framing` counts the records and sees that
their lengths add up; `check_records` goes through every field, at about three times the cost
(`docs/decisions/records.md` has figures). What `check_records` passes, `records.read_records` reads.
Called for client batches that `batch_validation` passed.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.compression import DECOMPRESSED_BYTES_MAX, decompress
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.record_batch import HEADER_SIZE, BatchHeader, Buffer
from protocol.varint import VARLONG_BITS, read_varint


def check_framing(
    batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> None:
    """Checks that the lengths of `record_count` records fill one whole batch exactly.

    `bytes_max` bounds what compressed records may grow to. Raises `KafkaError` (INVALID_RECORD).
    """
    _check(_walk_lengths, batch, header, bytes_max)


def check_records(
    batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> None:
    """Checks the framing and every field of all records. Arguments and errors as `check_framing`."""
    _check(_walk_fields, batch, header, bytes_max)


def _check(
    walk: Callable[[bytes, int], int], batch: Buffer, header: BatchHeader, bytes_max: int
) -> None:
    try:
        data = decompress(header.codec_id, memoryview(batch)[HEADER_SIZE:], bytes_max)
        end = walk(data, header.record_count)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    except IndexError:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the batch ends before {header.record_count} records do"
        ) from None
    if end != len(data):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records take {end} bytes, the batch holds {len(data)}",
        )


def _walk_lengths(data: bytes, record_count: int) -> int:
    """The position behind the last record. Raises `DecodeError`, or `IndexError` past the data."""
    position = 0
    for index in range(record_count):
        byte = data[position]
        if byte & 0x81 == 0:  # one byte, not negative
            position += 1 + (byte >> 1)
        elif byte & 1 == 0 and (second := data[position + 1]) < 0x80:
            position += 2 + (byte >> 1 & 0x3F | second << 6)
        else:
            length, start = read_varint(data, position)
            if length < 0:
                raise DecodeError(f"record {index} of {record_count} claims {length} bytes")
            position = start + length
    return position


def _walk_fields(data: bytes, record_count: int) -> int:
    """As `_walk_lengths`, through every field of every record.

    Numbers of one byte, nearly all of them, are read in place: this loop is the price per record.
    """
    end = 0
    for index in range(record_count):
        length, start = read_varint(data, end)
        end = start + length
        position = start + 1
        while data[position] > 0x7F:  # the timestamp delta; its value does not matter here
            position += 1
        if position - start > VARLONG_BITS // 7:
            read_varint(data, start + 1, VARLONG_BITS)
        offset_delta, position = read_varint(data, position + 1)
        if offset_delta != index:
            raise DecodeError(f"record {index} of {record_count} has offset delta {offset_delta}")
        for _ in range(2):  # the key, then the value
            byte = data[position]
            if byte < 0x80:
                position += 1 if byte & 1 else 1 + (byte >> 1)
            else:
                position = _skip_bytes(data, position)
        position = position + 1 if data[position] == 0 else _skip_headers(data, position)
        if position != end:
            raise DecodeError(
                f"record {index} of {record_count} claims {length} bytes, "
                f"its fields take {position - start}"
            )
    return end


def _skip_bytes(data: bytes, position: int) -> int:
    """The position behind a length and its bytes; may lie behind the data. Null takes no bytes."""
    length, position = read_varint(data, position)
    return position + max(length, 0)


def _skip_headers(data: bytes, position: int) -> int:
    count, position = read_varint(data, position)
    if count < 0:
        raise DecodeError(f"a record claims {count} headers")
    for _ in range(count):
        key_length, position = read_varint(data, position)
        if key_length < 0:
            raise DecodeError("a header has no key")
        position = _skip_bytes(data, position + key_length)
    return position
