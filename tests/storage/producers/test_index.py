"""The index from producer id to slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.storage.producers.index import NO_SLOT, ProducerIndex


def degenerate(_producer_id: bytes) -> int:
    """The worst hash there is."""
    return 0


def identity(producer_id: bytes) -> int:
    """A hash that keeps the pattern of the ids."""
    return int.from_bytes(producer_id)


@pytest.mark.parametrize("hash_of", [hash, degenerate, identity])
@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 60) | st.integers(0, 2**63 - 1))),
)
def test_index_is_a_dict(hash_of: Callable[[bytes], int], steps: list[tuple[bool, int]]) -> None:
    """Whatever is added and removed, and however ids collide, the index answers as a dict does."""
    index = ProducerIndex(hash_of)
    model: dict[int, int] = {}
    for is_removal, producer_id in steps:
        if is_removal:
            assert index.remove(producer_id) == model.pop(producer_id, NO_SLOT)
        elif producer_id not in model:
            model[producer_id] = index.add(producer_id)
    assert len(index) == len(model)
    assert len(set(model.values())) == len(model)
    assert all(index.find(producer_id) == slot for producer_id, slot in model.items())


def test_slots_are_used_again() -> None:
    """The number of slots is that of ids at one time, not of ids in all."""
    index = ProducerIndex()
    for producer_id in range(10_000):
        index.add(producer_id)
        if producer_id >= 10:
            index.remove(producer_id - 10)
    assert len(index.producer_ids) <= 12


def test_chains_stay_short() -> None:
    """Ids handed out in order, with gaps or at random share buckets no more than chance wills."""
    for step in (1, 1000, 2**32):
        index = ProducerIndex()
        for number in range(4000):
            index.add(number * step)
        longest = max(chain_lengths(index))
        assert longest <= 20


def chain_lengths(index: ProducerIndex) -> list[int]:
    """Ids in every bucket."""
    lengths = []
    for head in index._heads:
        length, slot = 0, head
        while slot:
            length, slot = length + 1, index._chain[slot]
        lengths.append(length)
    return lengths
