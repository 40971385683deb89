"""The possible faults, one function per kind: each breaks something and returns how to undo it.

A fault affects whatever is there: a machine that is already down cannot be killed, and then nothing
happens. Nothing here breaks what the configuration does not promise to survive (`unsurvivable`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.loading import LogFlush
from echoless.broker.handlers import alter_partition_reassignments, delete_records, elect_leaders
from echoless.broker.tree.nodes import Change
from tests.fakes.memory_file_system import Survival, keep_none
from tests.simulation.network import Weather
from tests.simulation.process import EXECUTOR_DELAY_S_MAX
from tests.support.raw_client import message

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.machine import Machine
    from tests.simulation.observations import Spot
    from tests.simulation.process import Process

Undo = Callable[[], None]
Fault = Callable[["Cluster", Random], Undo]

NOTHING: Final[Undo] = lambda: None  # noqa: E731 - what there is to undo
COORDINATOR: Final = "coordinator"
STORM: Final = Weather(
    delay_s=0.05,
    slow_probability=0.05,
    slow_s=3.0,
    drop_probability=0.05,
    duplicate_probability=0.1,
    late_s=60.0,
    break_probability=0.02,
)
CLOCK_JUMP_MS_MAX: Final = 30 * 24 * 3_600_000
"""More than producers and records are kept for."""


def _machine(cluster: Cluster, rng: Random) -> Machine:
    return rng.choice(list(cluster.machines.values()))


def restart(machine: Machine) -> Undo:
    """Starts it again, in time."""

    def undo() -> None:
        machine.is_wanted = True
        machine.start_again()

    return undo


# --- means of faults, here and of transactions ---


def kill_machine(machine: Machine) -> Undo:
    """Sends SIGKILL; it stays down until the end of the fault."""
    machine.is_wanted = False
    machine.kill()
    return restart(machine)


def pause_process(process: Process) -> Undo:
    """Sends SIGSTOP."""
    process.pause()
    return process.resume


def change_weather(cluster: Cluster, weather: Weather) -> Undo:
    """Has all messages meet this weather."""
    network = cluster.network
    before, network.weather = network.weather, weather

    def undo() -> None:
        network.weather = before

    return undo


def cut_off(cluster: Cluster, node: str, others: Iterable[str]) -> Undo:
    """Nothing gets from the node to these others, nor back."""
    return _cut(cluster, [link for other in others for link in ((node, other), (other, node))])


# --- processes and machines ---


def kill(cluster: Cluster, rng: Random) -> Undo:
    """SIGKILL."""
    return kill_machine(_machine(cluster, rng))


def kill_leader(cluster: Cluster, rng: Random) -> Undo:
    """SIGKILL for one that leads something."""
    leaders = [
        machine
        for machine in cluster.machines.values()
        if machine.broker and any(p.is_leader for p in machine.broker.partitions.values())
    ]
    if not leaders:
        return NOTHING
    return kill_machine(rng.choice(leaders))


def power(cluster: Cluster, rng: Random) -> Undo:
    """A machine loses its power, now or in the middle of some write.

    With `log_flush=os` that costs acknowledged records if no one else is in sync, or the others end
    before the coordinator is notified of the loss, which is documented (hazard 6): so it is always
    the same machine, only while others are in sync, and in histories of `FAULTS_WITH_LOST_POWER`.
    """
    machine = _machine(cluster, rng)
    if machine.config.log_flush is LogFlush.COMMIT:
        return _lose_power(machine, rng)
    victim = cluster.machines[1]
    return _lose_power_at_once(victim, rng) if cluster.has_company(1) else NOTHING


def _lose_power(machine: Machine, rng: Random) -> Undo:
    if machine.process is None or rng.random() < 1 / 2:
        return _lose_power_at_once(machine, rng)
    machine.is_wanted = False
    survive = _survival(rng)
    machine.lose_power_in_a_write(rng.randrange(30), survive)

    def undo() -> None:
        machine.disk.disk.lose_power_at = None
        if machine.process is not None:
            machine.lose_power(survive)
        restart(machine)()

    return undo


def _lose_power_at_once(machine: Machine, rng: Random) -> Undo:
    machine.is_wanted = False
    machine.lose_power(_survival(rng))
    return restart(machine)


def _survival(rng: Random) -> Survival:
    share = rng.random()
    return rng.choice((keep_none, lambda count: int(count * share)))


def power_of_all(cluster: Cluster, rng: Random) -> Undo:
    """The whole room is dark."""
    undos = [
        _lose_power(machine, rng)
        for machine in cluster.machines.values()
        if machine.config.log_flush is LogFlush.COMMIT
    ]

    def undo_all() -> None:
        for undo in undos:
            undo()

    return undo_all


def stop(cluster: Cluster, rng: Random) -> Undo:
    """SIGTERM: a clean restart."""
    machine = _machine(cluster, rng)
    machine.stop()

    def undo() -> None:
        if machine.process is not None:  # still stopping
            machine.is_wanted = True
        else:
            restart(machine)()

    return undo


def pause(cluster: Cluster, rng: Random) -> Undo:
    """SIGSTOP of a broker or of a client."""
    processes = [m.process for m in cluster.machines.values() if m.process is not None]
    processes += cluster.client_processes if rng.random() < 1 / 4 else []
    if not processes:
        return NOTHING
    return pause_process(rng.choice(processes))


def full_disk(cluster: Cluster, rng: Random) -> Undo:
    """No more than a few bytes fit on a disk; it is emptied, and the broker started again."""
    machine = _machine(cluster, rng)
    disk = machine.disk.disk
    disk.capacity_bytes = disk.used_bytes() + rng.randrange(2000)
    return _new_disk_controller(machine, rng)


def failing_disk(cluster: Cluster, rng: Random) -> Undo:
    """Every write fails from now on; the broker is started again on what the disk has."""
    machine = _machine(cluster, rng)
    machine.disk.disk.fail_from = machine.disk.disk.operations + rng.randrange(20)
    return _new_disk_controller(machine, rng)


def _new_disk_controller(machine: Machine, rng: Random) -> Undo:
    def undo() -> None:
        machine.is_wanted = False
        machine.kill()
        machine.disk.disk.capacity_bytes = machine.disk.disk.fail_from = None
        if machine.config.log_flush is LogFlush.COMMIT:
            machine.lose_power()
        else:
            machine.forget_failed_syncs()
        restart(machine)()

    return undo


def slow_disk(cluster: Cluster, rng: Random) -> Undo:
    """A broker's work in threads, such as flushing, takes up to a second."""
    process = _machine(cluster, rng).process
    if process is None:
        return NOTHING
    process.executor_delay_s_max = 1.0

    def undo() -> None:
        process.executor_delay_s_max = EXECUTOR_DELAY_S_MAX

    return undo


