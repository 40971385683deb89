"""Keys and places of records, many in one call: all that compaction reads of them.

Numbers of one or two bytes, which nearly all are, are read in the loop itself: a call for each takes three times as
long. A record with any other is read once more by `read_varint`, which also says what is wrong. There are three loops, as
a record costs a third of a microsecond less where only what is needed of it is read: whole records, their keys alone, and
some of them.

Pure. Called by `rewrite.py`.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.varint import VARLONG_BITS, read_varint
from echoless.storage.compaction.key_map import DIGEST_BYTES, short_key

WalkedRecord = tuple[int, int, int, int, bytes | None, bool]
"""Start of a record (its length) and its end, its timestamp delta, its offset delta, its key, and whether it is a
tombstone: it has a key and no value. A plain tuple, as there is one for each record."""

KeptRecord = tuple[int, int, int]
"""Begin, end and timestamp delta of a record that stays."""

_SHORT_KEY: Final = 2 * DIGEST_BYTES
"""Size of the longest key that the map holds as it is, as encoded."""
_UNUSUAL: Final = 0x4001
"""Bits of a number as encoded that is negative, or takes more than two bytes."""
_LONG: Final = 0x4000


def read_records(data: bytes, position: int, count: int) -> list[WalkedRecord]:
    """Reads `count` records, the first one at `position`. Raises `DecodeError`."""
    found: list[WalkedRecord] = []
    add, size, end = found.append, len(data), position
    for _ in range(count):
        begin = end
        try:  # a number is two bytes if the first one says that it goes on: 0x80 too much, so the second counts less 1
            length, at = data[begin], begin + 1
            if length > 0x7F:
                length, at = length + (data[at] - 1 << 7), at + 1
            end = at + (length >> 1)
            timestamp, at = data[at + 1], at + 2
            if timestamp > 0x7F:
                timestamp, at = timestamp + (data[at] - 1 << 7), at + 1
            offset, at = data[at], at + 1
            if offset > 0x7F:
                offset, at = offset + (data[at] - 1 << 7), at + 1
            key, at = data[at], at + 1
            if key > 0x7F:
                key, at = key + (data[at] - 1 << 7), at + 1
            key_end = at + (key >> 1)
            value = data[key_end]
            if value > 0x7F:
                value += data[key_end + 1] - 1 << 7
        except IndexError:
            value = _LONG
        if end > size or value & _LONG or (length | timestamp | offset | key) & _UNUSUAL:
            record = _read_record(data, begin)
            end = record[1]
            add(record)
        else:
            tombstone = value & 1 == 1
            add((begin, end, timestamp >> 1, offset >> 1, data[at:key_end], tombstone))
    return found


def note_records(
    data: bytes, position: int, indexes: range, offsets: dict[bytes, int], base_offset: int
) -> tuple[int, bool]:
    """Puts the offset of each key into the map: of a batch's records with these indexes, the first one at `position`.

    Returns the end of the last one, and whether the offset delta of each is its index. Raises `DecodeError`.
    """
    end, size, is_dense = position, len(data), True
    for index in indexes:
        begin = end
        try:  # numbers as in `read_records`
            length, at = data[begin], begin + 1
            if length > 0x7F:
                length, at = length + (data[at] - 1 << 7), at + 1
            end = at + (length >> 1)
            timestamp, at = data[at + 1], at + 2
            if timestamp > 0x7F:
                timestamp, at = timestamp + (data[at] - 1 << 7), at + 1
            offset, at = data[at], at + 1
            if offset > 0x7F:
                offset, at = offset + (data[at] - 1 << 7), at + 1
            key_end = at + 1 + (data[at] >> 1)
            is_usual = data[at] <= _SHORT_KEY and (data[key_end] < 0x80 or data[key_end + 1] < 0x80)
        except IndexError:
            is_usual = False
        if (
            not is_usual
            or end > size
            or timestamp & _LONG
            or (length | offset | data[at]) & _UNUSUAL
        ):
            _, end, _, delta, key, _ = _read_record(data, begin)
            if key is not None:
                offsets[short_key(key)] = base_offset + delta
            is_dense &= delta == index
        else:
            offsets[data[at + 1 : key_end]] = base_offset + (offset >> 1)
            is_dense &= offset == index << 1
    return end, is_dense


def read_marked(data: bytes, position: int, marks: bytes) -> tuple[list[KeptRecord], int, bool]:
    """Reads the records whose mark is not 0; there is one for each record in turn, the first one at `position`.

    Returns them, the end of the last record, and whether one that was read is a tombstone. `note_records` has read the
    same bytes, so nothing is wrong with them. Raises `DecodeError`.
    """
    found: list[KeptRecord] = []
    add, end, has_tombstone = found.append, position, False
    for is_marked in marks:
        begin = end
        length, at = data[begin], begin + 1
        if length > 0x7F:
            length, at = length + (data[at] - 1 << 7), at + 1
        end = _read_record(data, begin)[1] if length & _UNUSUAL else at + (length >> 1)
        if not is_marked:
            continue
        timestamp, at = data[at + 1], at + 2
        if timestamp > 0x7F:
            timestamp, at = timestamp + (data[at] - 1 << 7), at + 1
        at += 1 if data[at] < 0x80 else 2
        key = data[at]
        key_end = at + 1 + (key >> 1)
        if (
            timestamp & _UNUSUAL
            or length & _UNUSUAL
            or data[at - 1] > 0x7F
            or key > 0x7F
            or key & 1
        ):
            _, _, delta, _, _, is_tombstone = _read_record(data, begin)
            add((begin, end, delta))
            has_tombstone |= is_tombstone
        else:
            add((begin, end, timestamp >> 1))
            if data[key_end] & 1:
                has_tombstone |= read_varint(data, key_end)[0] < 0
    return found, end, has_tombstone


def _read_record(data: bytes, begin: int) -> WalkedRecord:
    """Reads any record."""
    length, start = read_varint(data, begin)
    end = start + length
    if length < 0 or end > len(data):
        raise DecodeError(f"a record claims {length} bytes, {len(data) - start} are left for it")
    timestamp_delta, at = read_varint(data, start + 1, VARLONG_BITS)
    offset_delta, at = read_varint(data, at)
    length, at = read_varint(data, at)
    if length < 0:
        return begin, end, timestamp_delta, offset_delta, None, False
    key_end = at + length
    is_tombstone = read_varint(data, key_end)[0] < 0
    return begin, end, timestamp_delta, offset_delta, data[at:key_end], is_tombstone
