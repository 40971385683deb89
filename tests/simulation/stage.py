"""A calm cluster for a scenario, which decides what goes wrong, and when.

One topic, "t", with one partition on all brokers but one where asked for. The stage knows who leads
and who follows, sends batches one by one, and ends as a random history does: everything heals, all
comes to rest, and the checkers judge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, Self

from echoless.broker.config.loading import LogFlush
from echoless.broker.handlers import delete_records
from echoless.broker.partitions.partition import Partition
from echoless.broker.tree.nodes import Change
from tests.simulation.checkers import settled
from tests.simulation.clients import REQUEST_TIMEOUT_S, Client, error_code
from tests.simulation.cluster import Cluster, Topic
from tests.simulation.coordinator import NODE as COORDINATOR
from tests.simulation.history import COORDINATOR_URL, has_settled
from tests.simulation.machine import Machine
from tests.simulation.observations import SentBatch, Spot
from tests.simulation.producer import ACKS_ALL, Lane

SPOT: Final = Spot("t", 0)
SETTINGS: Final[dict[str, Any]] = {
    "coordinator": COORDINATOR_URL,
    "log_flush": LogFlush.COMMIT,
    "min_insync_replicas": 1,
    "zookeeper_session_timeout_ms": 3000,
    "replica_lag_time_max_ms": 1000,
    "log_segment_bytes": 100_000,
    "auto_create_topics_enable": False,
}


class Stage:
    """The cluster of one scenario. Use as a context manager."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        factor: int | None = None,
        seed: int = 1,
        config: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`config`: the topic's; `settings`: the brokers'."""
        self.cluster = Cluster(seed, broker_count=brokers, settings={**SETTINGS, **settings})
        self.network = self.cluster.network
        self.server = self.cluster.server
        self._topic = Topic(
            name="t",
            partitions=1,
            replication_factor=brokers if factor is None else factor,
            config=config or {},
        )
        if self._topic.config.get("cleanup.policy") == "compact":
            self.cluster.compacted["t"] = None
        self._sent = 0

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.cluster.start([self._topic])
        factor = self._topic.replication_factor
        self.until(lambda: len(self.partition(self.leader).isr) == factor)
        self.run(1.0)
        return self

    def __exit__(self, *exception: object) -> None:
        self.cluster.__exit__(*exception)

    # Time

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.cluster.run_for(seconds)

    def until(self, is_true: Callable[[], bool], within_s: float = 60.0) -> None:
        """Lets time pass until something is true; it has to become so."""
        self.cluster.run_until_true(is_true, within_s)

    # Who is who

    @property
    def machines(self) -> dict[int, Machine]:
        return self.cluster.machines

    @property
    def leader(self) -> Machine:
        """The one machine whose broker leads, as the state node has it."""
        leader_id = self.state["leader"]
        return self.machines[leader_id]

    @property
    def state(self) -> dict[str, Any]:
        """The partition's state node."""
        return self.cluster.state_of(SPOT)

    def is_led_by_another_than(self, machine: Machine) -> bool:
        """Whether a new leader has begun to lead."""
        leader_id = self.state["leader"]
        if leader_id in {-1, machine.broker_id}:
            return False
        broker = self.machines[leader_id].broker
        return broker is not None and broker.partitions[SPOT].is_leader

    @property
    def followers(self) -> list[Machine]:
        """All others that hold the partition, by id."""
        leader = self.leader
        return [m for m in self.machines.values() if m is not leader and self.holds(m)]

    def holds(self, machine: Machine) -> bool:
        """Whether its broker runs and has a replica."""
        return machine.broker is not None and SPOT in machine.broker.partitions

    def partition(self, machine: Machine) -> Partition:
        """Its replica."""
        assert machine.broker is not None
        return machine.broker.partitions[SPOT]

    def doubts_its_clock(self, machine: Machine) -> bool:
        """Whether its broker has not compared its clock with the others' yet, or disagrees with them."""
        assert machine.broker is not None
        return machine.broker.clock.doubt is not None

    def end_of(self, machine: Machine) -> int:
        """The log end offset of its replica."""
        return self.partition(machine).log.log_end_offset

    # Clients

    def producer(
        self,
        name: str = "p",
        in_flight_max: int = 5,
        acks: int = ACKS_ALL,
        key: bytes | None = None,
    ) -> Producer:
        """A producer that sends on request; `key`: that of all its records."""
        return Producer(self, name, in_flight_max, acks, key)

    def consumer(self, name: str = "c") -> None:
        """A consumer that reads all the time."""
        self.cluster.add_consumer(name, [SPOT])

    # What goes wrong

    def cut(self, source: Machine | str, target: Machine | str) -> None:
        """One way only."""
        self.network.cut(_node(source), _node(target))

    def part(self, one: Machine | str, other: Machine | str) -> None:
        """Both ways."""
        self.cut(one, other)
        self.cut(other, one)

    def mend(self, source: Machine | str, target: Machine | str) -> None:
        """One way only."""
        self.network.mend(_node(source), _node(target))

    def join(self, one: Machine | str, other: Machine | str) -> None:
        """Both ways."""
        self.mend(one, other)
        self.mend(other, one)

    def kill(self, *machines: Machine) -> None:
        """Sends SIGKILL; the machines are not restarted."""
        for machine in machines:
            machine.is_wanted = False
            machine.kill()

    def lose_power(self, machine: Machine) -> None:
        """Everything that was not synced is gone."""
        machine.is_wanted = False
        machine.lose_power()

    def start(self, *machines: Machine) -> None:
        """Starts what was ended, and waits until it answers."""
        for machine in machines:
            machine.is_wanted = True
            machine.start_again()
        self.until(lambda: all(machine.service for machine in machines))

    def delete_records(self, offset: int = -1) -> None:
        """DeleteRecords at the leader; -1: all that is committed. Then lets the files go."""
        service = self.leader.service
        assert service is not None
        row = SimpleNamespace(partition_index=0, offset=offset)
        body = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[row])])
        service.process.soon(
            delete_records.handle, SimpleNamespace(body=body), service.broker.services
        )
        self.run(12.0)

    # The coordinator

    @property
    def controller(self) -> Machine:
        """The current controller."""
        node = self.server.nodes.get("/controller")
        assert node is not None, "nobody is the controller"
        return self.machines[json.loads(node.data)["brokerid"]]

    def is_gone(self, machine: Machine) -> bool:
        """Whether the coordinator has given the broker up."""
        return self.server.nodes.get(f"/brokers/ids/{machine.broker_id}") is None

    def controller_is_none_of(self, *machines: Machine) -> bool:
        """Nor is the office free."""
        node = self.server.nodes.get("/controller")
        return node is None or self.controller not in machines

    def elect(self, machine: Machine) -> None:
        """Has a machine in sync lead in the next leader epoch; returns when it does."""
        epoch, partition = self.state["leader_epoch"] + 1, self.partition(machine)
        self.cluster.begin_next_epoch(SPOT, machine.broker_id)
        self.until(lambda: partition.is_leader and partition.leader_epoch == epoch)

    def depose(self, machine: Machine) -> Machine:
        """Frees the office, until another machine has taken it; that machine."""
        while self.controller is machine:
            self.server.apply([Change("/controller", None)])
            self.until(lambda: self.server.nodes.get("/controller") is not None)
        return self.controller

    def hold_back(self, machine: Machine) -> None:
        """Holds back its messages to the coordinator."""
        self.cut(machine, COORDINATOR)

    def hold_back_at_next_write(self, machine: Machine) -> Callable[[], bool]:
        """Holds back its next atomic write, and all after it; returns whether that has come."""
        tree = machine.session_tree
        assert tree is not None
        held = []

        def hold() -> None:
            self.hold_back(machine)
            held.append(machine)

        tree.before_next_multi = hold
        return lambda: bool(held)

    def let_go(self, machine: Machine) -> None:
        """Delivers what was held back."""
        self.mend(machine, COORDINATOR)

    def break_connections(self, machine: Machine) -> None:
        """Ends the connections of its broker to the others: its fetcher begins anew."""
        assert machine.broker is not None
        for other in self.machines:
            machine.broker.membership._peers.disconnect(other)  # type: ignore[attr-defined]

    # Machines and topics

    def impostor_of(self, machine: Machine) -> Machine:
        """Another machine whose broker has the same id."""
        impostor = self.cluster.new_machine(machine.config, f"{machine.node}-impostor")
        self.cluster.impostors.append(impostor)
        return impostor

    def recreate_topic(self) -> None:
        """Deletes the topic and creates it again."""
        service = self.leader.service
        assert service is not None
        deletion = service.process.spawn(service.broker.services.topics.delete("t"))
        self.until(deletion.done)
        self.until(self.cluster.create_topic_somehow(self._topic).done)

    def forget_everything_before(self, batch: SentBatch) -> None:
        """Removes everything sent to and read from a deleted topic from the checkers' view."""
        observations = self.cluster.observations
        position = observations.batches.index(batch)
        del observations.batches[:position]
        observations.polls.clear()
        observations.appends = [one for one in observations.appends if one.at > batch.ready_at]

    # The end

    def findings(self) -> list[str]:
        """Heals everything, waits until all is at rest, and says what was broken."""
        cluster = self.cluster
        cluster.heal()
        if has_settled(cluster):
            settled.judge(cluster)
        return cluster.observations.findings


