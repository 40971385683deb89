"""The liveness form: a core heals (coordinators, leaders, a quorum), and one machine is left broken."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.checkers.settled import partitions_of
from tests.simulation.faults import (
    COORDINATOR,
    Undo,
    cut_off,
    kill_machine,
    pause_process,
)
from tests.simulation.transactions.faults import MARKERS, SLOW

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.machine import Machine


@dataclass(slots=True, frozen=True)
class LeftBroken:
    """The machine that is broken for good."""

    machine: Machine
    mend: Undo


def leave_one_broken(cluster: Cluster, rng: Random) -> LeftBroken | None:
    """Breaks a machine that the others can do without, if one becomes so; markers may be late, too."""
    machine = rng.choice(list(cluster.machines.values()))
    findings = cluster.observations.findings
    cluster.run_for(60.0, lambda: bool(findings) or is_dispensable(cluster, machine))
    if findings or not is_dispensable(cluster, machine):
        return None
    cluster.observations.note("left broken", machine.node)
    undo = _break(cluster, rng, machine)
    if rng.random() < 1 / 2:
        cluster.network.weather_by_type[MARKERS] = SLOW

    def mend() -> None:
        cluster.network.weather_by_type.clear()
        undo()

    return LeftBroken(machine, mend)


def is_dispensable(cluster: Cluster, machine: Machine) -> bool:
    """Whether enough others are in sync, and all is calm.

    No broker lags, starts, stops, or has the session of an earlier life, or one whose signs of life the weather still holds up.
    """
    is_calm = cluster.network.slow_until <= cluster.loop.time() and all(
        one.service is not None and not one.service.is_ending and _has_its_session(cluster, one)
        for one in cluster.machines.values()
    )
    least = machine.config.min_insync_replicas
    for spot in cluster.spots if is_calm else ():
        isr = cluster.state_of(spot).get("isr", ())
        others = [one for one in isr if one != machine.broker_id]
        if len(isr) < cluster.replication_factors[spot.topic] or len(others) < least:
            return False
        for replica in partitions_of(cluster, spot).values():
            # It may be on its way to the coordinator that the machine is the only one in sync.
            if replica.in_sync is not None and replica.in_sync.pending is not None:
                return False
    return is_calm


def _has_its_session(cluster: Cluster, machine: Machine) -> bool:
    node = cluster.server.nodes.get(f"/brokers/ids/{machine.broker_id}")
    tree = machine.session_tree
    if tree is None or node is None or node.owner != tree.session_id:
        return False
    session = cluster.server.sessions[node.owner]
    left_s = session.ends_at - cluster.loop.time()
    return left_s > session.timeout_s / 2  # else it may be about to end


def _break(cluster: Cluster, rng: Random, machine: Machine) -> Undo:
    way = rng.choice(("kill", "pause", "isolate"))
    if way == "kill" or machine.process is None:
        return kill_machine(machine)
    if way == "pause":
        return pause_process(machine.process)
    others = [one.node for one in cluster.machines.values() if one is not machine]
    others += [COORDINATOR, *(one.name for one in cluster.client_processes)]
    return cut_off(cluster, machine.node, others)
