"""Every hazard of replication has its scenario, and no promise is broken in it."""

from __future__ import annotations

import pytest

from tests.simulation.hazards import GROUP_HAZARDS, HAZARDS, TRANSACTION_HAZARDS, Scenario, failover

SCENARIOS = [(number, one) for number, scenarios in HAZARDS.items() for one in scenarios]


@pytest.mark.parametrize(
    ("number", "scenario"), SCENARIOS, ids=[f"{n}-{s.__name__}" for n, s in SCENARIOS]
)
def test_a_hazard_breaks_no_promise(number: int, scenario: Scenario) -> None:
    """Each hazard that has hit real systems is played on purpose, and nothing comes of it."""
    assert scenario() == []


@pytest.mark.parametrize("name", GROUP_HAZARDS)
def test_a_hazard_of_groups_breaks_no_promise(name: str) -> None:
    """No commit is lost and no generation given twice; cleaning removes nothing that is needed."""
    assert GROUP_HAZARDS[name]() == []


@pytest.mark.parametrize("name", TRANSACTION_HAZARDS)
def test_a_hazard_of_transactions_breaks_no_promise(name: str) -> None:
    """No transaction is decided twice, torn, or left open."""
    assert TRANSACTION_HAZARDS[name]() == []


def test_there_is_a_scenario_for_each_hazard() -> None:
    """All nineteen hazards have a scenario."""
    assert sorted(HAZARDS) == list(range(1, 20))


def test_lost_power_with_log_flush_os_loses_what_is_documented() -> None:
    """The last replica's unsynced end is gone, and the checkers say so."""
    assert any(
        "lost" in finding or "spurious" in finding for finding in failover.losing_power_with_os()
    )
