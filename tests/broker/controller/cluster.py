"""Controllers of several brokers over one tree in memory, in virtual time; leaders keep their ISRs.

`play(scenario)` runs a coroutine on the virtual loop, where `await settle()` lets everything happen
that can happen. Every state that is ever written is held against the rules (`History`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from echoless.broker.cluster.withdrawal import withdraw
from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.controller.controller import Controller
from echoless.broker.metadata.live_brokers import LiveBrokers
from echoless.broker.metadata.node_data import (
    CONTROLLER_EPOCH,
    NO_LEADER,
    TOPICS,
    LeaderAndIsr,
    decode_partition_state,
    decode_topic,
    partition_state_path,
)
from echoless.broker.metadata.registration import (
    BrokerInfo,
    Endpoint,
    register_broker,
    update_registration,
)
from echoless.broker.metadata.topic import NewTopic, StateChange, Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import CoordinationError, Node, SessionState
from echoless.broker.tree.nodes import Change
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree
from tests.simulation.virtual_loop import START_S, VirtualLoop

_HOUR_S = 3600.0
_SETTLED_S = 5.0
"""Far longer than any retry."""


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs the scenario to its end; whatever any task raises is raised here."""
    errors: list[BaseException] = []
    with VirtualLoop(Random(0), lambda _, error: errors.append(error)) as loop:
        task = loop.create_task(scenario)
        is_done = loop.run_until(START_S + _HOUR_S, task.done)
    if errors:
        raise errors[0]
    assert is_done, "the scenario waits for ever"
    task.result()


async def settle() -> None:
    """Runs until nothing more happens."""
    await asyncio.sleep(_SETTLED_S)


class SteppedTree(MemoryNodeTree):
    """A client that something happens to at the n-th call from now."""

    def __init__(self, server: MemoryTree) -> None:
        super().__init__(server)
        self.calls = 0
        """So far."""
        self._calls_left = 0
        self._fault: Callable[[SteppedTree], None] = lambda _: None

    def after_calls(self, count: int, fault: Callable[[SteppedTree], None]) -> None:
        """Calls `fault` instead of letting the call go through at once."""
        self._calls_left, self._fault = count, fault

    async def _round_trip(self) -> None:
        self.calls += 1
        self._calls_left -= 1
        if self._calls_left == 0:
            self._fault(self)
        await super()._round_trip()


