"""The time index finds where records newer than a time can begin, and its file is Kafka's."""

from __future__ import annotations

from echoless.storage.time_index import TimeIndex


def index_of(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(100)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


def test_the_file_is_pairs_of_big_endian_numbers() -> None:
    """Timestamp of eight bytes, offset relative to the base of four."""
    index = index_of((1_700_000_000_000, 105))
    assert index.encode().hex(" ", -4) == "0000018b cfe56800 00000005"
    decoded = TimeIndex.decode(100, index.encode())
    assert decoded is not None
    assert decoded.last == (1_700_000_000_000, 105)


def test_only_newer_timestamps_are_entered() -> None:
    """Timestamps rise strictly; an older one says nothing new."""
    index = index_of((10, 101), (10, 105), (7, 106), (11, 107))
    assert len(index) == 2
    assert index.last == (11, 107)


def test_a_search_starts_behind_everything_older() -> None:
    """Up to the answer every record is older than the time asked for."""
    index = index_of((10, 101), (20, 105))
    assert [index.offset_before(ms) for ms in (5, 10, 11, 20, 21)] == [100, 100, 102, 102, 106]


def test_what_cannot_be_an_index_is_refused() -> None:
    """A torn file, and one whose ends are out of order, are rebuilt instead of believed."""
    data = index_of((10, 101), (20, 105)).encode()
    assert TimeIndex.decode(100, data[:-1]) is None
    assert TimeIndex.decode(100, data[12:] + data[:12]) is None


def test_truncation_drops_entries_from_the_offset_on() -> None:
    """An empty index says that nothing has a time."""
    index = index_of((10, 101), (20, 105))
    index.truncate_to(105)
    assert index.last == (10, 101)
    index.truncate_to(101)
    assert index.last == (-1, 100)
