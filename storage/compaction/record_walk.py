"""Keys and places of records, many in one call: all that compaction reads of them.

Numbers of one or two bytes, which nearly all are, are read in the loop itself: a call for each takes three times as
long. A record with any other is read once more by `read_varint`, which also says what is wrong.

Pure. Called by `rewrite.py`.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.varint import VARLONG_BITS, read_varint

WalkedRecord = tuple[int, int, int, int, bytes | None, bool]
"""Start of a record (its length) and its end, its timestamp delta, its offset delta, its key, and whether it is a
tombstone: it has a key and no value. A plain tuple, as there is one for each record."""

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
