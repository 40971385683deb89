"""One batch and what is known of its keys -> the bytes that replace it.

A record below the end of the key map stays if it has a key, no newer record has the same, and it is no
tombstone whose time is over. The batch then:

all records stay             the same bytes
some stay                    rebuilt: offsets, sequences, producer, epochs, codec and type of timestamp as they
                             were; fewer records, their offset deltas unchanged; a new length, CRC, and
                             max timestamp (unless it is the log append time)
a tombstone for the first    rebuilt as well: attribute bit 6, and the base timestamp becomes the time from
time (KIP-534)               which on it may go
none stays                   the header alone if a producer's window has the batch; otherwise nothing, or again
                             the header alone if it ends the new segment (`cleaning.py`)
of an aborted transaction    none of its records stays, and none of them hides an older one
a marker                     see `transactions.py`; it gets a time to go as a tombstone does

Invariant: a batch in the window of a live producer never vanishes, so a log that is replayed, here or by a new
replica, knows what a repeat is (hazard H10).

Pure: generators that yield between records, so that a caller can pause. Called by `cleaning.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from echoless.protocol.compression import compress, decompress
from echoless.protocol.control_records import read_marker
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Codec,
    seal_batch,
)
from echoless.protocol.varint import VARLONG_BITS, read_varint, write_varint
from echoless.storage.compaction.key_map import DIGEST_BYTES, KeyMap, NewestOffsets, short_key
from echoless.storage.compaction.record_walk import (
    KeptRecord,
    note_records,
    read_marked,
    read_records,
)
from echoless.storage.compaction.transactions import TransactionCopy, TransactionOutcomes

PAUSE_RECORDS: Final = 256
"""A generator yields after so many records: a quarter of a millisecond."""


@dataclass(slots=True, kw_only=True)
class CleaningRules:
    """Everything that a pass knows when it judges batches."""

    keys: KeyMap
    newest: NewestOffsets
    now_ms: int
    delete_retention_ms: int
    is_remembered: Callable[[int], bool]
    """Whether the batch that ends at this offset is in the window of a live producer."""
    transactions: TransactionCopy
    horizon_ms: int | None = None
    """The time from which on the first tombstone or marker that was met and kept may go."""

    def note_horizon(self, horizon_ms: int) -> None:
        """Notes a tombstone, or a marker, that stays until then."""
        if self.horizon_ms is None or horizon_ms < self.horizon_ms:
            self.horizon_ms = horizon_ms


class _Survivors(NamedTuple):
    """The records of one batch that stay."""

    data: bytes
    """All records, decompressed."""
    records: list[KeptRecord]
    has_tombstone: bool
    """Whether any of them is a tombstone below the map's end."""


def note_keys(
    batch: Buffer, header: BatchHeader, keys: KeyMap, outcomes: TransactionOutcomes
) -> Generator[None, None, None]:
    """Puts the newest offset of each key of a whole batch into the map. Raises `DecodeError`."""
    if header.is_control:
        outcomes.take_aborted(header)
        return
    if header.is_transactional and outcomes.is_aborted(header):
        return
    if not header.record_count:
        return
    data = _records_of(batch, header)
    end, are_dense = 0, True
    for indexes in _portions(header.record_count):
        if end:
            yield
        end, is_dense = note_records(data, end, indexes, keys.offsets, header.base_offset)
        are_dense &= is_dense
    keys.is_dense &= are_dense or not _is_dense(header)
    _check_end(data, end, header)


def rewritten(
    batch: Buffer, header: BatchHeader, verdict: CleaningRules
) -> Generator[None, None, Buffer | None]:
    """Returns the bytes that replace a whole batch; None: it goes. Raises `DecodeError`."""
    if header.is_control:
        return (yield from _rewritten_marker(batch, header, verdict))
    is_aborted = header.is_transactional and verdict.transactions.is_aborted(header)
    if header.base_offset >= verdict.keys.end_offset:
        return batch
    kept = None
    if header.record_count and not is_aborted:
        kept = yield from _survivors(batch, header, verdict)
    if kept is None or not kept.records:
        if not verdict.is_remembered(header.last_offset):
            return None
        return emptied(header) if header.record_count else batch
    if kept.has_tombstone:
        verdict.note_horizon(
            header.base_timestamp
            if header.has_delete_horizon
            else verdict.now_ms + verdict.delete_retention_ms
        )
    has_new_horizon = kept.has_tombstone and not header.has_delete_horizon
    if len(kept.records) == header.record_count and not has_new_horizon:
        return batch
    return (yield from _rebuilt(header, kept, verdict, has_new_horizon=has_new_horizon))


