"""The simulated world of one history: coordinator, machines, network, clients, and what they show."""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio import Task
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Self

from echoless.broker.config.loading import Config
from echoless.broker.replication.peers import PeerError
from echoless.broker.tree.node_tree import CoordinationError, Node
from echoless.broker.tree.nodes import Change
from echoless.protocol.errors import KafkaError
from echoless.storage.file_system import CorruptLogError, StorageError
from tests.fakes.memory_file_system import PowerFailure
from tests.simulation.clients import Client, NoAnswerError
from tests.simulation.connection import ConnectionBrokenError, Service, Services
from tests.simulation.consumer import Subscription
from tests.simulation.coordinator import TreeServer
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.observations import Append, Observations, SentBatch, Spot
from tests.simulation.process import Process
from tests.simulation.producer import ACKS_ALL, Lane
from tests.simulation.virtual_loop import VirtualLoop

DATA_DIR: Final = "/data"
KEYS: Final = 6
"""Different keys in a partition of a compacted topic."""
TOMBSTONES: Final = 0.15
"""The share of its records that delete their key."""
EXPECTED_ERRORS: Final = (
    KafkaError,
    CoordinationError,
    StorageError,
    PeerError,
    ConnectionBrokenError,
    NoAnswerError,
    PowerFailure,
    OSError,
    TimeoutError,
)
"""The errors a task may end with; any other is a bug, and ends a real broker's process."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Topic:
    """A topic that the history begins with."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """Everything that runs in one history. Use as a context manager."""

    def __init__(self, seed: int, *, broker_count: int, settings: Mapping[str, Any]) -> None:
        self.rng = Random(seed)
        self.loop = VirtualLoop(  # type: ignore[abstract]  # only what is needed
            self._new_rng(), self._take_error
        )
        self.observations = Observations(self.loop.time)
        self.network = Network(self.loop, self._new_rng())
        self.services = Services()
        self.server = TreeServer(self.network)
        self.server.on_change = self._see_node
        self.machines: dict[int, Machine] = {}
        self.impostors: list[Machine] = []
        """Machines that should not be there."""
        self.lanes: list[Lane] = []
        self.subscriptions: list[Subscription] = []
        self.client_processes: list[Process] = []
        self.spots: list[Spot] = []
        """The partitions that producers write to."""
        self.replication_factors: dict[str, int] = {}
        self.deletable: dict[str, None] = {}
        """Topics whose records may be deleted."""
        self.passing: dict[str, Topic] = {}
        """Topics that are deleted and created again: of their records nothing is promised."""
        self.compacted: dict[str, None] = {}
        """Topics of which only the newest record of each key stays."""
        self.transactional: dict[str, None] = {}
        """Topics that are written in transactions: what readers are promised of them is judged by their history."""
        for broker_id in range(1, broker_count + 1):
            self.add_machine(broker_id, settings)

    def __enter__(self) -> Self:
        self.loop.__enter__()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.loop.__exit__()
        processes = [*self.client_processes, self.server.process]
        for machine in (*self.machines.values(), *self.impostors):
            processes += machine.old_processes
            if machine.process is not None:
                processes.append(machine.process)
        for process in processes:
            process.discard()

    def _new_rng(self) -> Random:
        return Random(self.rng.getrandbits(64))

    def add_machine(self, broker_id: int, settings: Mapping[str, Any]) -> Machine:
        """One more machine; its broker is not started."""
        config = Config(broker_id=broker_id, data_dir=DATA_DIR, **settings)
        machine = self.machines[broker_id] = self.new_machine(config, f"broker-{broker_id}")
        return machine

    def new_machine(self, config: Config, node: str) -> Machine:
        """A machine that no one knows yet."""
        machine = Machine(
            config,
            node,
            network=self.network,
            server=self.server,
            services=self.services,
            rng=self._new_rng(),
            observe=self._see_answer,
        )
        machine.disk.observe = self._see_append
        machine.on_start_failure = self._see_start_failure
        return machine

    # Running

    def start(self, topics: Sequence[Topic], within_s: float = 60.0) -> None:
        """Starts all brokers and creates the topics."""
        for machine in self.machines.values():
            machine.start()
        self.run_until_true(lambda: all(m.service for m in self.machines.values()), within_s)
        self._admin = self.new_client("admin")
        for topic in topics:
            task = self.create_topic_somehow(topic)
            self.run_until_true(task.done, within_s)
            self.replication_factors[topic.name] = topic.replication_factor
            self.spots += [Spot(topic.name, index) for index in range(topic.partitions)]

    def create_topic_somehow(self, topic: Topic) -> Task[None]:
        """Asks brokers to create the topic until it is there."""
        return self._admin.process.spawn(self._create_topic(topic))

    async def _create_topic(self, topic: Topic) -> None:
        message = {
            "type": "create_topic",
            "topic": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "configs": dict(topic.config),
        }
        while True:
            await self._admin.ask_anyone(message)
            # A broker that answers that it exists may not have been notified that it was deleted.
            if self.server.nodes.get(f"/brokers/topics/{topic.name}") is not None:
                return
            await self._admin.back_off()

    async def _keep_topic(self, topic: Topic) -> None:
        """A deletion may be late: the topic is there in the end all the same."""
        for _ in range(5):
            await self._create_topic(topic)
            await asyncio.sleep(1.0)

    def has_company(self, broker_id: int) -> bool:
        """Whether in each partition that counts on this broker another one is in sync as well."""
        return all(self.state_of(spot).get("isr") != [broker_id] for spot in self.spots)

    def state_of(self, spot: Spot) -> dict[str, Any]:
        """The partition's state node; empty where there is none."""
        node = self.server.nodes.get(state_path(spot))
        state: dict[str, Any] = {} if node is None else json.loads(node.data)
        return state

    def begin_next_epoch(self, spot: Spot, leader: int | None = None) -> None:
        """Raises the leader epoch, as a controller does: under the same leader, if it is registered, or another."""
        nodes, state = self.server.nodes, self.state_of(spot)
        path = state_path(spot)
        before, epoch = nodes.get(path), nodes.get("/controller_epoch")
        is_there = state and nodes.get(f"/brokers/ids/{state['leader']}") is not None
        if self.server.is_down or before is None or epoch is None or not is_there:
            return
        state["controller_epoch"] = int(epoch.data)
        state["leader_epoch"] += 1
        state["leader"] = state["leader"] if leader is None else leader
        data = json.dumps(state, separators=(",", ":")).encode()
        self.server.apply([Change(path, Node(data, before.version + 1))])

    def run_for(self, duration_s: float, is_done: Callable[[], bool] | None = None) -> None:
        """Lets virtual time pass, until `is_done` at the latest."""
        self.loop.run_until(self.loop.time() + duration_s, is_done)

    def run_until_true(self, is_done: Callable[[], bool], within_s: float) -> None:
        """Raises `AssertionError` when it does not come true in time."""
        is_true = self.loop.run_until(self.loop.time() + within_s, is_done)
        assert is_true, f"did not happen within {within_s} s: {self.observations.findings}"

    def heal(self) -> None:
        """Everything works and everybody runs again; clocks stay as they are."""
        self.network.heal()
        if self.server.is_down:
            self.server.come_up()
        self.server.behind.lag_s = 0
        self.server.behind.catch_up()
        for topic in self.passing.values():
            self._admin.process.spawn(self._keep_topic(topic))
        for process in self.client_processes:
            if process.is_paused:
                process.resume()
        for machine in self.machines.values():
            if machine.process is not None and machine.process.is_paused:
                machine.process.resume()
            machine.is_wanted = True
            machine.start_again()

    # Clients

    def new_client(self, name: str) -> Client:
        """A client program that knows all brokers."""
        client = Client(
            name,
            network=self.network,
            services=self.services,
            broker_nodes=[machine.node for machine in self.machines.values()],
            rng=self._new_rng(),
            observations=self.observations,
        )
        self.client_processes.append(client.process)
        return client

    def add_producer(
        self,
        name: str,
        spots: Sequence[Spot],
        *,
        batches: int,
        over_s: float,
        acks: int = ACKS_ALL,
        burst: int = 4,
        in_flight_max: int = 5,
    ) -> Client:
        """A producer of this many batches for each of the partitions, in bursts over the time."""
        client = self.new_client(name)
        rng = client.rng
        for spot in spots:
            begin = self.loop.time()
            times = sorted(begin + rng.random() * over_s for _ in range(batches))
            plan = [
                SentBatch(
                    producer=name,
                    spot=spot,
                    number=number,
                    values=_values(name, spot, number, rng),
                    acks=acks,
                    ready_at=times[number - number % burst],
                )
                for number in range(batches)
            ]
            if spot.topic in self.compacted:
                for batch in plan:
                    _give_keys(batch, rng)
            self.observations.batches += plan
            lane = Lane(client, spot, acks, plan, in_flight_max)
            self.lanes.append(lane)
            client.process.spawn(lane.run())
        return client

    def watch(self, lane: Lane) -> None:
        """Nothing has settled before this lane is done."""
        if lane not in self.lanes:
            self.lanes.append(lane)

    def add_consumer(self, name: str, spots: Sequence[Spot]) -> Client:
        """A consumer of the partitions, from their beginnings."""
        client = self.new_client(name)
        for spot in spots:
            subscription = Subscription(client, spot)
            self.subscriptions.append(subscription)
            client.process.spawn(subscription.run())
        return client

    # Seeing

    def _take_error(self, owner: Process | None, error: BaseException) -> None:
        # A change of state that the failure cut short ends the process by the name of doubt.
        if isinstance(error, PowerFailure) or isinstance(error.__cause__, PowerFailure):
            for machine in self.machines.values():
                if machine.process is owner is not None:
                    machine.power_failed(owner)
        elif not isinstance(error, EXPECTED_ERRORS):
            logging.getLogger(__name__).error("%s", owner, exc_info=error)
            place = _place_of(error)
            self.observations.find(f"{owner}: {type(error).__name__}: {error} ({place})")

    def _see_start_failure(self, machine: Machine, error: Exception) -> None:
        self.observations.note(machine.node, "cannot start", str(error))
        if isinstance(error, CorruptLogError):
            self.observations.find(f"{machine.node} refuses to start: {error}")

    def _see_node(self, change: Change) -> None:
        data = None if change.node is None else change.node.data
        self.observations.state_changes.append((self.loop.time(), change.path, data))
        self.observations.note("node", change.path, data)

    def _see_append(self, node: str, path: str, data: bytes) -> None:
        directory = path.rsplit("/", 2)[1]
        self.observations.appends.append(Append(self.loop.time(), node, directory, data))
        self.observations.note(node, "appends", directory, len(data), data[:16].hex())

    def _see_answer(
        self, service: Service, message: Mapping[str, Any], answer: dict[str, Any], arrived: float
    ) -> None:
        if answer["error"]["code"]:
            return
        if message["type"] == "init_producer_id":
            now = self.loop.time()
            self.observations.producer_ids.append((now, service.node, answer["producer_id"]))
        elif message["type"] == "produce":
            self._check_session(service, arrived)

    def _check_session(self, service: Service, arrived: float) -> None:
        """Checks that an acknowledging broker has a session, unless it was paused in between."""
        machine = self.machines[service.broker.config.broker_id]
        tree = machine.session_tree
        session = None if tree is None else self.server.sessions.get(tree.session_id)
        if session is None or session.ended_at is None or session.was_cut_short:
            return
        ended, resumed = session.ended_at, service.process.resumed_at
        if ended < arrived or not (arrived <= resumed and ended <= resumed):
            self.observations.find(
                f"{service.process} acknowledged a produce request that came at {arrived:.3f}, "
                f"its session had ended at {ended:.3f}"
            )


def state_path(spot: Spot) -> str:
    """The node with the leader and the in-sync replicas."""
    return f"/brokers/topics/{spot.topic}/partitions/{spot.partition}/state"


def _values(name: str, spot: Spot, number: int, rng: Random) -> tuple[bytes, ...]:
    """One to three unique records of various sizes."""
    return tuple(
        f"{name}/{spot.topic}/{spot.partition}/{number}/{index}".encode()
        + b"." * rng.choice((0, 20, 100))
        for index in range(rng.choice((1, 1, 2, 3)))
    )


def _give_keys(batch: SentBatch, rng: Random) -> None:
    """Makes the records those of a table: each has a key of a few, and some delete it."""
    batch.keys = tuple(b"key %d" % rng.randrange(KEYS) for _ in batch.values)
    batch.values = tuple(None if rng.random() < TOMBSTONES else one for one in batch.values)


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    place = "?"
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/main/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
