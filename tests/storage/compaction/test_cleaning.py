"""The outcome of a pass over a log: the vectors of Kafka's own cleaner tests, and more."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import HEADER_SIZE, Codec, read_header, seal_batch
from echoless.storage.compaction.compaction import StalePassError
from echoless.storage.compaction.swap import Cleaned
from echoless.storage.file_system import CorruptLogError
from tests.storage.compaction.keyed_log import (
    CONFIG,
    Pair,
    append,
    batches_of,
    clean,
    compacted_view,
    keyed_batch,
    records_in,
)
from tests.storage.log_workload import read_all
from tests.storage.look_up import found
from tests.storage.one_log import NOW_MS, OneLog


def pairs(*keys: int, value: bytes = b"v") -> list[Pair]:
    return [(str(key).encode(), value) for key in keys]


def ends(one: OneLog) -> list[int]:
    return [header.last_offset for header, _ in batches_of(one.log)]


def test_newest_records_stay_and_repeats_are_still_duplicates() -> None:
    """Three producers, overlapping keys: the newest of each key is left, windows stay known."""
    one = OneLog(CONFIG)
    batches = [
        keyed_batch(pairs(1, 2, 3), producer_id=1),
        keyed_batch(pairs(3, 1, 4), producer_id=2),
        keyed_batch(pairs(1, 4), producer_id=3),
    ]
    for batch in batches:
        append(one.log, batch)
    assert clean(one.log)
    assert [record.offset for record in records_in(one.log)] == [1, 3, 6, 7]
    assert ends(one) == [2, 5, 7]
    for reopen in (lambda: one.log, one.close_and_open, one.open):
        log = reopen()
        found = [append(log, batch) for batch in batches]
        assert all(isinstance(decision, Duplicate) for decision in found)
        assert [d.original.base_offset for d in found if isinstance(d, Duplicate)] == [0, 3, 6]


def test_an_empty_batch_keeps_the_last_sequence_of_a_producer() -> None:
    """A batch none of whose records stay is left as a header while its producer lives."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch(pairs(0)))
    for producer_id, key in ((1, 0), (2, 0), (3, 0), (2, 1)):
        sequence = 1 if key else 0
        append(one.log, keyed_batch(pairs(key), producer_id=producer_id, sequence=sequence))
    assert clean(one.log)
    assert ends(one) == [1, 2, 3, 4]
    assert [(h.producer_id, h.record_count, h.last_sequence) for h, _ in batches_of(one.log)] == [
        (1, 0, 0),
        (2, 0, 0),
        (3, 1, 0),
        (2, 1, 1),
    ]


def test_segments_without_any_survivor_become_one_empty_batch() -> None:
    """The end of the range stays known, so that segments meet."""
    one = OneLog(CONFIG)
    for _ in range(3):
        append(one.log, keyed_batch(pairs(1)))
        one.log.roll()
    append(one.log, keyed_batch(pairs(1)))
    one.log.flush()
    assert clean(one.log, is_rolled=True)
    assert one.log.segment_count == 2
    assert [(h.last_offset, h.record_count) for h, _ in batches_of(one.log)] == [(3, 1)]
    one = OneLog(CONFIG)
    for _ in range(3):
        append(one.log, keyed_batch(pairs(1)))
        one.log.roll()
    append(one.log, keyed_batch(pairs(1)))
    assert clean(one.log, is_rolled=False)
    assert one.log.segment_count == 2
    assert [(h.last_offset, h.record_count) for h, _ in batches_of(one.log)] == [(2, 1), (3, 1)]


