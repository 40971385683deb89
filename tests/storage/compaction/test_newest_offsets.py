"""A pass that goes by the offsets in its map leaves what one that goes by keys does."""

from __future__ import annotations

import random

import pytest

from echoless.protocol.record_batch import read_header, seal_batch
from echoless.storage.compaction import cleaning
from echoless.storage.compaction.key_map import KeyMap, NewestOffsets
from tests.storage.compaction.keyed_log import CONFIG, append, batches_of, clean, keyed_batch
from tests.storage.log_workload import read_all
from tests.storage.one_log import OneLog


def loaded(keys: KeyMap, start: int, bytes_max: int = 1000) -> NewestOffsets:
    newest = NewestOffsets()
    for _ in newest.load(keys, start, bytes_max):
        pass
    return newest


def test_marks_are_those_of_the_map() -> None:
    """Nothing is known outside of what was read."""
    keys = KeyMap(1 << 20)
    keys.offsets, keys.end_offset = {b"a": 12, b"b": 10, b"c": 15}, 16
    newest = loaded(keys, 10)
    assert newest.between(10, 16) == bytes([1, 0, 1, 0, 0, 1])
    assert newest.between(12, 13) == b"\x01"
    assert newest.between(9, 12) is None
    assert newest.between(12, 17) is None


@pytest.mark.parametrize("offset", [9, 16, -1])
def test_an_offset_outside_of_its_batch_leaves_no_marks(offset: int) -> None:
    keys = KeyMap(1 << 20)
    keys.offsets, keys.end_offset = {b"a": 12, b"b": offset}, 16
    assert loaded(keys, 10).between(10, 16) is None


def test_there_are_no_marks_of_offsets_out_of_order_or_of_too_many() -> None:
    keys = KeyMap(1 << 20)
    keys.offsets, keys.end_offset = {b"a": 12}, 16
    assert loaded(keys, 10, bytes_max=5).between(10, 16) is None
    keys.is_dense = False
    assert loaded(keys, 10).between(10, 16) is None


def written(seed: int) -> OneLog:
    """Some batches are cleaned already, others lie above."""
    one, rng = OneLog(CONFIG), random.Random(seed)
    for number in range(40):
        pairs = [
            (b"%d" % rng.randrange(9), None if rng.random() < 0.2 else rng.randbytes(30))
            for _ in range(rng.randrange(1, 9))
        ]
        append(one.log, keyed_batch(pairs))
        if number in {10, 20}:
            clean(one.log)
    return one


@pytest.mark.parametrize("seed", range(5))
def test_a_pass_by_offsets_writes_the_same_bytes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one for which there is no memory for marks."""
    by_offsets, by_keys = written(seed), written(seed)
    assert read_all(by_offsets.log) == read_all(by_keys.log)
    assert clean(by_offsets.log)
    monkeypatch.setattr(cleaning, "_MARKS_SHARE", 1 << 40)
    assert clean(by_keys.log)
    assert read_all(by_offsets.log) == read_all(by_keys.log)


def test_records_that_share_an_offset_stay_as_they_did() -> None:
    """A client may write anything in a batch whose header counts right: each key keeps its newest record."""
    one = OneLog(CONFIG)
    batch = bytearray(keyed_batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]))
    header, body = read_header(batch), batch[61:]
    size = len(body) // 3
    body[size + 3] = body[3]  # the second record says offset delta 0, too
    append(one.log, seal_batch(header, body))
    append(one.log, keyed_batch([(b"c", b"4")]))
    assert clean(one.log)
    (first, _), (second, _) = batches_of(one.log)
    assert (first.record_count, second.record_count) == (2, 1)
