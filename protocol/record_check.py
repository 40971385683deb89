"""Opens a produced batch and checks that its records are whole, as Kafka does with every batch.

A batch with a valid CRC can still hold nonsense if its producer is broken; stored, it would stop
every consumer of the partition at that offset. Any fault is 87 INVALID_RECORD, as in Kafka, which
however answers -1 to data that does not decompress. Two more differences: offset deltas must be 0,
1, 2 ... (Kafka rewrites a compressed batch and stores an uncompressed one as it is), and the
decompressed size of a batch is bounded.

There are two depths, because each record costs time: `check_framing` counts the records and checks
that their lengths add up; `check_records` walks through every field, at about three times the cost
(`docs/decisions/records.md` has figures). A batch that passes `check_records` can be read by
`records.read_records`.

A few KB can claim to be a million records, so an `Opening` keeps count of the work done for one
request: `check_at_once` opens what takes less than a millisecond, the rest is for `check_all` in a
thread. Called for client batches that passed `batch_validation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from echoless.protocol.compression import DECOMPRESSED_BYTES_MAX, decompress
from echoless.protocol.errors import DecodeError, ErrorCode, ExpansionError, KafkaError
from echoless.protocol.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    RECORD_BYTES_MIN,
    RECORDS_MAX,
    BatchHeader,
    Buffer,
    Codec,
)
from echoless.protocol.varint import VARLONG_BITS, read_varint

FRAMED_AT_ONCE_MAX: Final = 8192
"""Limit on the records of one request whose lengths are walked at once: 0.5 to 1 ms, twice that before a refusal."""
READ_AT_ONCE_MAX: Final = 1000
FIELDS_AT_ONCE_BYTES: Final = 16 * 1024
"""Limit on the bytes whose every field is checked at once; two of them may be a header of a record.
"""
DECOMPRESSED_AT_ONCE_BYTES: Final = 1024 * 1024
"""Limit on the bytes one request may decompress at once: 0.5 ms of lz4, 1 ms of zstd."""
_INPUT_WEIGHTS: Final = {Codec.GZIP: 256, Codec.SNAPPY: 2, Codec.LZ4: 4, Codec.ZSTD: 16}
"""Least weight of a compressed byte: gzip takes 30 us for an empty frame of 20 bytes."""
FIELDS_RECORDS_MAX: Final = 10_000
"""A first batch with more records is checked like any other: its framing alone."""
KEYLESS_MAX: Final = 1000
"""At most so many records without a key are named in an answer; one is enough to refuse the batch."""
HEADERS_MAX: Final = 1_000_000
"""Limit on the record headers of one batch that is opened field by field."""
_RECORD_LENGTH_MIN: Final = RECORD_BYTES_MIN - 1
_NULL: Final = 1
"""The length -1 as a varint."""
_LEAST_BYTE: Final = 2 * _RECORD_LENGTH_MIN
"""The shortest length of a record as a varint."""
_Walk = Callable[[Buffer, int, int], int]
"""Walks through so many records from a position on, and returns the position after the last one."""


class KeylessRecordsError(KafkaError):
    """Records without a key in a batch for a compacted topic; `indexes` are the first of them."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        super().__init__(
            ErrorCode.INVALID_RECORD, f"record {indexes[0]} has no key, and the topic is compacted"
        )
        self.indexes = indexes


class Opening:
    """The budget of one request for opening its batches.

    The full budget is the class's own: every request makes one of these, and most spend a little of it.
    """

    framed_at_once = FRAMED_AT_ONCE_MAX
    fields_at_once = FIELDS_AT_ONCE_BYTES
    decompressed_at_once = DECOMPRESSED_AT_ONCE_BYTES
    decompressed_bytes = DECOMPRESSED_BYTES_MAX
    """The total, at once and later; a request that would expand further is refused."""
    compressed_records = RECORDS_MAX


def is_quickly_opened(header: BatchHeader) -> bool:
    """Whether reading all records of a stored batch takes its reader 2 ms at most."""
    return header.codec_id == Codec.NONE and header.record_count <= READ_AT_ONCE_MAX


