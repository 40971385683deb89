"""Producer-state snapshots: the whole state comes back, and damage never passes for state."""

from __future__ import annotations

import contextlib
import itertools
import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.storage.file_system import StorageError
from echoless.storage.producers.record import WINDOW_MAX, encode_record, record_size
from echoless.storage.producers.snapshot import (
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    shift_times,
    write_snapshot,
)
from echoless.storage.producers.state import NONE_LOST, ProducerStates
from tests.fakes.memory_file_system import MemoryFileSystem, PowerFailure
from tests.storage.producers.entries import entries, producer_ids

PATH = "/00000000000000000042.snapshot"
ENTRY = ProducerEntry(3, 95, 1_763_685_000_123, (BatchMetadata(99, 1004, 4, 1_763_685_000_000, 7),))
GOLDEN = bytes.fromhex(
    "84"
    "a776657273696f6e 01"
    "a66f6666736574 cd03ed"
    "a677696e646f77 05"
    "a970726f647563657273 01"
    "c438"
    "d007000000000000"
    "bb63d1a39a010000 5f000000 0300 0100"
    "63000000 ec03000000000000 04000000 4063d1a39a010000 0700000000000000"
    "ce 67fcdbde"
)


def states_with(items: dict[int, ProducerEntry], window: int = 9) -> ProducerStates:
    """States that hold these entries, appended in this order."""
    states = ProducerStates(window)
    for producer_id, entry in items.items():
        states.put(producer_id, entry)
    return states


def sealed(*objects: Any) -> bytes:
    """Any msgpack objects followed by the checksum of a snapshot."""
    body = b"".join(msgpack.packb(each) for each in objects)
    return body + struct.pack(">BI", 0xCE, crc32c(body))


def header(**fields: Any) -> dict[str, Any]:
    """A good header with some fields changed."""
    return {"version": 1, "offset": 42, "window": 5, "producers": 1} | fields


def block_of(producer_id: int, entry: ProducerEntry = ENTRY) -> bytes:
    """A block of one entry."""
    return struct.pack("<q", producer_id) + encode_record(entry)


def test_golden_snapshot() -> None:
    """The bytes are those that the format page shows, and they are read back."""
    assert encode_snapshot(1005, states_with({2000: ENTRY}, window=5)) == GOLDEN
    snapshot = decode_snapshot(GOLDEN)
    assert (snapshot.offset, snapshot.window, snapshot.producers) == (1005, 5, 1)
    assert list(snapshot.items()) == [(2000, ENTRY)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**63 - 1), st.dictionaries(producer_ids, entries))
def test_round_trip(offset: int, items: dict[int, ProducerEntry]) -> None:
    """Ids, order, whole windows, offset and window size all come back."""
    snapshot = decode_snapshot(encode_snapshot(offset, states_with(items)))
    assert (snapshot.offset, snapshot.window, snapshot.producers) == (offset, 9, len(items))
    assert list(snapshot.items()) == list(items.items())
    loaded = ProducerStates(window=9)
    snapshot.load_into(loaded)
    assert list(loaded.items()) == list(items.items())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.dictionaries(producer_ids, entries), st.integers(-(2**65), 2**65))
def test_times_are_moved_and_nothing_else(items: dict[int, ProducerEntry], by_ms: int) -> None:
    """Every last append moves to another clock, as far as 64 bits go; the checksum fits."""
    data = encode_snapshot(42, states_with(items))
    shifted = decode_snapshot(shift_times(data, by_ms))
    most = 2**63 - 1
    assert (shifted.offset, shifted.window) == (42, 9)
    assert list(shifted.items()) == [
        (
            producer_id,
            replace(entry, last_append_ms=max(-most, min(entry.last_append_ms + by_ms, most))),
        )
        for producer_id, entry in items.items()
    ]
    assert bytes(shift_times(data, 0)) == data


def test_damage_is_found_before_times_are_moved() -> None:
    """A new checksum over damaged bytes would make them good."""
    damaged = bytearray(GOLDEN)
    damaged[70] ^= 1
    with pytest.raises(SnapshotError):
        shift_times(damaged, 5)


def test_many_blocks() -> None:
    """More producers than one block takes come back in order, live and packed ones."""
    items = dict.fromkeys(range(5000), ENTRY)
    snapshot = decode_snapshot(encode_snapshot(1, states_with(items)))
    assert len(snapshot.blocks) > 1
    assert dict(snapshot.items()) == items