def clock(cluster: Cluster, rng: Random) -> Undo:
    """A machine's clock jumps, and stays wrong."""
    _machine(cluster, rng).skew_ms += rng.randrange(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
    return NOTHING


# --- network and coordinator ---


def weather(cluster: Cluster, rng: Random) -> Undo:
    """Messages are slow, get lost, come twice; connections break."""
    return change_weather(cluster, STORM)


def cut_one_way(cluster: Cluster, rng: Random) -> Undo:
    """One broker cannot send to another."""
    source, target = rng.sample([m.node for m in cluster.machines.values()], 2)
    return _cut(cluster, [(source, target)])


def isolate(cluster: Cluster, rng: Random) -> Undo:
    """A broker reaches no other broker; or no coordinator either; or no client either."""
    node = _machine(cluster, rng).node
    others = [m.node for m in cluster.machines.values() if m.node != node]
    how_alone = rng.randrange(3)
    if how_alone > 0:
        others.append(COORDINATOR)
    if how_alone > 1:
        others += [process.name for process in cluster.client_processes]
    return cut_off(cluster, node, others)


def cut_from_coordinator(cluster: Cluster, rng: Random) -> Undo:
    """A broker reaches everybody but the coordinator, one way or both ways."""
    node = _machine(cluster, rng).node
    links = [(node, COORDINATOR), (COORDINATOR, node)]
    return _cut(cluster, rng.choice((links, links[:1], links[1:])))


def _cut(cluster: Cluster, links: list[tuple[str, str]]) -> Undo:
    network = cluster.network
    for link in links:
        network.cut(*link)

    def undo() -> None:
        for link in links:
            network.mend(*link)

    return undo


def coordinator_down(cluster: Cluster, rng: Random) -> Undo:
    """The coordinator is unreachable; sessions restart their timeout afterwards."""
    cluster.server.go_down()
    return cluster.server.come_up


def coordinator_behind(cluster: Cluster, rng: Random) -> Undo:
    """One server of the coordinator lags: clients connected to it read old data."""
    behind = cluster.server.behind
    behind.lag_s = rng.uniform(0.05, 2.0)

    def undo() -> None:
        behind.lag_s = 0
        behind.catch_up()

    return undo


def expire_session(cluster: Cluster, rng: Random) -> Undo:
    """The coordinator gives a broker up, which does not know it yet."""
    tree = _machine(cluster, rng).session_tree
    if tree is not None and tree.session_id and not cluster.server.is_down:
        cluster.server.expire(tree.session_id)
    return NOTHING


def controller_loss(cluster: Cluster, rng: Random) -> Undo:
    """The controller is killed, paused, deposed by hand, or loses its session."""
    node = cluster.server.nodes.get("/controller")
    if node is None:
        return NOTHING
    machine = cluster.machines[json.loads(node.data)["brokerid"]]
    process = machine.process
    fate = rng.randrange(4)
    if fate == 3:
        # As an administrator does with Kafka: the office is free, its holder does not know it yet.
        cluster.server.apply([Change("/controller", None)])
        return NOTHING
    if fate == 0 or process is None:
        if not cluster.server.is_down:
            cluster.server.expire(node.owner)
        return NOTHING
    if fate == 1:
        process.pause()
        return process.resume
    machine.is_wanted = False
    machine.kill()
    return restart(machine)


# --- what administrators do ---


def delete_some_records(cluster: Cluster, rng: Random) -> Undo:
    """DeleteRecords up to somewhere below the high watermark, of one partition."""
    spot = rng.choice(cluster.spots)
    if spot.topic not in cluster.deletable:
        return NOTHING
    for machine in cluster.machines.values():
        service = machine.service
        partition = service and service.broker.partitions.get(spot)
        if service and partition and partition.is_leader and not service.process.is_paused:
            offset = rng.randint(0, partition.high_watermark)
            service.process.soon(_delete_records, service.broker.services, spot, offset)
    return NOTHING


def _delete_records(services: object, spot: Spot, offset: int) -> None:
    partition = SimpleNamespace(partition_index=spot.partition, offset=offset)
    topic = SimpleNamespace(name=spot.topic, partitions=[partition])
    request = SimpleNamespace(body=SimpleNamespace(topics=[topic]))
    delete_records.handle(request, services)  # type: ignore[arg-type]


def elect(cluster: Cluster, rng: Random) -> Undo:
    """The preferred leaders are asked for."""
    request = message("elect_leaders", 2, "Request")
    body = request(topic_partitions=None, election_type=0, timeout=timedelta(seconds=1))
    _administer(cluster, rng, elect_leaders.handle, body)
    return NOTHING


def reassign(cluster: Cluster, rng: Random) -> Undo:
    """One partition gets other replicas, or the same in another order."""
    spot = rng.choice(cluster.spots)
    factor = cluster.replication_factors[spot.topic]
    replicas = rng.sample(list(cluster.machines), factor)
    partition = SimpleNamespace(partition_index=spot.partition, replicas=replicas)
    body = SimpleNamespace(topics=[SimpleNamespace(name=spot.topic, partitions=[partition])])
    _administer(cluster, rng, alter_partition_reassignments.handle, body)
    return NOTHING


def lead_on(cluster: Cluster, rng: Random) -> Undo:
    """Every leader begins another leader epoch, as at the end of a reassignment."""
    for spot in cluster.spots:
        cluster.server.process.later(rng.random(), cluster.begin_next_epoch, spot)
    return NOTHING


def recreate(cluster: Cluster, rng: Random) -> Undo:
    """A topic is deleted, and created again under the same name."""
    if not cluster.passing:
        return NOTHING
    (topic,) = cluster.passing.values()
    services = [m.service for m in cluster.machines.values() if m.service]
    if services:
        service = rng.choice(services)
        service.process.spawn(service.broker.services.topics.delete(topic.name))

    def undo() -> None:
        cluster.create_topic_somehow(topic)

    return undo


def _administer(cluster: Cluster, rng: Random, handle: Any, body: Any) -> None:
    """A Kafka request to any running broker; no one waits for the answer."""
    services = [m.service for m in cluster.machines.values() if m.service]
    if services:
        service = rng.choice(services)
        service.process.spawn(handle(SimpleNamespace(body=body), service.broker.services))


FAULTS: Final[dict[str, tuple[int, Fault]]] = {
    "kill": (3, kill),
    "kill leader": (3, kill_leader),
    "power": (3, power),
    "power of all": (1, power_of_all),
    "stop": (3, stop),
    "pause": (3, pause),
    "full disk": (1, full_disk),
    "failing disk": (1, failing_disk),
    "slow disk": (2, slow_disk),
    "clock": (1, clock),
    "weather": (4, weather),
    "cut one way": (3, cut_one_way),
    "isolate": (3, isolate),
    "cut from coordinator": (3, cut_from_coordinator),
    "coordinator down": (1, coordinator_down),
    "coordinator behind": (2, coordinator_behind),
    "expire session": (3, expire_session),
    "controller loss": (2, controller_loss),
    "delete records": (2, delete_some_records),
    "elect": (2, elect),
    "reassign": (2, reassign),
    "lead on": (2, lead_on),
    "recreate": (2, recreate),
}
"""How often each strikes, compared with the others."""

FAULTS_WITH_LOST_POWER: Final = ("power", "clock", "cut one way", "delete records", "elect")
"""Faults that may occur together with lost power if `log_flush=os`."""
