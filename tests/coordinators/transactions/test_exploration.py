"""Every order of requests, commits, failures, markers, timeouts and moves of the coordinator, within bounds."""

from __future__ import annotations

import pytest

from tests.coordinators.transactions.exploration.mutants import MUTANTS, mutated
from tests.coordinators.transactions.exploration.search import Search
from tests.coordinators.transactions.exploration.searches import MEDIUM, SMALL


@pytest.mark.parametrize("name", SMALL)
def test_no_order_breaks_an_invariant(name: str):
    """Two ids, two partitions; `tests/coordinators/transactions/exploration/judge.py` has the invariants."""
    found = Search(SMALL[name]).run()
    assert found.violation is None, found.violation
    assert found.is_complete
    assert found.states > 500


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_found(name: str):
    """The search misses each rule that is taken out of the core."""
    with mutated(name):
        assert any(Search(bounds).run().violation for bounds in MEDIUM.values())