def test_loading_replaces_and_obeys_the_partition() -> None:
    """Earlier state is dropped; the partition's own window and bound apply, newest first kept."""
    batches = tuple(BatchMetadata(9, offset, 9, 0, 1) for offset in range(9, 59, 10))
    items = {producer_id: ProducerEntry(0, 0, 0, batches) for producer_id in range(10)}
    states = ProducerStates(window=2, producers_max=3)
    states.put(99, ENTRY)
    decode_snapshot(encode_snapshot(1, states_with(items))).load_into(states)
    assert list(states.items()) == [
        (producer_id, ProducerEntry(0, 0, 0, batches[-2:])) for producer_id in (7, 8, 9)
    ]


def test_cut_off_at_any_byte_is_refused() -> None:
    """No beginning of a snapshot passes for a snapshot."""
    for size in range(len(GOLDEN)):
        with pytest.raises(SnapshotError):
            decode_snapshot(GOLDEN[:size])


def test_any_flipped_bit_is_refused() -> None:
    """One wrong bit anywhere, the checksum included, is found."""
    for position in range(len(GOLDEN)):
        for bit in range(8):
            damaged = bytearray(GOLDEN)
            damaged[position] ^= 1 << bit
            with pytest.raises(SnapshotError):
                decode_snapshot(bytes(damaged))


def test_bytes_left_over_are_refused() -> None:
    """A snapshot ends with its checksum."""
    with pytest.raises(SnapshotError):
        decode_snapshot(GOLDEN + b"\0")


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((), "too few"),
        ((7,), "header"),
        ((header(version=3), block_of(1)), "written by a newer version"),
        ((header(version=None), block_of(1)), "version None"),
        ((header(offset=-1), block_of(1)), "offset"),
        ((header(offset=True), block_of(1)), "offset"),
        ((header(window=0), block_of(1)), "window"),
        ((header(window=WINDOW_MAX + 1), block_of(1)), "window"),
        ((header(producers=2), block_of(1)), "promises 2"),
        ((header(producers=0), block_of(1)), "promises 0"),
        ((header(), 7), "a int is in the place"),
        ((header(), "text"), "a str is in the place"),
        ((header(), [1]), "shape"),
        ((header(), block_of(1)[:-1]), "claims 1 batches"),
        ((header(), block_of(1) + b"\0"), "left over"),
        ((header(), block_of(-1)), "producer id -1"),
        ((header(window=1), block_of(1, ProducerEntry(0, 0, 0, ENTRY.batches * 2))), "2 batches"),
        ((header(more=list(range(1000))), block_of(1)), "shape"),
        ((header(), b"\0" * (2 << 20)), "shape"),
    ],
)
def test_nonsense_under_a_good_checksum_is_refused(objects: tuple[Any, ...], reason: str) -> None:
    """A checksum proves that bytes arrived, not that they make sense; the message says what fails."""
    with pytest.raises(SnapshotError, match=reason):
        decode_snapshot(sealed(*objects))


def test_the_lowest_lost_id_is_kept() -> None:
    """A partition that is opened again, or copied, knows that it has forgotten an older producer."""
    states = states_with({2000: ENTRY}, window=5)
    states.lose_from(1999)
    loaded = ProducerStates()
    decode_snapshot(encode_snapshot(1, states.freeze())).load_into(loaded)
    assert loaded.lost_from == 1999
    decode_snapshot(GOLDEN).load_into(loaded)
    assert loaded.lost_from == NONE_LOST


def test_forgotten_producers_are_kept_apart() -> None:
    """They are no producers of the partition, and go on from where they were."""
    states = ProducerStates(5, producers_max=1, forgotten_max=2)
    for producer_id in (1, 2, 3):
        states.put(producer_id, ENTRY)
    loaded = ProducerStates(5, forgotten_max=2)
    decode_snapshot(encode_snapshot(1, states.freeze())).load_into(loaded)
    assert ([one for one, _ in loaded.items()], loaded.forgotten_count) == ([3], 2)
    assert [loaded.get(producer_id) for producer_id in (1, 2, 3)] == [ENTRY] * 3
    assert loaded.lost_from == NONE_LOST
    decode_snapshot(encode_snapshot(1, states)).load_into(
        less := ProducerStates(5, forgotten_max=1)
    )
    assert (less.get(1), less.get(2), less.lost_from) == (None, ENTRY, 1)