def test_a_tombstone_stays_until_its_horizon() -> None:
    """The first pass gives it a time, a pass after that removes it; KIP-534."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch(pairs(1)))
    append(one.log, keyed_batch([(b"1", None), (b"2", b"v")]))
    assert clean(one.log)
    (header, _), *rest = batches_of(one.log)
    assert not rest
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 1000
    assert [(r.key, r.value, r.timestamp) for r in records_in(one.log)] == [
        (b"1", None, NOW_MS),
        (b"2", b"v", NOW_MS + 1),
    ]
    assert not clean(one.log, now_ms=NOW_MS + 999), "there is nothing to gain yet"
    assert clean(one.log, now_ms=NOW_MS + 1000), "a pass for the tombstone alone"
    assert [(r.key, r.timestamp) for r in records_in(one.log)] == [(b"2", NOW_MS + 1)]


@pytest.mark.parametrize("base", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize("value", [None, b"v"])
def test_timestamps_at_the_ends_of_64_bits_are_compacted_too(
    base: int, value: bytes | None
) -> None:
    """A producer may send them; a rebuilt batch can be read, and compacted again."""
    one = OneLog(CONFIG)
    batch = keyed_batch([*pairs(1), (b"2", value), *pairs(3)])
    header = read_header(batch)._replace(base_timestamp=base, max_timestamp=base)
    append(one.log, seal_batch(header, batch[HEADER_SIZE:]))
    append(one.log, keyed_batch(pairs(3)))
    for end in (4, 5):
        assert clean(one.log)
        assert [record.offset for record in records_in(one.log)] == [0, 1, end - 1]
        append(one.log, keyed_batch(pairs(3)))


def test_nothing_is_cleaned_above_the_limit_or_in_the_active_segment() -> None:
    """Hazard H8: an uncommitted record removes nothing."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch(pairs(1)))
    one.log.roll()
    append(one.log, keyed_batch(pairs(1)))
    one.log.roll()
    append(one.log, keyed_batch(pairs(1)))
    assert clean(one.log, limit=1)
    assert [record.offset for record in records_in(one.log)] == [0, 1, 2]
    assert not clean(one.log, limit=1)
    assert clean(one.log, is_rolled=False, limit=2)
    assert [record.offset for record in records_in(one.log)] == [1, 2]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rebuilt_batch_keeps_its_codec(codec: Codec) -> None:
    """Sparse batches are compressed as they were; keys, values and times are untouched."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch(pairs(*range(8), value=b"x" * 40), codec=codec))
    append(one.log, keyed_batch(pairs(0, 2, 4), codec=codec))
    before = compacted_view(records_in(one.log))
    assert clean(one.log)
    assert compacted_view(records_in(one.log)) == before
    first = batches_of(one.log)[0][0]
    assert (first.codec_id, first.record_count, first.last_offset_delta) == (codec, 5, 7)
    assert first.max_timestamp == NOW_MS + 7


def test_a_pass_with_a_small_map_goes_on_where_it_ended() -> None:
    """Bounded memory: several passes do what one would have done."""
    one = OneLog(CONFIG)
    rng = random.Random(3)
    for _ in range(60):
        append(one.log, keyed_batch(pairs(rng.randrange(20), rng.randrange(20))))
    before = compacted_view(records_in(one.log))
    passes = 0
    while clean(one.log, map_bytes_max=192 * 5, is_rolled=not passes):
        passes += 1
        assert compacted_view(records_in(one.log)) == before
        assert one.log.compaction.cleaned_to <= one.log.log_end_offset
    assert passes > 2
    assert one.log.compaction.cleaned_to == one.log.log_end_offset
    assert len({record.key for record in records_in(one.log)}) == len(before)


def test_a_cut_makes_a_pass_stale() -> None:
    """A file that was written from segments that have changed since is not put in place."""
    one = OneLog(CONFIG)
    for _ in range(4):
        append(one.log, keyed_batch(pairs(1)))
    one.log.roll()
    one.log.flush()
    compaction = one.log.compaction
    found = compaction.find_pass(
        CONFIG, log_start_offset=0, log_end_offset=4, limit=4, now_ms=NOW_MS
    )
    assert found is not None
    cleaning = compaction.start(found, CONFIG, map_bytes_max=1000, now_ms=NOW_MS, steady_ms=NOW_MS)
    (cleaned,) = [step for step in cleaning.steps() if isinstance(step, Cleaned)]
    one.log.truncate_to(2)
    with pytest.raises(StalePassError):
        compaction.start_swap(cleaned, CONFIG)
    compaction.note_pass(cleaning.report)
    assert compaction.cleaned_to == 0
    assert [record.offset for record in records_in(one.log)] == [0, 1]


def test_damage_is_not_given_a_new_checksum() -> None:
    """A flipped bit in a source ends the pass; the log keeps its files."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch(pairs(1, 2)))
    append(one.log, keyed_batch(pairs(1)))
    one.log.roll()
    one.log.flush()
    path = "/data/orders-0/00000000000000000000.log"
    data = bytearray(one.fs.read_bytes(path))
    data[70] ^= 1
    file = one.fs.open(path)
    file.truncate(0)
    file.append([data])
    with pytest.raises(CorruptLogError, match="position 0"):
        clean(one.log)
    assert one.fs.read_bytes(path) == data
    assert not [name for name in one.fs.list_directory("/data/orders-0") if "cleaned" in name]


