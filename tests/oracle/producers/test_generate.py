"""The generator: a failure must come back from its seed and number alone."""

from __future__ import annotations

from tests.oracle.producers.differences import REFUSALS
from tests.oracle.producers.generate import Generator
from tests.oracle.producers.history import Produce, ProducersHistory


def _history(number: int, seed: int = 3) -> ProducersHistory:
    return Generator(seed, number, now_ms=1_795_000_000_000, accepts_unknown=True).generate()


def test_a_history_comes_back() -> None:
    """The same seed and number make the same history; another number makes another."""
    assert _history(5) == _history(5)
    assert _history(5) != _history(6)
    assert _history(5) != _history(5, seed=4)


def test_everything_occurs() -> None:
    """Two hundred histories hold every refusal, every version and every kind of acks."""
    requests = [
        step
        for number in range(200)
        for half in _history(number).halves
        for step in half
        if isinstance(step, Produce)
    ]
    flaws = {part.flaw for request in requests for part in request.parts}
    listed_twice = [
        request
        for request in requests
        if len({part.slot for part in request.parts}) < len(request.parts)
    ]
    assert listed_twice
    assert {flaw for flaw in REFUSALS if flaw != "partition listed twice"} <= flaws
    assert {request.version for request in requests} == set(range(3, 14))
    assert {request.acks for request in requests} == {-1, 0, 1, 2}