def check_at_once(
    batch: Buffer, header: BatchHeader, opening: Opening, *, needs_keys: bool = False
) -> bool:
    """Checks a batch that can be opened quickly; False: it cannot, and was not checked.

    `needs_keys`: every record must have one, whatever the batch's sequence. Raises `KafkaError`
    (INVALID_RECORD).
    """
    count, attributes = header.record_count, header.attributes
    if count > opening.framed_at_once:
        return False
    is_read = needs_keys or not header.base_sequence
    if not (is_read or attributes & CODEC_MASK):
        opening.framed_at_once -= count
        try:  # the usual batch: it spares 0.6 us of calls of `_check`, which says what is wrong with others
            if _walk_lengths(batch, count, HEADER_SIZE) == len(batch):
                return True
        except (DecodeError, IndexError):
            pass
        _check(_walk_lengths, batch, header, DECOMPRESSED_BYTES_MAX)
        return True
    if attributes & CODEC_MASK:
        return _check_compressed_at_once(
            batch, header, opening, is_read=is_read, needs_keys=needs_keys
        )
    if len(batch) > opening.fields_at_once:
        return False
    opening.framed_at_once -= count
    opening.fields_at_once -= _check_produced(
        batch, header, opening, DECOMPRESSED_BYTES_MAX, needs_keys=needs_keys
    )
    return True


def _check_compressed_at_once(
    batch: Buffer, header: BatchHeader, opening: Opening, *, is_read: bool, needs_keys: bool
) -> bool:
    limit = opening.fields_at_once if is_read else opening.decompressed_at_once
    least = len(batch) * _INPUT_WEIGHTS[Codec(header.codec_id)]
    if least > opening.decompressed_at_once or limit <= 0:
        return False
    opening.framed_at_once -= header.record_count
    try:
        size = _check_produced(batch, header, opening, limit, needs_keys=needs_keys)
    except ExpansionError:
        opening.decompressed_at_once -= limit  # the cost of finding out
        return False
    if is_read:
        opening.fields_at_once -= size
    opening.decompressed_at_once -= max(size, least)
    return True


def check_all(
    batch: Buffer, header: BatchHeader, opening: Opening, *, needs_keys: bool = False
) -> None:
    """Checks any batch, which may take a second: call it in a thread. Raises as `check_at_once`."""
    try:
        _check_produced(batch, header, opening, opening.decompressed_bytes, needs_keys=needs_keys)
    except ExpansionError as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batches of one request may decompress to {DECOMPRESSED_BYTES_MAX} bytes: {error}",
        ) from error


def _check_produced(
    batch: Buffer, header: BatchHeader, opening: Opening, bytes_max: int, *, needs_keys: bool
) -> int:
    """Checks every field of a producer's first batch, as a sample; else the framing only.

    With `needs_keys` every field of every batch is checked: compaction goes by keys and offset deltas. Returns the bytes of the records. Raises `KafkaError`, and `ExpansionError` above `bytes_max`.
    """
    is_read = header.base_sequence == 0 and header.record_count <= FIELDS_RECORDS_MAX
    walk = _walk_keyed if needs_keys else _walk_fields if is_read else _walk_lengths
    if not header.attributes & CODEC_MASK:
        return _check(walk, batch, header, bytes_max)
    if header.record_count > opening.compressed_records:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the compressed batches of one request may hold {RECORDS_MAX} records",
        )
    size = _check(walk, batch, header, min(bytes_max, opening.decompressed_bytes))
    opening.decompressed_bytes -= size
    opening.compressed_records -= header.record_count
    return size


