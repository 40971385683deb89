"""The memory of what a connection has sent: bounded, and for that connection alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.known.memory import BYTES_MAX, ENTRIES_MAX, KEY_BYTES_MAX, SeenBytes
from echoless.protocol.known.native_produce import read_known_produce
from echoless.protocol.known.produce import read_produce_request
from tests.protocol.test_produce_request import encode

FETCH = ((0, 0, 0, 0, 0), "t", 0, 0, 0, 0, 0)
KEYS = st.tuples(st.sampled_from(["produce", "fetch", "native"]), st.binary(max_size=450))


def note(seen: SeenBytes, kind: str, key: bytes) -> None:
    if kind == "fetch":
        seen.note(seen.fetches, (4, key), len(key), FETCH)
    elif kind == "produce":
        seen.note(seen.produces, key, len(key), (None, 1, 5, "t", 1))
    else:
        seen.note(seen.native_produces, key, len(key), ("t", 0, 1, 5))


def keys_of(seen: SeenBytes) -> list[bytes]:
    fetches = [key for _, key in seen.fetches]
    return [*seen.produces, *fetches, *seen.native_produces]


@given(st.lists(KEYS, max_size=200))
def test_no_order_of_keys_exceeds_the_bounds(keys: list[tuple[str, bytes]]) -> None:
    """All tables together: the last key is known if it is short, and nothing that was never noted."""
    seen = SeenBytes()
    for count, (kind, key) in enumerate(keys, 1):
        note(seen, kind, key)
        kept = keys_of(seen)
        assert (key in kept) == (len(key) <= KEY_BYTES_MAX)
        assert set(kept) <= {one for _, one in keys[:count]}
        assert len(kept) <= ENTRIES_MAX
        assert sum(map(len, kept)) <= BYTES_MAX


def test_many_short_keys_and_few_long_ones_are_bounded() -> None:
    """By their number, and by their bytes."""
    for size, most in ((4, ENTRIES_MAX), (KEY_BYTES_MAX, BYTES_MAX // KEY_BYTES_MAX)):
        seen = SeenBytes()
        for number in range(10 * ENTRIES_MAX):
            note(seen, "produce", number.to_bytes(size, "big"))
            assert len(seen.produces) <= most
        for _ in range(ENTRIES_MAX):  # one that is noted again takes no more room
            note(seen, "fetch", b"again")
        assert len(seen.fetches) == 1


def test_a_stranger_evicts_nothing() -> None:
    """A client that invents topics fills the memory of its own connection."""
    seen, stranger = SeenBytes(), SeenBytes()
    ours = request("ours")
    read_produce_request(seen, 9, ours, 0)
    for number in range(3 * ENTRIES_MAX):
        read_produce_request(stranger, 9, request(f"topic-{number}"), 0)
        read_known_produce(stranger, b"\x81\xa5batch\xc4\x01" + bytes((number % 256,)))
    assert len(seen.produces) == 1
    assert read_produce_request(seen, 9, ours, 0) == read_produce_request(SeenBytes(), 9, ours, 0)
    assert len(stranger.produces) <= ENTRIES_MAX


def request(topic: str) -> bytes:
    """A produce request of version 9 for one partition."""
    rows = [(0, b"r")]
    return encode(
        9, {"transactional_id": None, "acks": 1, "timeout_ms": 5, "topics": [(topic, rows)]}
    )
