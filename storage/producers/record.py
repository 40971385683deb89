"""One producer's entry as bytes: the form of idle producers in memory, and of snapshots on disk.

Little-endian, so that packing is a copy on the machines we run on:
    last_append_ms i64 | run_start i32 | producer_epoch i16 | batch_count u16 |
    batch_count x (last_sequence i32 | last_offset i64 | offset_delta i32 | timestamp i64 | crc i64)
batches oldest first; a crc of -1 means that the batch has none (the broker changed its bytes), and
then the highest bit of batch_count is set, so that the usual record is read without checking each.

Called by the packed table and the snapshots. Knows nothing of either, nor of producer ids.
"""

from __future__ import annotations

import struct
from itertools import chain, repeat
from typing import Final

from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.record_batch import Buffer

RECORD_HEAD: Final = struct.Struct("<qihH")
BATCH: Final = struct.Struct("<iqiqq")
_APPEND_MS: Final = struct.Struct("<q")
_INT64_MAX: Final = 2**63 - 1
assert RECORD_HEAD.size == 16
assert BATCH.size == 32

WINDOW_MAX: Final = 1024
"""The widest window that a partition can have; it bounds the size of a record."""
NO_CRC: Final = -1
COUNT_MASK: Final = 0x7FFF
_LACKS_CRC: Final = 0x8000

_BATCH_COUNT: Final = struct.Struct("<H")
_BATCH_COUNT_POSITION: Final = 14
_LAYOUTS: Final[dict[int, struct.Struct]] = {}
"""Batch count -> layout of the whole record; at most `WINDOW_MAX` of them."""


def record_size(batch_count: int) -> int:
    """The size in bytes of a record with that many batches."""
    return RECORD_HEAD.size + batch_count * BATCH.size


def encode_record(entry: ProducerEntry) -> bytes:
    """Encodes the entry, whose window has at most `WINDOW_MAX` batches."""
    batches = entry.batches
    count = len(batches)
    layout = _LAYOUTS.get(count) or _layout(count)
    head = (entry.last_append_ms, entry.run_start, entry.producer_epoch)
    try:
        return layout.pack(*head, count, *chain.from_iterable(batches))
    except struct.error:  # a crc is None, the rare case; testing each of them first would cost more
        marked = (b if b.crc is not None else b._replace(crc=NO_CRC) for b in batches)
        return layout.pack(*head, count | _LACKS_CRC, *chain.from_iterable(marked))


def decode_record(record: Buffer) -> ProducerEntry:
    """Decodes a record; bytes after it are ignored."""
    last_append_ms, run_start, producer_epoch, count = RECORD_HEAD.unpack_from(record)
    packed = memoryview(record)[RECORD_HEAD.size : record_size(count & COUNT_MASK)]
    # `_make` takes 0.8 us longer for the five batches of a window, 3 to 4 % of a produce.
    batches = tuple(map(tuple.__new__, repeat(BatchMetadata), BATCH.iter_unpack(packed)))
    if count & _LACKS_CRC:
        batches = tuple(b if b.crc != NO_CRC else b._replace(crc=None) for b in batches)
    return ProducerEntry(producer_epoch, run_start, last_append_ms, batches)


def read_append_ms(record: Buffer) -> int:
    """Reads the time at which the newest batch was appended."""
    (last_append_ms,) = _APPEND_MS.unpack_from(record)
    return int(last_append_ms)


def write_append_ms(record: memoryview, append_ms: int) -> None:
    """Changes the time of the newest append, in place, limited to 64 bits."""
    _APPEND_MS.pack_into(record, 0, max(-_INT64_MAX, min(append_ms, _INT64_MAX)))


def read_batch_count(record: Buffer) -> int:
    """Reads the number of batches."""
    (count,) = _BATCH_COUNT.unpack_from(record, _BATCH_COUNT_POSITION)
    return int(count) & COUNT_MASK


def trim_record(record: Buffer, window: int) -> Buffer:
    """Returns the record without bytes after it, with the newest `window` batches at most."""
    count = read_batch_count(record)
    if count <= window:
        return memoryview(record)[: record_size(count)]
    (marked_count,) = _BATCH_COUNT.unpack_from(record, _BATCH_COUNT_POSITION)
    trimmed = bytearray(record[: RECORD_HEAD.size])
    trimmed += record[record_size(count - window) : record_size(count)]
    _BATCH_COUNT.pack_into(trimmed, _BATCH_COUNT_POSITION, marked_count - count + window)
    return trimmed


def _layout(count: int) -> struct.Struct:
    assert count <= WINDOW_MAX, f"a window of {count} batches, at most {WINDOW_MAX} can be kept"
    layout = struct.Struct(RECORD_HEAD.format + BATCH.format.lstrip("<") * count)
    return _LAYOUTS.setdefault(count, layout)