class Producer:
    """An idempotent producer of the scenario: each batch is sent until it is acknowledged."""

    def __init__(
        self, stage: Stage, name: str, in_flight_max: int, acks: int, key: bytes | None
    ) -> None:
        self._stage = stage
        self._cluster = stage.cluster
        self._keys = () if key is None else (key,)
        client = self._cluster.new_client(name)
        self._lane = Lane(client, SPOT, acks, [], in_flight_max)
        self._count = 0

    @property
    def client(self) -> Client:
        return self._lane.client

    def begin(self, count: int = 1) -> list[SentBatch]:
        """Gives the producer more batches; it sends them in its own time."""
        now = self._cluster.loop.time()
        batches = [
            SentBatch(
                producer=self.client.name,
                spot=SPOT,
                number=number,
                values=(f"{self.client.name}-{number}".encode(),),
                acks=self._lane.acks,
                ready_at=now,
                keys=self._keys,
            )
            for number in range(self._count, self._count + count)
        ]
        self._count += count
        self._cluster.observations.batches += batches
        self._cluster.watch(self._lane)
        self._lane.add(batches)
        return batches

    def send(self, count: int = 1) -> list[SentBatch]:
        """Returns when all are acknowledged."""
        batches = self.begin(count)
        self._stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        return batches

    def ask(self, machine: Machine, batch: SentBatch, acks: int = ACKS_ALL) -> Any:
        """Sends the bytes of a batch to this broker, out of turn; the task of its error code."""
        client = self.client

        async def ask() -> int:
            message = {
                "type": "produce",
                "topic": "t",
                "partition": 0,
                "acks": acks,
                "timeout_ms": 1000,
                "batch": batch.data,
            }
            connection = client.connection(machine.node)
            return error_code(await client.ask(connection, message, REQUEST_TIMEOUT_S))

        return client.process.spawn(ask())


def _node(place: Machine | str) -> str:
    return place if isinstance(place, str) else place.node


__all__ = ["COORDINATOR", "SPOT", "Producer", "Stage"]