def test_readers_find_their_way_through_holes() -> None:
    """A read inside a hole begins with the next batch; times are looked up among survivors."""
    one = OneLog(replace(CONFIG, segment_bytes=10_000))
    for number in range(20):
        append(one.log, keyed_batch(pairs(number % 3), timestamp=NOW_MS + number))
    assert clean(one.log)
    assert [record.offset for record in records_in(one.log)] == [17, 18, 19]
    for reopen in (lambda: one.log, one.close_and_open, one.open):
        log = reopen()
        assert log.log_end_offset == 20
        assert read_header(log.read(4, 100, 20)).base_offset == 17
        assert found(log.offset_at_timestamp(NOW_MS + 3)) == (NOW_MS + 17, 17)
        assert found(log.max_timestamp()) == (NOW_MS + 19, 19)


def test_the_newest_record_is_found_behind_batches_that_were_emptied() -> None:
    """They keep the time of records that are gone, as in Kafka; what indexes know is the time of those that are there."""
    one = OneLog(CONFIG)
    future = NOW_MS + 1_000_000
    newest = [(b"kept", b"x" * 300)]
    append(one.log, keyed_batch(newest, timestamp=NOW_MS + 500))  # offset 0
    append(one.log, keyed_batch([(b"k", b"v")], producer_id=7, timestamp=future))
    append(one.log, keyed_batch([(b"old", b"x" * 300)], timestamp=NOW_MS - 10))
    append(one.log, keyed_batch([(b"k", b"v")], timestamp=NOW_MS))
    assert clean(one.log)
    assert [record.offset for record in records_in(one.log)] == [0, 2, 3]
    assert [header.record_count for header, _ in batches_of(one.log)] == [1, 0, 1, 1]
    replica = OneLog(CONFIG)
    replica.log.append_replicated(read_all(one.log), NOW_MS)
    for reopen in (
        lambda: one.log,
        one.close_and_open,
        lambda: replica.log,
        replica.open,
    ):
        log = reopen()
        assert found(log.max_timestamp()) == (NOW_MS + 500, 0)
        assert found(log.offset_at_timestamp(NOW_MS + 501)) is None
        log.advance_log_start(1)
        assert found(log.max_timestamp()) == (NOW_MS, 3)


def test_a_replica_of_a_cleaned_log_proves_only_what_it_has_seen() -> None:
    """A repeat older than the window is 46 where all batches since were seen, and Kafka's 45 on a later copy."""
    one = OneLog(CONFIG)
    batches = [keyed_batch([(b"k", b"v")], producer_id=7, sequence=number) for number in range(20)]
    for batch in batches:
        append(one.log, batch)
    assert clean(one.log)
    replica = OneLog(CONFIG)
    replica.log.append_replicated(read_all(one.log), NOW_MS)
    assert len(batches_of(replica.log)) < 20
    for log, code in (
        (one.log, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        (replica.log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        answers = [append(log, batch) for batch in batches]
        assert {answer.code for answer in answers[:15] if isinstance(answer, Reject)} == {code}
        assert [type(answer) for answer in answers[15:]] == [Duplicate] * 5
