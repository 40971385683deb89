"""The protocol's flows, played by every client, and the page of what was seen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from echoless.testkit.clients import driver
from echoless.testkit.clients.client import REQUEST_TIMEOUT_MS
from echoless.testkit.clients.programs import FURTHER, PROGRAMS
from echoless.testkit.scenarios.catalogue import SCENARIOS
from echoless.testkit.scenarios.everything import Runs, play_all
from echoless.testkit.scenarios.page import read_verdicts, render_verdicts
from echoless.testkit.scenarios.parts import CLIENTS, LIMITATIONS, NO_PART, SCRIPTED
from echoless.testkit.scenarios.run import new_client, run
from echoless.testkit.scenarios.servers import Servers
from echoless.testkit.scenarios.stage import Stage
from tests.testkit.tools import NAMES, ZOOKEEPER
from tests.toolchain import require

_PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"


@pytest.fixture(scope="session")
def runs() -> Runs:
    """One minute: everything is played once, several scenarios at a time."""
    require("java", ZOOKEEPER.name, *NAMES)
    return play_all()


_PARTS = [
    (name, client) for name in SCENARIOS for client in CLIENTS if (name, client) not in NO_PART
]


@pytest.mark.clients
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "client"), _PARTS)
def test_a_scenario_ends_as_it_must(runs: Runs, scenario: str, client: str) -> None:
    """The log holds what it should, or what this client is known to make of it."""
    assert runs[scenario, client].problem is None


@pytest.mark.slow
def test_kafka_python_ends_transactions_as_it_must() -> None:
    """It has no column on the page; as kafkajs it gives up an end without an answer, so a late one cannot be its own."""
    client = driver.Driver(FURTHER["kafka_python"])
    try:
        with Servers() as servers:
            for name in ("commit-answer-lost", "zombie-transaction", "transaction-timed-out"):
                assert run(SCENARIOS[name], client, servers).problem is None
    finally:
        client.end()


@pytest.fixture
def slow_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine so busy that five batches take longer than a client waits for one answer."""
    look = Stage._log_end

    def look_late(stage: Stage) -> int:
        time.sleep(REQUEST_TIMEOUT_MS / 1000 / 3)
        return look(stage)

    monkeypatch.setattr(Stage, "_log_end", look_late)


@pytest.fixture
def split_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine so busy that the client sends the first records of a batch before it has the last."""
    monkeypatch.setattr(driver, "_LINGER_MS", 0)


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize("business", ["slow_stage", "split_batches"])
def test_a_busy_machine_keeps_no_batch_back(business: str, request: pytest.FixtureRequest) -> None:
    """A client that has all its answers lost still sends all the batches that the play waits for."""
    require("java", *NAMES)
    request.getfixturevalue(business)
    scenario, client = SCENARIOS["restored-snapshot"], new_client("java-4")
    try:
        with Servers(scenario.brokers, scenario.settings, scenario.users) as servers:
            assert run(scenario, client, servers).problem is None
    finally:
        client.end()


@pytest.mark.clients
@pytest.mark.cluster
@pytest.mark.slow
def test_the_page_says_what_was_seen(runs: Runs) -> None:
    """docs/scenarios.md is written by a run: python -m echoless.testkit.scenarios --write-docs."""
    assert read_verdicts(_PAGE.read_text()) == render_verdicts(runs)


def test_the_page_has_every_scenario() -> None:
    """Its sentence, its faults and what must hold."""
    page = _PAGE.read_text()
    for scenario in SCENARIOS.values():
        assert f"## {scenario.name}\n\n{scenario.shows}\n" in page
        assert f"* Faults: {scenario.faults}.\n* At the end: {scenario.holds}\n" in page


def test_every_exception_is_about_a_real_part() -> None:
    """The tables name scenarios and clients that there are, and no part twice."""
    for scenario, client in (*NO_PART, *LIMITATIONS):
        assert scenario in SCENARIOS
        assert client in PROGRAMS
    assert not NO_PART.keys() & LIMITATIONS.keys()
    assert SCRIPTED not in {client for _, client in NO_PART}
