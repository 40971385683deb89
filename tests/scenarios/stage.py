"""The commands of the scenarios, carried out on a simulated cluster.

    cluster 3 [name=value ...]         starts three brokers, of which the last is the controller;
                                       settings by the names of `Config`
    topic t replicas=1,2,3 [name=value ...]   one partition, with a configuration
    produce t-0 7/0:0-4 [acks=1] [to=2] [times=1]     records of producer 7, and what becomes of them
    send a: produce ...                the same, without waiting for the answer that `answer a` shows
    fetch t-0 [from=0] [at=2]          what a consumer gets
    show t-0                           the state node, and every replica
    producers t-0                      what every replica remembers of its producers
    node PATH, file BROKER PATH        contents of a node of the coordinator, of a broker's file
    cut 1 | 2 3 zk                     nothing gets from one side to the other
    heal [1 | zk]                      mends these links, or all
    kill, start, stop, pause, resume, unplug BROKER...   `unplug` loses what was not synced
    forge-checkpoint BROKER t-0 OFFSET   its disk now says that it knew this high watermark
    expire BROKER                      ends its session with the coordinator
    delete-records t-0 OFFSET, delete-topic t, reassign t-0 replicas=2,3
    advance 5s                         lets time pass; all else takes as long as it takes

Whatever a command waits for has to come within a minute of virtual time.
"""

from __future__ import annotations

import re
from asyncio import Task
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, Self

from echoless.broker.broker import Broker
from echoless.broker.controller.reassignment import reassign
from echoless.broker.metadata.node_data import (
    LeaderAndIsr,
    decode_partition_state,
    partition_state_path,
)
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.errors import KafkaError
from echoless.storage.paths import HIGH_WATERMARK_CHECKPOINT
from tests.scenarios import drawing, words
from tests.simulation.clients import NoAnswerError
from tests.simulation.cluster import DATA_DIR, Cluster
from tests.simulation.connection import Answer
from tests.simulation.machine import Machine
from tests.support.relocation import relocate

CHANCE: Final = re.compile(r'"(topic_id|timestamp)":"[^"]*"')
"""Values that differ in every run."""
PATIENCE_S: Final = 60.0
ARRIVAL_S: Final = 0.02
"""Time after which a message has reached a broker."""
SETTINGS: Final = {
    "coordinator": "zookeeper://simulated",
    "zookeeper_session_timeout_ms": 3000,
    "replica_lag_time_max_ms": 3000,
    "auto_create_topics_enable": False,
}
ACKS: Final = {"all": -1, "1": 1}


