"""Records are read many at a time as they are one number after the other, and refused for the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.varint import VARLONG_BITS, read_varint, write_varint
from echoless.storage.compaction.key_map import short_key
from echoless.storage.compaction.record_walk import (
    WalkedRecord,
    note_records,
    read_marked,
    read_records,
)


def plain_read(data: bytes, position: int, count: int) -> list[WalkedRecord]:
    """The same by `read_varint` alone."""
    found: list[WalkedRecord] = []
    end = position
    for _ in range(count):
        begin = end
        length, start = read_varint(data, begin)
        end = start + length
        if length < 0 or end > len(data):
            raise DecodeError("a length that cannot be")
        timestamp_delta, at = read_varint(data, start + 1, VARLONG_BITS)
        offset_delta, at = read_varint(data, at)
        key_length, at = read_varint(data, at)
        if key_length < 0:
            found.append((begin, end, timestamp_delta, offset_delta, None, False))
            continue
        key_end = at + key_length
        is_tombstone = read_varint(data, key_end)[0] < 0
        found.append((begin, end, timestamp_delta, offset_delta, data[at:key_end], is_tombstone))
    return found


def outcome(read: object, data: bytes, position: int, count: int) -> object:
    try:
        return read(data, position, count)  # type: ignore[operator]
    except DecodeError:
        return DecodeError


def encode(timestamp: int, offset: int, key: bytes | None, value: bytes | None) -> bytes:
    record = bytearray(b"\x00")
    write_varint(record, timestamp)
    write_varint(record, offset)
    for field in (key, value):
        write_varint(record, -1 if field is None else len(field))
        record += field or b""
    record.append(0)
    whole = bytearray()
    write_varint(whole, len(record))
    return bytes(whole + record)


def sizes(*edges: int) -> st.SearchStrategy[bytes]:
    """Bytes whose length takes one byte more from each of the edges on."""
    around = st.sampled_from([n for edge in edges for n in (edge - 1, edge)])
    return st.one_of(st.integers(0, 20), around).map(lambda size: b"k" * size)


EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31 - 1, -(2**31)]
records = st.builds(
    encode,
    st.one_of(st.sampled_from([*EDGES, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.sampled_from(EDGES), st.integers(0, 2**31 - 1)),
    st.none() | sizes(64, 8192),
    st.none() | sizes(64, 8192),
)


@given(st.lists(records, max_size=6), st.integers(0, 3))
def test_records_are_read_as_one_number_after_the_other(written: list[bytes], before: int) -> None:
    """Numbers of any width, keys and values of any size or none, from any position on."""
    data = b"\xff" * before + b"".join(written)
    found = read_records(data, before, len(written))
    assert found == plain_read(data, before, len(written))
    assert [end - begin for begin, end, *_ in found] == [len(record) for record in written]


@given(
    st.lists(records, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 100),
)
@example([encode(1, 1, b"k", b"v")], [(1, 0x80), (2, 0x80)], 0)
def test_damaged_records_are_refused_alike(
    written: list[bytes], changes: list[tuple[int, int]], cut: int
) -> None:
    """Any bytes changed, and any end cut off: the same records, or refused by both."""
    data = bytearray(b"".join(written))
    for at, byte in changes:
        data[at % len(data)] = byte
    damaged = bytes(data[: len(data) - cut % len(data)])
    count = len(written)
    assert outcome(read_records, damaged, 0, count) == outcome(plain_read, damaged, 0, count)


@given(st.binary(max_size=40), st.integers(1, 5))
def test_bytes_of_any_kind_are_read_or_refused_alike(data: bytes, count: int) -> None:
    assert outcome(read_records, data, 0, count) == outcome(plain_read, data, 0, count)


def test_a_refusal_names_what_is_wrong() -> None:
    """A record that claims more bytes than there are."""
    with pytest.raises(DecodeError, match="a record claims 8 bytes, 7 are left for it"):
        read_records(encode(1, 1, b"k", b"v")[:-1], 0, 1)


def noted(data: bytes, position: int, count: int) -> object:
    """The map, the end, and whether offsets rise one by one, by the loop that fills the map."""
    offsets: dict[bytes, int] = {}
    end, is_dense = note_records(data, position, range(2, 2 + count), offsets, 1000)
    return offsets, end, is_dense


def plainly_noted(data: bytes, position: int, count: int) -> object:
    found = plain_read(data, position, count)
    offsets = {short_key(key): 1000 + delta for _, _, _, delta, key, _ in found if key is not None}
    deltas = [delta for _, _, _, delta, _, _ in found]
    return offsets, found[-1][1], deltas == [*range(2, 2 + count)]


@given(st.lists(records, min_size=1, max_size=6), st.integers(0, 3))
def test_keys_are_noted_as_the_records_are_read(written: list[bytes], before: int) -> None:
    data = b"\xff" * before + b"".join(written)
    assert noted(data, before, len(written)) == plainly_noted(data, before, len(written))


@given(st.integers(0, 70), st.integers(-1, 5))
def test_offsets_that_rise_one_by_one_are_seen_as_such(count: int, odd: int) -> None:
    """One that is another is seen, wherever it is."""
    deltas = [2 + index + (index == odd) for index in range(count + 1)]
    data = b"".join(encode(1, delta, b"k", b"v") for delta in deltas)
    assert noted(data, 0, len(deltas)) == plainly_noted(data, 0, len(deltas))


@given(
    st.lists(records, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 100),
)
def test_keys_of_damaged_records_are_refused_alike(
    written: list[bytes], changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(written))
    for at, byte in changes:
        data[at % len(data)] = byte
    damaged = bytes(data[: len(data) - cut % len(data)])
    count = len(written)
    assert outcome(noted, damaged, 0, count) == outcome(plainly_noted, damaged, 0, count)


@given(st.lists(st.tuples(records, st.booleans()), min_size=1, max_size=8), st.integers(0, 3))
def test_marked_records_are_read_as_all_are(chosen: list[tuple[bytes, bool]], before: int) -> None:
    """Begin, end, and timestamp of those alone, and whether one of those is a tombstone."""
    data = b"\xff" * before + b"".join(record for record, _ in chosen)
    marks = bytes(is_chosen for _, is_chosen in chosen)
    every = plain_read(data, before, len(chosen))
    some = [record for record, is_chosen in zip(every, marks, strict=True) if is_chosen]
    assert read_marked(data, before, marks) == (
        [record[:3] for record in some],
        len(data),
        any(is_tombstone for *_, is_tombstone in some),
    )
