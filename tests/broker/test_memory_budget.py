"""Bytes of requests in the broker: bounded, first come first served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.memory_budget import MemoryBudget


def test_whoever_does_not_fit_waits_for_bytes_to_come_back():
    """The queue is served in order, as soon as its head fits."""
    budget = MemoryBudget(100)
    served = []
    assert budget.reserve(60, lambda: served.append("never"))
    assert not budget.reserve(50, lambda: served.append("first"))
    assert not budget.reserve(10, lambda: served.append("second"))
    budget.release(60)
    assert served == ["first", "second"]
    assert budget.used == 60


def test_a_frame_above_the_whole_budget_gets_through_alone():
    """Nobody starves: an oversized reservation is granted when nothing else is held."""
    budget = MemoryBudget(100)
    assert budget.reserve(500, lambda: None)
    assert not budget.reserve(1, lambda: None)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 80)), max_size=60))
def test_the_budget_is_never_exceeded(steps):
    """Whatever the order of reservations and releases, at most 100 bytes are held."""
    budget = MemoryBudget(100)
    held: list[int] = []
    for is_release, size in steps:
        if is_release and held:
            budget.release(held.pop(0))
        elif budget.reserve(size, lambda size=size: held.append(size)):
            held.append(size)
        assert budget.used == sum(held) <= 100