def _rewritten_marker(
    batch: Buffer, header: BatchHeader, verdict: CleaningRules
) -> Generator[None, None, Buffer | None]:
    """The same for a control batch."""
    marker = read_marker(batch)
    if marker is None:
        return batch if header.record_count else None
    if verdict.transactions.is_needed(header, marker):
        return batch
    if header.base_offset >= verdict.keys.end_offset:
        return batch
    if not header.has_delete_horizon:
        verdict.note_horizon(verdict.now_ms + verdict.delete_retention_ms)
        data = bytes(memoryview(batch)[HEADER_SIZE:])
        ((begin, end, delta, *_),) = read_records(data, 0, 1)
        kept = _Survivors(data, [(begin, end, delta)], has_tombstone=False)
        return (yield from _rebuilt(header, kept, verdict, has_new_horizon=True))
    if header.base_timestamp > verdict.now_ms:
        verdict.note_horizon(header.base_timestamp)
        return batch
    return batch if verdict.transactions.is_open_in_snapshot(header.producer_id) else None


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records: 61 bytes that keep its offsets, its producer and its sequences."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return seal_batch(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


def _survivors(
    batch: Buffer, header: BatchHeader, verdict: CleaningRules
) -> Generator[None, None, _Survivors]:
    if _is_dense(header) and not header.has_delete_horizon:
        marks = verdict.newest.between(header.base_offset, header.next_offset)
        if marks is not None:
            return (yield from _marked(batch, header, marks))
    data = _records_of(batch, header)
    newest, map_end = verdict.keys.offsets.get, verdict.keys.end_offset
    base_offset = header.base_offset
    is_over = header.has_delete_horizon and header.base_timestamp <= verdict.now_ms
    kept: list[KeptRecord] = []
    has_tombstone = False
    end = 0
    for indexes in _portions(header.record_count):
        if end:
            yield
        records = read_records(data, end, len(indexes))
        for begin, end, delta, offset_delta, key, is_tombstone in records:
            offset = base_offset + offset_delta
            if offset < map_end:
                if key is None:
                    continue
                if len(key) > DIGEST_BYTES:
                    key = short_key(key)  # noqa: PLW2901
                if offset < newest(key, -1) or (is_tombstone and is_over):
                    continue
                has_tombstone |= is_tombstone
            kept.append((begin, end, delta))
    _check_end(data, end, header)
    return _Survivors(data, kept, has_tombstone)


def _marked(batch: Buffer, header: BatchHeader, marks: bytes) -> Generator[None, None, _Survivors]:
    """The same of a batch whose keys are in the map, by the marks of its records."""
    kept: list[KeptRecord] = []
    if 1 not in marks:
        return _Survivors(b"", kept, has_tombstone=False)
    data = _records_of(batch, header)
    has_tombstone = False
    end = 0
    for indexes in _portions(len(marks)):
        if end:
            yield
        found, end, is_one = read_marked(data, end, marks[indexes.start : indexes.stop])
        kept += found
        has_tombstone |= is_one
    _check_end(data, end, header)
    return _Survivors(data, kept, has_tombstone)


def _rebuilt(
    header: BatchHeader, kept: _Survivors, verdict: CleaningRules, *, has_new_horizon: bool
) -> Generator[None, None, bytes]:
    """The batch with its survivors alone.

    Deltas of timestamps stay, and so does the base timestamp, unless it becomes a tombstone's horizon.
    """
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if has_new_horizon:
        base_timestamp = verdict.now_ms + verdict.delete_retention_ms
        attributes |= DELETE_HORIZON_BIT
    shift = header.base_timestamp - base_timestamp
    body, data = bytearray(), kept.data
    newest = NO_TIMESTAMP
    for indexes in _portions(len(kept.records)):
        if body:
            yield
        some = kept.records[indexes.start : indexes.stop]
        newest = max(newest, *[_int64(header.base_timestamp + delta) for _, _, delta in some])
        if shift:
            for begin, end, delta in some:
                _put_shifted(body, data, begin, end, _int64(delta + shift))
        else:
            body += b"".join([data[begin:end] for begin, end, _ in some])
    return seal_batch(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else newest,
            record_count=len(kept.records),
        ),
        compress(Codec(header.codec_id), body),
    )


def _int64(value: int) -> int:
    """The value as readers compute it, in 64 bits: any producer may send a timestamp at their end."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63


def _put_shifted(body: bytearray, data: bytes, begin: int, end: int, delta: int) -> None:
    """Appends the record between these positions, with another timestamp delta."""
    _, start = read_varint(data, begin)
    _, after = read_varint(data, start + 1, VARLONG_BITS)
    record = bytearray(data[start : start + 1])
    write_varint(record, delta)
    record += data[after:end]
    write_varint(body, len(record))
    body += record


def _records_of(batch: Buffer, header: BatchHeader) -> bytes:
    return bytes(decompress(header.codec_id, memoryview(batch)[HEADER_SIZE:]))


def _portions(count: int) -> Iterator[range]:
    """Yields the indexes of the records to read before each pause."""
    for done in range(0, count, PAUSE_RECORDS):
        yield range(done, min(done + PAUSE_RECORDS, count))


def _is_dense(header: BatchHeader) -> bool:
    """Whether the batch has a record for each of its offsets, as clients send them."""
    return header.record_count == header.last_offset_delta + 1


def _check_end(data: Buffer, end: int, header: BatchHeader) -> None:
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes follow {header.record_count} records")
