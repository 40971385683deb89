"""Every scenario with every client that has a part in it, several at a time: a minute and a half.

Most of it is waiting for timeouts and sessions, so that four plays at a time need less than two
processors. A client plays its single-broker scenarios one after the other on one broker; each
scenario with several brokers has a cluster on which the clients follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from echoless.testkit.scenarios.catalogue import SCENARIOS
from echoless.testkit.scenarios.parts import CLIENTS, NO_PART
from echoless.testkit.scenarios.run import ScenarioResult, new_client, run
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.servers import Servers

_AT_A_TIME: Final = 4

Runs = Mapping[tuple[str, str], ScenarioResult]
"""Runs by scenario and client."""


def play_all(clients: Iterable[str] = CLIENTS) -> Runs:
    """Plays everything. Raises `BuildError` if a client is unavailable."""
    names = list(clients)
    alone = [one for one in SCENARIOS.values() if one.brokers == 1]
    together = [one for one in SCENARIOS.values() if one.brokers > 1]
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        # The long ones first.
        tasks = [threads.submit(_play, [one], names) for one in reversed(together)]
        tasks += [threads.submit(_play, alone, [name]) for name in names]
        runs = [one for task in tasks for one in task.result()]
    return {(one.scenario, one.client): one for one in runs}


def _play(scenarios: Sequence[Scenario], clients: Sequence[str]) -> list[ScenarioResult]:
    """Plays scenarios with the same broker settings one after the other."""
    runs = []
    with ExitStack() as stack:
        players = {name: new_client(name) for name in clients}
        for player in players.values():
            stack.callback(player.end)
        for group in _by_settings(scenarios):
            with Servers(group[0].brokers, group[0].settings, group[0].users) as servers:
                for scenario in group:
                    for name, player in players.items():
                        if (scenario.name, name) not in NO_PART:
                            topic = f"{scenario.name}-{name}"
                            runs.append(run(scenario, player, servers, topic=topic))
    return runs


def _by_settings(scenarios: Sequence[Scenario]) -> list[list[Scenario]]:
    groups: list[list[Scenario]] = []
    for scenario in scenarios:
        for group in groups:
            if (group[0].settings, group[0].users) == (scenario.settings, scenario.users):
                group.append(scenario)
                break
        else:
            groups.append([scenario])
    return groups
