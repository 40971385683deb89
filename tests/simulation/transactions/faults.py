"""Faults that matter to transactions, besides those of every history (`tests/simulation/faults.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from echoless.broker.config.loading import LogFlush
from tests.simulation.faults import (
    COORDINATOR,
    FAULTS,
    NOTHING,
    Fault,
    Undo,
    change_weather,
    kill_machine,
    pause_process,
)
from tests.simulation.network import Weather

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.machine import Machine

MARKERS: Final = "write_markers"
QUESTIONS: Final = "add_or_verify"
WORST: Final = Weather(
    delay_s=0.05,
    slow_probability=0.2,
    slow_s=6.0,
    drop_probability=0.5,
    duplicate_probability=0.3,
    late_s=15.0,
    break_probability=0,
)
SLOW: Final = replace(WORST, drop_probability=0.0)
"""Without losses: a broker waits for half a minute for an answer that is lost."""
_ANSWERS_LATE: Final = replace(WORST, slow_probability=0.5, drop_probability=0.2)
_BREAKING: Final = Weather(
    delay_s=0.02,
    slow_probability=0.1,
    slow_s=2.0,
    drop_probability=0,
    duplicate_probability=0,
    late_s=0,
    break_probability=0.25,
)


def lose_markers(cluster: Cluster, rng: Random) -> Undo:
    """Markers between brokers, and their answers, are lost, late and repeated."""
    return _lose(cluster, MARKERS, WORST)


def lose_questions(cluster: Cluster, rng: Random) -> Undo:
    """The same of what leaders ask coordinators."""
    return _lose(cluster, QUESTIONS, _ANSWERS_LATE)


def _lose(cluster: Cluster, message_type: str, weather: Weather) -> Undo:
    by_type = cluster.network.weather_by_type
    by_type[message_type] = weather

    def undo() -> None:
        by_type.pop(message_type, None)

    return undo


def break_connections(cluster: Cluster, rng: Random) -> Undo:
    """Connections break after something was sent over them: answers are lost, requests come late."""
    return change_weather(cluster, _BREAKING)


def kill_coordinator(cluster: Cluster, rng: Random) -> Undo:
    """SIGKILL, or lost power, for one that leads a partition of an internal topic."""
    machines = list(_leading(cluster, (TRANSACTION_STATE, TRANSACTION_STATE, CONSUMER_OFFSETS)))
    if not machines:
        return NOTHING
    return kill_machine(rng.choice(machines))


def pause_coordinator(cluster: Cluster, rng: Random) -> Undo:
    """SIGSTOP for one that leads a partition of the state of transactions."""
    processes = [one.process for one in _leading(cluster, (TRANSACTION_STATE,)) if one.process]
    if not processes:
        return NOTHING
    return pause_process(rng.choice(processes))


def move_coordinator(cluster: Cluster, rng: Random) -> Undo:
    """Another replica in sync leads a partition of the state of transactions, and after a while the first one again."""
    spots = [spot for spot in cluster.spots if spot.topic == TRANSACTION_STATE]
    spot = rng.choice(spots)
    state = cluster.state_of(spot)
    others = [one for one in state.get("isr", ()) if one != state["leader"]]
    if not others:
        return NOTHING
    first = state["leader"]
    cluster.begin_next_epoch(spot, rng.choice(others))

    def undo() -> None:
        if first in cluster.state_of(spot).get("isr", ()):
            cluster.begin_next_epoch(spot, first)

    return undo


def expire_session(cluster: Cluster, rng: Random) -> Undo:
    """As in every history, but of a broker that soon learns of it.

    One that is cut off takes itself for the groups' coordinator until its guard's time is over, and gives a copier the
    offsets that it has, while another commits newer ones. A session that no one ends by hand ends after that time.
    """
    connected = [
        machine.session_tree.session_id
        for machine in cluster.machines.values()
        if machine.session_tree is not None
        and machine.session_tree.session_id
        and not cluster.network.is_cut(machine.node, COORDINATOR)
        and not cluster.network.is_cut(COORDINATOR, machine.node)
    ]
    if connected and not cluster.server.is_down:
        cluster.server.expire(rng.choice(connected))
    return NOTHING


def sleep_client(cluster: Cluster, rng: Random) -> Undo:
    """SIGSTOP for a program that writes in transactions."""
    processes = [one for one in cluster.client_processes if one.name.startswith(("w", "copier"))]
    if not processes:
        return NOTHING
    return pause_process(rng.choice(processes))


def _leading(cluster: Cluster, topics: Iterable[str]) -> Iterable[Machine]:
    for topic in topics:
        for spot in cluster.spots:
            leader = cluster.state_of(spot).get("leader") if spot.topic == topic else None
            if leader in cluster.machines:
                yield cluster.machines[leader]


TRANSACTION_FAULTS: Final[dict[str, tuple[int, Fault]]] = {
    **FAULTS,
    "expire session": (FAULTS["expire session"][0], expire_session),
    "lose markers": (3, lose_markers),
    "lose questions": (3, lose_questions),
    "break connections": (3, break_connections),
    "kill coordinator": (3, kill_coordinator),
    "pause coordinator": (3, pause_coordinator),
    "move coordinator": (3, move_coordinator),
    "sleep client": (3, sleep_client),
}
"""How often each strikes, compared with the others."""
_ENDING_SESSIONS: Final = ("break connections", "kill coordinator", "pause coordinator")
"""Faults by which brokers may lose their sessions with ZooKeeper."""


def own_kinds(kinds: Collection[str], log_flush: LogFlush) -> list[str]:
    """Those that are not in every history, and may occur beside these: see `FAULTS_WITH_LOST_POWER`."""
    own = [name for name in TRANSACTION_FAULTS if name not in FAULTS]
    if log_flush is LogFlush.OS and "power" in kinds:
        return [name for name in own if name not in _ENDING_SESSIONS]
    return own
