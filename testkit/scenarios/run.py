"""One run of one scenario by one producer, from the start of the brokers to the verdict."""

from __future__ import annotations

from typing import Any, NamedTuple

from echoless.testkit.clients.client import Client
from echoless.testkit.clients.driver import Driver
from echoless.testkit.clients.programs import PROGRAMS
from echoless.testkit.clients.scripted import Scripted
from echoless.testkit.scenarios.parts import SCRIPTED, expected
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.servers import Servers
from echoless.testkit.scenarios.stage import ScenarioFailedError, Stage
from echoless.testkit.scenarios.verdict import Verdict, judge


class ScenarioResult(NamedTuple):
    """The result of a run."""

    scenario: str
    client: str
    version: str
    steps: list[str]
    verdict: Verdict
    events: list[dict[str, Any]]
    """Decisions, faults and notes, ordered by time."""
    problem: str | None
    """Why the required outcome was missed; None if it was not."""


def new_client(name: str) -> Client:
    """A client. Raises `BuildError` if it is unavailable, `KeyError` if there is none of this name."""
    return Scripted() if name == SCRIPTED else Driver(PROGRAMS[name])


def run(
    scenario: Scenario, client: Client, servers: Servers, *, topic: str | None = None
) -> ScenarioResult:
    """Plays on running brokers. The client is left closed, and can play again."""
    client.deliveries = type(client.deliveries)()
    stage = Stage(servers, client, topic or scenario.name)
    try:
        problem = _play(scenario, stage)
        client.close()
        _start_all(stage)
        verdict = judge(client.deliveries, stage.stored())
        stage.recorder.settle()
    finally:
        stage.recorder.close()
    return ScenarioResult(
        scenario.name,
        client.name,
        getattr(client, "version", ""),
        stage.steps,
        verdict,
        stage.recorder.story(set(stage.topics)),
        problem or _complaint(scenario, client.name, verdict),
    )


def _play(scenario: Scenario, stage: Stage) -> str | None:
    """Plays; returns what went wrong, or None."""
    try:
        scenario.play(stage)
    except (ScenarioFailedError, TimeoutError) as error:
        return str(error)
    return None


def _start_all(stage: Stage) -> None:
    """Starts brokers that an earlier failed play may have left dead."""
    for broker_id, broker in stage.servers.brokers.items():
        if not broker.is_running:
            stage.start(broker_id)


def _complaint(scenario: Scenario, client: str, verdict: Verdict) -> str | None:
    outcome, may_be_fatal = expected(scenario, client)
    if verdict.outcome is not outcome:
        return f"{verdict.outcome.value}, where it should be {outcome.value}: {verdict}"
    if verdict.fatal is not None and not may_be_fatal:
        return f"the client cannot go on: {verdict.fatal}"
    return None