def check_framing(
    batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> None:
    """Checks that the lengths of `record_count` records fill the batch exactly.

    `bytes_max` limits the decompressed size of the records. Raises `KafkaError` (INVALID_RECORD).
    """
    _check_whole(_walk_lengths, batch, header, bytes_max)


def check_records(
    batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> None:
    """Checks the framing and every field of all records.

    Arguments and errors as `check_framing`.
    """
    _check_whole(_walk_fields, batch, header, bytes_max)


def _check_whole(walk: _Walk, batch: Buffer, header: BatchHeader, bytes_max: int) -> None:
    try:
        _check(walk, batch, header, bytes_max)
    except ExpansionError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _check(walk: _Walk, batch: Buffer, header: BatchHeader, bytes_max: int) -> int:
    """Bytes of the records. Raises `KafkaError`, `ExpansionError`."""
    count = header.record_count
    try:
        data, begin = batch, HEADER_SIZE  # a copy of a large batch takes longer than it saves
        if header.attributes & CODEC_MASK:
            compressed = memoryview(batch)[HEADER_SIZE:]
            data = decompress(header.codec_id, compressed, bytes_max, one_frame=True)
            begin = 0
        size = len(data) - begin
        if count * RECORD_BYTES_MIN > size:
            raise DecodeError(f"{count} records cannot fit in {size} bytes")  # noqa: TRY301
        taken = walk(data, count, begin) - begin
    except ExpansionError:
        raise
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    except IndexError:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the batch ends before {count} records do"
        ) from None
    if taken != size:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{count} records take {taken} bytes, the batch holds {size}",
        )
    return taken


def _walk_lengths(data: Buffer, record_count: int, position: int) -> int:
    """The position after the last record. Raises `DecodeError`, or `IndexError` past the data."""
    for index in range(record_count):
        byte = data[position]
        if byte & 0x81 == 0 and byte >= _LEAST_BYTE:  # one byte, not negative
            position += 1 + (byte >> 1)
        elif byte & 0x81 == 0x80 and 0 < (second := data[position + 1]) < 0x80:
            position += 2 + (byte >> 1 & 0x3F | second << 6)
        else:
            length, start = read_varint(data, position)
            if length < _RECORD_LENGTH_MIN:
                raise DecodeError(f"record {index} of {record_count} claims {length} bytes")
            position = start + length
    return position


def _walk_fields(data: Buffer, record_count: int, position: int) -> int:
    """The same as `_walk_lengths`, but through every field of every record.

    Numbers of one byte, nearly all of them, are read in place: this loop is the cost per record.
    """
    end, headers_left = position, HEADERS_MAX
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
            if byte == _NULL:
                position += 1
            elif byte < 0x80 and not byte & 1:
                position += 1 + (byte >> 1)
            else:
                position = _skip_bytes(data, position)
        if data[position] == 0:
            position += 1
        else:
            headers_left, position = _skip_headers(data, position, headers_left)
        if position != end:
            raise DecodeError(
                f"record {index} of {record_count} claims {length} bytes, "
                f"its fields take {position - start}"
            )
    return end


def _walk_keyed(data: Buffer, record_count: int, position: int) -> int:
    """The same as `_walk_fields`; raises `KeylessRecordsError` as well."""
    end = _walk_fields(data, record_count, position)
    keyless: list[int] = []
    for index in range(record_count):
        length, start = read_varint(data, position)
        _, key = read_varint(data, start + 1, VARLONG_BITS)
        _, key = read_varint(data, key)
        if read_varint(data, key)[0] < 0:
            keyless.append(index)
            if len(keyless) == KEYLESS_MAX:
                break
        position = start + length
    if keyless:
        raise KeylessRecordsError(tuple(keyless))
    return end


def _skip_bytes(data: Buffer, position: int) -> int:
    """The position after a length and its bytes; may be past the end. Null takes no bytes.

    Raises `DecodeError` for other negative lengths: librdkafka would read no further.
    """
    length, position = read_varint(data, position)
    if length < -1:
        raise DecodeError(f"a key or value claims {length} bytes; -1 says that there is none")
    return position + max(length, 0)


def _skip_headers(data: Buffer, position: int, headers_left: int) -> tuple[int, int]:
    """Returns the number of headers that the remaining records may have, and the position after those of this one."""
    count, position = read_varint(data, position)
    if not 0 <= count <= headers_left:
        raise DecodeError(f"a record claims {count} headers; a batch may have {HEADERS_MAX} in all")
    for _ in range(count):
        key_length, position = read_varint(data, position)
        if key_length < 0:
            raise DecodeError("a header has no key")
        position = _skip_bytes(data, position + key_length)
    return headers_left - count, position