class Stage:
    """One cluster, from its first command to its last. Use as a context manager."""

    def __init__(self, seed: int = 1) -> None:
        """`seed` decides about what no scenario should depend on: delays of milliseconds."""
        self._seed = seed
        self._cluster: Cluster | None = None
        self._cuts: list[tuple[str, str]] = []
        self._answers: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._cluster is not None:
            self._cluster.__exit__(exc_type, exc, traceback)

    def play(self, command: str) -> list[str]:
        """Carries out one command; returns the lines that it shows."""
        name, *parts = command.split()
        options = dict(part.split("=", 1) for part in parts if "=" in part)
        arguments = [part for part in parts if "=" not in part]
        return list(getattr(self, "do_" + name.replace("-", "_"))(*arguments, **options) or ())

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "a scenario begins with its cluster"
        return self._cluster

    @property
    def findings(self) -> list[str]:
        """Problems that the simulation found meanwhile."""
        return self.cluster.observations.findings

    # --- the cluster ---

    def do_cluster(self, count: str, **settings: str) -> None:
        given = {name: words.setting(name, value) for name, value in settings.items()}
        cluster = Cluster(self._seed, broker_count=int(count), settings={**SETTINGS, **given})
        self._cluster = cluster.__enter__()
        for broker_id in reversed(cluster.machines):
            self.do_start(str(broker_id))

    def do_advance(self, duration: str) -> None:
        self.cluster.run_for(float(duration.removesuffix("s")))

    def do_kill(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            machine.is_wanted = False
            machine.kill()

    def do_unplug(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            machine.is_wanted = False
            machine.lose_power()

    def do_stop(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            machine.stop()
            self.cluster.run_until_true(lambda machine=machine: not machine.process, PATIENCE_S)

    def do_start(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            machine.start()
        for machine in self._machines(brokers):
            self.cluster.run_until_true(lambda machine=machine: machine.service, PATIENCE_S)

    def do_pause(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            assert machine.process is not None
            machine.process.pause()

    def do_resume(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            assert machine.process is not None
            machine.process.resume()

    def do_expire(self, *brokers: str) -> None:
        for machine in self._machines(brokers):
            assert machine.session_tree is not None
            self.cluster.server.expire(machine.session_tree.session_id)

    def do_cut(self, *sides: str) -> None:
        for link in words.links(sides):
            self.cluster.network.cut(*link)
            self._cuts.append(link)

    def do_heal(self, *sides: str) -> None:
        for link in words.links(sides) if sides else list(self._cuts):
            self.cluster.network.mend(*link)
            self._cuts.remove(link)

    # --- topics ---

    def do_topic(self, name: str, *, replicas: str, **config: str) -> None:
        assignment = {0: words.ids(replicas)}
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        broker = self._any_broker()
        new = NewTopic(name=name, assignment=assignment, config=dotted)
        self._run(broker, broker.services.topics.create(new))

    def do_delete_topic(self, name: str) -> None:
        broker = self._any_broker()
        self._run(broker, broker.services.topics.delete(name))

    def do_reassign(self, partition: str, *, replicas: str) -> None:
        broker = self._any_broker()
        name, index = words.partition(partition)
        moving = reassign(broker.registry.topics[name], index, words.ids(replicas))
        self._run(broker, relocate(broker.registry, name, index, *moving))

    def do_delete_records(self, partition: str, offset: str) -> None:
        machine = self._leader(partition)
        assert machine.broker is not None
        machine.broker.partitions[words.partition(partition)].advance_log_start(int(offset))

    # --- clients ---

    def do_produce(
        self, partition: str, records: str, *, acks: str = "all", to: str = "", value: str = ""
    ) -> list[str]:
        machine, message, count = self._produce_message(partition, records, acks, to, value)
        return [_outcome(machine, self._call(machine, message), count)]

    def do_send(self, name: str, command: str, *arguments: str, **options: str) -> None:
        assert command == "produce", "only produce messages are sent without waiting"
        defaults = {"acks": "all", "to": "", "value": ""}
        machine, message, count = self._produce_message(*arguments, *(defaults | options).values())
        task = self._ask(machine, message)
        self.cluster.run_for(ARRIVAL_S)
        self._answers[name.removesuffix(":")] = (machine, task, count)

    def do_answer(self, name: str) -> list[str]:
        machine, task, count = self._answers[name]
        return [_outcome(machine, task.result(), count) if task.done() else "none yet"]

    def do_fetch(self, partition: str, *, at: str = "", **options: str) -> list[str]:
        name, index = words.partition(partition)
        machine = self._machine(at) if at else self._leader(partition)
        offset = int(options.get("from", "0"))
        message = {"type": "fetch", "topic": name, "partition": index, "offset": offset}
        answer = self._call(machine, {**message, "raw": True, "max_wait_ms": 0})
        if answer is None:
            return [f"{machine.node}: no answer"]
        if answer["error"]["code"]:
            return [f"{machine.node}: {answer['error']['name']}"]
        return [f"{machine.node}: {drawing.batches(answer['batches']) or 'nothing'}"]

    def _call(self, machine: Machine, message: dict[str, Any]) -> Answer | None:
        task = self._ask(machine, message)
        self.cluster.run_until_true(task.done, PATIENCE_S)
        return task.result()

    def _ask(self, machine: Machine, message: dict[str, Any]) -> Task[Answer | None]:
        """Sends each message from a separate client.

        Answers come in the order of a client's messages.
        """
        client = self.cluster.new_client(words.CLIENT)

        async def ask() -> Answer | None:
            try:
                return await client.ask(client.connection(machine.node), message, PATIENCE_S / 2)
            except NoAnswerError:
                return None

        return client.process.spawn(ask())

    def _produce_message(
        self, partition: str, records: str, acks: str, to: str, value: str
    ) -> tuple[Machine, dict[str, Any], int]:
        name, index = words.partition(partition)
        machine = self._machine(to) if to else self._leader(partition)
        batch, count = words.batch(records, value)
        message = {
            "type": "produce",
            "topic": name,
            "partition": index,
            "acks": ACKS[acks],
            "timeout_ms": 10_000,
            "batch": batch,
        }
        return machine, message, count

    # --- looking ---

    def do_show(self, partition: str) -> list[str]:
        name, index = words.partition(partition)
        lines = [drawing.state(self._state(partition))]
        replicas = self._replicas(name, index)
        return lines + [
            drawing.replica(self._machine(str(one)), partition, (name, index)) for one in replicas
        ]

    def do_producers(self, partition: str) -> list[str]:
        key = words.partition(partition)
        return [
            f"  {machine.broker_id} {drawing.producers(machine.broker.partitions[key])}"
            for machine in self.cluster.machines.values()
            if machine.broker is not None and key in machine.broker.partitions
        ]

    def do_node(self, path: str) -> list[str]:
        node = self.cluster.server.nodes.get(path)
        if node is None:
            return ["there is no such node"]
        return [CHANCE.sub(r'"\1":"..."', node.data.decode())]

    def do_file(self, broker: str, path: str) -> list[str]:
        disk = self._machine(broker).disk
        full = f"{DATA_DIR}/{path}"
        if not disk.exists(full):
            return ["there is no such file"]
        if disk.is_directory(full):
            return [f"  {name}" for name in sorted(disk.list_directory(full))]
        return [f"  {line}" for line in disk.read_bytes(full).decode().splitlines()]

    def do_forge_checkpoint(self, broker: str, partition: str, offset: str) -> None:
        topic, index = words.partition(partition)
        path = f"{DATA_DIR}/{HIGH_WATERMARK_CHECKPOINT}"
        self._machine(broker).disk.write_atomic(path, f"0\n1\n{topic} {index} {offset}\n".encode())

    # --- what is meant ---

    def _machine(self, broker: str) -> Machine:
        return self.cluster.machines[int(broker)]

    def _machines(self, brokers: Iterable[str]) -> list[Machine]:
        return [self._machine(broker) for broker in brokers]

    def _state(self, partition: str) -> LeaderAndIsr | None:
        path = partition_state_path(*words.partition(partition))
        node = self.cluster.server.nodes.get(path)
        return None if node is None else decode_partition_state(path, node)

    def _leader(self, partition: str) -> Machine:
        state = self._state(partition)
        assert state is not None, f"{partition} has no state"
        assert state.leader >= 0, f"{partition} has no leader; say `to=` whom"
        return self._machine(str(state.leader))

    def _replicas(self, name: str, index: int) -> list[int]:
        """The current assignment, and others that still hold the partition."""
        holding = [
            machine.broker_id
            for machine in self.cluster.machines.values()
            if f"{name}-{index}" in machine.disk.read_logs(DATA_DIR)
        ]
        return sorted(holding)

    def _any_broker(self) -> Broker:
        for machine in self.cluster.machines.values():
            if machine.broker is not None and not machine.process.is_paused:  # type: ignore[union-attr]
                return machine.broker
        raise AssertionError("no broker runs")

    def _run(self, broker: Broker, work: Coroutine[Any, Any, Any]) -> None:
        process = self.cluster.machines[broker.config.broker_id].process
        assert process is not None
        task = process.spawn(work)
        self.cluster.run_until_true(task.done, PATIENCE_S)
        try:
            task.result()
        except KafkaError as error:
            raise AssertionError(str(error)) from error


def _outcome(machine: Machine, answer: Answer | None, record_count: int) -> str:
    if answer is None:
        return f"{machine.node}: no answer"
    return drawing.produced(machine.node, answer, record_count)
