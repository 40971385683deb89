"""The checkers bite: with one promise taken out of the code under test, something is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.hazards import failover, isolation, lifetimes
from tests.simulation.history import play
from tests.simulation.mutations import MUTATIONS, apply

SEEDS_MAX = 100

FOUND_BY_HISTORIES = (
    "window is ignored",
    "new leader forgets producers",
    "followers never cut",
    "followers cut to the high watermark",
    "no state transfer",
)
"""Random histories find these soon, whatever strikes."""

FOUND_BY_SCENARIOS: dict[str, Callable[[], list[str]]] = {
    "window is ignored": isolation.the_session_ends_before_the_write,
    "new leader forgets producers": failover.a_retry_before_the_original,
    "followers never cut": failover.a_retry_before_the_original,
    "followers cut to the high watermark": failover.two_quick_failovers,
    "no state transfer": lifetimes.a_fresh_replica_leads,
    "no session fence": isolation.a_paused_leader_wakes,
    "shrunken isr counts": isolation.a_leader_alone_shrinks,
    "no epoch start rule": failover.a_follower_below_the_epoch_start,
    "no broker epoch check": isolation.a_fetch_of_an_earlier_life,
    "no controller epoch check": isolation.an_old_controller_writes_late,
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", FOUND_BY_HISTORIES)
def test_histories_find(mutation: str) -> None:
    """Some seed among the first hundred breaks a promise."""
    with apply(mutation):
        assert any(play(seed).findings for seed in range(SEEDS_MAX))


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_scenario_finds(mutation: str) -> None:
    """The hazard that the rule is there for comes true without it."""
    scenario = FOUND_BY_SCENARIOS[mutation]
    assert _breaks(scenario) is None
    with apply(mutation):
        assert _breaks(scenario) is not None


def _breaks(scenario: Callable[[], list[str]]) -> str | None:
    """What the scenario finds, or what it could not get done; None: all is well."""
    try:
        findings = scenario()
    except AssertionError as error:
        return str(error)
    return findings[0] if findings else None