def test_earlier_versions_take_forgotten_producers_for_known_ones() -> None:
    """They ignore what the header says of them: the oldest producers, which are about to expire."""
    states = ProducerStates(5, producers_max=1, forgotten_max=2)
    for producer_id in (1, 2):
        states.put(producer_id, ENTRY)
    snapshot = decode_snapshot(encode_snapshot(1, states))
    earlier = ProducerStates(5)
    earlier.load(snapshot.records(), snapshot.producers, snapshot.window)
    assert [one for one, _ in earlier.items()] == [1, 2]


def test_unknown_header_fields_are_ignored() -> None:
    """A later release may add a field without a new version."""
    assert decode_snapshot(sealed(header(term=7), block_of(1))).producers == 1


def test_id_named_twice_counts_once() -> None:
    """The later entry of an id replaces the earlier one, so no id is in the table twice."""
    newer = ProducerEntry(4, 0, 0, ())
    data = sealed(header(producers=2), block_of(1) + block_of(1, newer))
    states = ProducerStates()
    decode_snapshot(data).load_into(states)
    assert list(states.items()) == [(1, newer)]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_hostile_bytes_raise_nothing_else(body: bytes) -> None:
    """Whatever bytes have a good checksum, the result is a snapshot or a `SnapshotError`."""
    data = body + struct.pack(">BI", 0xCE, crc32c(body))
    with contextlib.suppress(SnapshotError):
        decode_snapshot(data)


@pytest.mark.parametrize("kind", [b"\xc6", b"\xdb", b"\xdd", b"\xdf", b"\xc9"])
def test_claimed_sizes_take_no_memory(kind: bytes) -> None:
    """A length of 4 GB in a few bytes is refused without room being made for it."""
    body = msgpack.packb(header(window=WINDOW_MAX)) + kind + b"\xff\xff\xff\xff"
    data = body + struct.pack(">BI", 0xCE, crc32c(body))
    tracemalloc.start()
    with pytest.raises(SnapshotError):
        decode_snapshot(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_claimed_window_takes_no_memory() -> None:
    """However wide a peer says its window is, slots are as wide as the partition's own."""
    blocks = b"".join(block_of(i, ProducerEntry(0, 0, 0, ())) for i in range(1000))
    states = ProducerStates(window=5)
    decode_snapshot(sealed(header(window=WINDOW_MAX, producers=1000), blocks)).load_into(states)
    assert len(states) == 1000
    assert states._plain._packed._slot_size == record_size(5)


def test_file_round_trip() -> None:
    """A written snapshot is read back from its file, and no other file is left."""
    fs = MemoryFileSystem()
    write_snapshot(fs, PATH, 42, states_with({1: ENTRY}))
    assert dict(read_snapshot(fs, PATH).items()) == {1: ENTRY}
    assert fs.list_directory("/") == [PATH.lstrip("/")]


@pytest.mark.parametrize("survival", [0, 1, 2, 100])
def test_power_failure_leaves_no_half_snapshot(survival: int) -> None:
    """Whenever the power fails during the write, the file is not there or whole."""
    for operation in itertools.count():
        fs = MemoryFileSystem()
        fs.lose_power_at = operation
        try:
            write_snapshot(fs, PATH, 42, states_with({1: ENTRY}))
        except PowerFailure:
            survivor = fs.after_power_loss(lambda count: min(count, survival))
            assert not survivor.exists(PATH) or read_snapshot(survivor, PATH).producers == 1
        else:
            assert read_snapshot(fs.after_power_loss(), PATH).producers == 1
            return


def test_damaged_file_is_named() -> None:
    """The error says which file is damaged, and how."""
    fs = MemoryFileSystem()
    fs.write_atomic(PATH, GOLDEN[:-1])
    with pytest.raises(SnapshotError, match=r"0042\.snapshot: .*cut off"):
        read_snapshot(fs, PATH)


def test_missing_file_is_a_storage_error() -> None:
    """A file that cannot be read is the disk's trouble, not the snapshot's."""
    with pytest.raises(StorageError):
        read_snapshot(MemoryFileSystem(), PATH)