class History(MemoryTree):
    """The server, which checks every state that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, LeaderAndIsr]] = []
        self.allows_unclean = False

    def connect(self) -> SteppedTree:
        client = SteppedTree(self)
        self.clients.append(client)
        return client

    def state(self, topic: str, partition: int) -> LeaderAndIsr | None:
        """The state in the tree."""
        path = partition_state_path(topic, partition)
        node = self.nodes.get(path)
        return None if node is None else decode_partition_state(path, node)

    def apply(self, changes: Sequence[Change]) -> None:
        for path, node in changes:
            if path.endswith("/state") and node is not None:
                old = self.nodes.get(path)
                after = decode_partition_state(path, node)
                self._check(old and decode_partition_state(path, old), after)
                self.written.append((path, after))
        super().apply(changes)
        for path, node in changes:
            if path.startswith(f"{TOPICS}/") and path.count("/") == 3 and node is not None:
                self._check_assignment(path, node)

    def _check(self, before: LeaderAndIsr | None, after: LeaderAndIsr) -> None:
        assert after.isr
        assert after.leader == NO_LEADER or after.leader in after.isr
        if before is None:
            return
        assert after.leader_epoch >= before.leader_epoch
        assert after.controller_epoch >= before.controller_epoch
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
            assert self.allows_unclean or after.leader in {NO_LEADER, *before.isr}

    def _check_assignment(self, path: str, node: Node) -> None:
        """Checks that some broker with all records is always a replica."""
        for partition, replicas in decode_topic(path, node.data).assignment.items():
            state = self.state(path.rpartition("/")[2], partition)
            assert state is None or set(state.isr) & set(replicas)

    def controller_epoch(self) -> int:
        return int(self.nodes.read(CONTROLLER_EPOCH).data)


class Member:
    """One broker: registered, following the tree, and perhaps the controller."""

    def __init__(self, server: History, broker_id: int, *, unclean: bool = False) -> None:
        self.broker_id = broker_id
        self.unclean = unclean
        """The broker's setting, which may change while it runs."""
        self.tree = server.connect()
        self.registry = TopicRegistry(self.tree, rng=Random(broker_id))
        self.live_brokers = LiveBrokers(self.tree)
        self.elections: defaultdict[str, int] = defaultdict(int)
        self.controller = Controller(
            self.tree,
            self.registry,
            self.live_brokers,
            broker_id,
            unclean=lambda _: self.unclean,
            now_ms=lambda: 0,
            elections=self.elections,
            internal_replicas={CONSUMER_OFFSETS: 3},
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Joins as a starting broker does, with a log whose end may be lost."""
        await self.registry.load()
        await withdraw(self.registry, self.broker_id, tail_is_safe=False)
        await register_broker(self.tree, self._info())
        await self.registry.follow()
        await self.live_brokers.start()
        self._tasks = [asyncio.get_running_loop().create_task(self.controller.run())]

    async def join_again(self) -> None:
        """Rejoins as a running broker does after losing its session, until it succeeds."""
        while True:
            if self.tree.session_state is SessionState.LOST:
                self.tree.reconnect()
            try:
                await self.registry.load()
                await withdraw(self.registry, self.broker_id, tail_is_safe=True)
                await register_broker(self.tree, self._info())
            except CoordinationError:
                await asyncio.sleep(0.1)
            else:
                return

    async def announce_leaving(self) -> None:
        await update_registration(self.tree, self._info()._replace(is_leaving=True))

    async def stay(self) -> None:
        """Takes the announcement back."""
        await update_registration(self.tree, self._info())

    async def die(self) -> None:
        """The session ends, and nothing of this broker runs any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.registry.close()
        await self.live_brokers.close()
        await self.tree.close()

    def _info(self) -> BrokerInfo:
        endpoints = {"PLAINTEXT": Endpoint(host="b", port=9092)}
        return BrokerInfo(broker_id=self.broker_id, endpoints=endpoints, started_ms=0)


class Cluster:
    """All members, by id."""

    def __init__(self, *, unclean: bool = False) -> None:
        self.server = History()
        self.server.allows_unclean = unclean
        self.members: dict[int, Member] = {}
        self._unclean = unclean

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.members[broker_id] = Member(self.server, broker_id, unclean=self._unclean)
            await self.members[broker_id].join()
            await settle()

    async def kill(self, broker_id: int) -> None:
        await self.members.pop(broker_id).die()

    async def stop(self) -> None:
        for broker_id in list(self.members):
            await self.kill(broker_id)

    def any_member(self) -> Member:
        return next(iter(self.members.values()))

    async def create_topic(self, *replicas: tuple[int, ...], name: str = "t") -> None:
        new = NewTopic(name=name, assignment=dict(enumerate(replicas)))
        await self.any_member().registry.create_topic(new)
        await settle()

    def shown(self, partition: int = 0) -> tuple[int, int, tuple[int, ...]]:
        """Leader, epoch, ISR."""
        state = self.server.state("t", partition)
        assert state is not None
        return state.leader, state.leader_epoch, state.isr

    def controllers(self) -> set[int]:
        """The controllers as seen by the connected brokers."""
        return {
            member.controller.controller_id
            for member in self.members.values()
            if member.tree.session_state is SessionState.CONNECTED
        }

    async def keep_isrs(self) -> None:
        """Makes every leader drop the dead replicas and add the living ones."""
        for member in list(self.members.values()):
            changes = list(self._isr_changes(member))
            try:
                await member.registry.change_states(changes)
            except CoordinationError:
                continue  # a lost race, or no connection: at the next opportunity
        await settle()

    def _isr_changes(self, member: Member) -> list[StateChange]:
        live = [
            broker_id
            for broker_id, broker in member.live_brokers.brokers.items()
            if not broker.info.is_leaving
        ]
        changes = []
        for topic in member.registry.topics.values():
            for partition, before in topic.states.items():
                if before.leader != member.broker_id or before.leader not in live:
                    continue
                isr = tuple(one for one in topic.assignment[partition] if one in live)
                if before.leader in isr and isr != before.isr:
                    after = before._replace(isr=isr)
                    changes.append(StateChange(topic.name, partition, before, after))
        return changes

    def check_led(self) -> None:
        """Every partition with a living replica in sync is led by one, and all views agree."""
        brokers = self.any_member().live_brokers.brokers
        staying = {one for one, broker in brokers.items() if not broker.info.is_leaving}
        for topic in self.topics().values():
            for partition, replicas in topic.assignment.items():
                state = self.server.state(topic.name, partition)
                assert state is not None
                candidates = staying & set(state.isr) & set(replicas)
                if candidates:
                    assert state.leader in candidates
                else:
                    assert state.leader not in staying

    def topics(self) -> dict[str, Topic]:
        views = [member.registry.topics for member in self.members.values()]
        assert all(view == views[0] for view in views)
        return views[0]
