"""Walking a segment file yields its batches, and stops at exactly the first damage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echoless.protocol.record_batch import read_header
from echoless.storage.batch_reader import PlacedBatch, PlacedHeader, read_batches, read_headers
from echoless.storage.file_system import CorruptLogError, File
from tests.storage.log_workload import make_batch, new_file_system, stamped

BATCHES = [stamped(make_batch(size=size), offset, 0) for offset, size in enumerate([5, 900, 60])]
ENDS = [sum(len(batch.data) for batch in BATCHES[: n + 1]) for n in range(3)]


def file_of(data: bytes) -> File:
    file = new_file_system().open("/data/x.log", create=True)
    if data:
        file.append([data])
    return file


def whole_file() -> bytes:
    return b"".join(batch.data for batch in BATCHES)


@pytest.mark.parametrize("chunk_bytes", [61, 100, 1000, 100_000])
def test_headers_are_read_in_chunks_of_any_size(chunk_bytes: int) -> None:
    """The headers and positions do not depend on how much is read at once."""
    placed = list(read_headers(file_of(whole_file()), 0, chunk_bytes))
    assert [p.header for p in placed] == [batch.header for batch in BATCHES]
    assert [p.end_position for p in placed] == ENDS


def read_to_damage(placed: Iterator[PlacedBatch | PlacedHeader]) -> tuple[list[int], int | None]:
    """Positions of the batches read, and of the damage that ended the reading."""
    positions: list[int] = []
    try:
        positions.extend(batch.position for batch in placed)
    except CorruptLogError as error:
        return positions, error.position
    return positions, None


def test_a_cut_at_any_byte_is_found_at_the_start_of_its_batch() -> None:
    """Every truncation of the file yields the whole batches before it, and names where to cut."""
    data = whole_file()
    for size in range(len(data) + 1):
        starts = [0, *(end for end in ENDS if end <= size)]
        damage = None if size == starts[-1] else starts[-1]
        file = file_of(data[:size])
        assert read_to_damage(read_batches(file)) == (starts[:-1], damage)
        assert read_to_damage(read_headers(file, 0, 200)) == (starts[:-1], damage)


def test_any_flipped_byte_is_found() -> None:
    """A change of any byte but offset and leader epoch, which no CRC covers, is damage."""
    data = whole_file()
    for position in range(len(data)):
        start = max(start for start in (0, *ENDS[:-1]) if start <= position)
        if 0 <= position - start < 8 or 12 <= position - start < 16:
            continue
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptLogError) as caught:
            list(read_batches(file_of(bytes(damaged))))
        assert caught.value.position == start


def test_zeros_behind_the_last_batch_are_damage() -> None:
    """The zeros that some file systems leave after a power failure are not taken for batches."""
    file = file_of(whole_file() + bytes(500))
    with pytest.raises(CorruptLogError) as caught:
        list(read_batches(file))
    assert caught.value.position == ENDS[-1]


def test_a_batch_larger_than_one_read_is_whole() -> None:
    """The scan reads as much as the largest batch takes."""
    batch = stamped(make_batch(size=5_000_000), 0, 0)
    (placed,) = read_batches(file_of(batch.data))
    assert read_header(placed.batch) == batch.header
