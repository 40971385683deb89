"""The memory that the keys of a pass take, and the identity of keys."""

from __future__ import annotations

import tracemalloc

import pytest

from echoless.storage.compaction.key_map import BYTES_PER_KEY, KeyMap, short_key

COUNTS = (22_000, 44_000, 50_000)
"""Just after the table has grown, which is when a key costs most, and before."""


@pytest.mark.parametrize("key_bytes", [8, 16, 40])
@pytest.mark.parametrize("count", COUNTS)
def test_a_key_takes_no_more_memory_than_stated(key_bytes: int, count: int) -> None:
    """`log_cleaner_dedupe_buffer_size` is a bound on memory, not an estimate."""
    keys = KeyMap(1 << 30)
    tracemalloc.start()
    try:
        for number in range(count):
            keys.offsets[short_key(b"%0*d" % (key_bytes, number))] = 2**40 + number
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held <= count * BYTES_PER_KEY


def test_a_map_is_full_at_its_bound() -> None:
    """The bound counts keys, so it holds whatever their length."""
    keys = KeyMap(3 * BYTES_PER_KEY)
    for number in range(3):
        assert not keys.is_full
        keys.offsets[short_key(b"%d" % number)] = number
    assert keys.is_full


def test_short_keys_stay_and_long_ones_never_look_like_them() -> None:
    """A digest has a byte more than any key that is kept as it is."""
    assert short_key(b"") == b""
    assert short_key(b"x" * 16) == b"x" * 16
    digest = short_key(b"x" * 17)
    assert len(digest) == 17
    assert short_key(digest) != digest, "a long key that looks like a digest has one of its own"
