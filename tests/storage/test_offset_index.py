"""The offset index finds a batch at or before any offset, and its file is Kafka's."""

from __future__ import annotations

import random

from echoless.storage.offset_index import OffsetIndex


def index_of(*entries: tuple[int, int], base_offset: int = 100) -> OffsetIndex:
    index = OffsetIndex(base_offset)
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_the_file_is_pairs_of_big_endian_numbers() -> None:
    """Offset relative to the base, then position, each four bytes."""
    index = index_of((109, 4100), (122, 8200))
    assert index.encode().hex(" ", 4) == "00000009 00001004 00000016 00002008"
    decoded = OffsetIndex.decode(100, index.encode())
    assert decoded is not None
    assert (decoded.last, len(decoded)) == ((122, 8200), 2)


def test_what_cannot_be_an_index_is_refused() -> None:
    """A torn file, and one whose ends are out of order, are rebuilt instead of believed."""
    data = index_of((109, 4100), (122, 8200)).encode()
    assert OffsetIndex.decode(100, data[:-1]) is None
    assert OffsetIndex.decode(100, data[8:] + data[:8]) is None
    assert OffsetIndex.decode(100, b"\xff" * 8) is None


def test_positions_never_lie_behind_the_batch() -> None:
    """An offset's entry is the batch that ends with it or the last one before it."""
    index = index_of((109, 4100), (122, 8200))
    assert [index.position_before(offset) for offset in (100, 108, 109, 110, 121, 122, 500)] == [
        0, 0, 4100, 4100, 4100, 8200, 8200,
    ]  # fmt: skip


def test_boundaries_stay_within_both_limits() -> None:
    """The farthest known start of a batch within a position and below an offset."""
    index = index_of((109, 4100), (122, 8200))
    assert index.boundary_before(8199, 1000) == 4100
    assert index.boundary_before(8200, 1000) == 8200
    assert index.boundary_before(9000, 122) == 4100
    assert index.boundary_before(9000, 123) == 8200
    assert index.boundary_before(4000, 1000) == 0


def test_truncation_drops_entries_behind_the_cut() -> None:
    """An entry at the cut goes: its batch is gone."""
    index = index_of((109, 4100), (122, 8200))
    index.truncate_to(8200)
    assert index.last == (109, 4100)
    index.truncate_to(0)
    assert index.last is None


def test_look_ups_agree_with_a_plain_list() -> None:
    """Any index gives what a search through the list of its entries gives."""
    rng = random.Random(7)
    entries = [(100 + 3 * n + rng.randrange(3), 50 * n + rng.randrange(50)) for n in range(1, 50)]
    index = index_of(*entries)
    for offset in range(100, 260):
        expected = max((p for o, p in entries if o <= offset), default=0)
        assert index.position_before(offset) == expected
