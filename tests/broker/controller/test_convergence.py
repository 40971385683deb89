"""Whatever happens to brokers and sessions, in the end every partition is led that can be."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.controller.election_requests import ask
from echoless.broker.controller.elections import ElectionType
from echoless.broker.controller.reassignment import reassign
from echoless.broker.metadata.node_data import CONTROLLER
from echoless.broker.metadata.topic import Relocation, Topic
from echoless.broker.tree.node_tree import CoordinationError, Delete, SessionState
from echoless.protocol.errors import KafkaError
from tests.broker.controller.cluster import Cluster, Member, play, settle

BROKERS = (1, 2, 3, 4)
PARTITIONS = ((1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2), (2, 1, 4))

broker_ids = st.sampled_from(BROKERS)
partitions = st.integers(0, len(PARTITIONS) - 1)
targets = st.lists(broker_ids, min_size=1, max_size=3, unique=True).map(tuple)
events = st.one_of(
    st.tuples(st.sampled_from(["die", "expire", "suspend", "resume", "leave"]), broker_ids),
    st.tuples(st.just("come back"), broker_ids),
    st.tuples(st.just("lose a reply"), broker_ids, st.booleans()),
    st.tuples(st.sampled_from(["keep isrs", "settle", "depose"])),
    st.tuples(st.just("move"), partitions, targets),
    st.tuples(st.just("elect"), partitions, st.sampled_from(ElectionType)),
)


class Story:
    """A cluster, and what happens to it; what cannot happen now does not."""

    def __init__(self, *, unclean: bool) -> None:
        self.cluster = Cluster(unclean=unclean)
        self._happen = {
            "die": self._die,
            "expire": self._expire,
            "suspend": self._suspend,
            "resume": self._resume,
            "leave": self._leave,
            "come back": self._come_back,
            "lose a reply": self._lose_a_reply,
            "keep isrs": self.cluster.keep_isrs,
            "settle": self.settle,
            "depose": self._depose,
            "move": self._move,
            "elect": self._elect,
        }

    async def begin(self) -> None:
        await self.cluster.start(*BROKERS)
        await self.cluster.create_topic(*PARTITIONS)

    async def happen(self, name: str, *arguments: Any) -> None:
        """Returns without waiting for what follows."""
        await self._happen[name](*arguments)

    async def settle(self) -> None:
        """Everything that can follow has followed, unless it waits for a connection."""
        await settle()
        members = self.cluster.members.values()
        if members and all(one.tree.session_state is SessionState.CONNECTED for one in members):
            self.cluster.check_led()

    async def everybody_is_back(self) -> None:
        """Everything in order: all alive, all in sync, nothing asked for and nothing moving."""
        for broker_id in BROKERS:
            await self._resume(broker_id)
            await self._come_back(broker_id)
            await self.cluster.members[broker_id].stay()
        for _ in range(3):
            await settle()
            await self.cluster.keep_isrs()
        self.cluster.check_led()
        topic = self.cluster.topics()["t"]
        assert not topic.reassignments
        for partition, replicas in topic.assignment.items():
            assert set(topic.states[partition].isr) == set(replicas)
        assert len(self.cluster.controllers()) == 1
        await self.cluster.stop()

    # --- what happens ---

    def _member(self, broker_id: int, *states: SessionState) -> Member | None:
        member = self.cluster.members.get(broker_id)
        return member if member is not None and member.tree.session_state in states else None

    async def _die(self, broker_id: int) -> None:
        if broker_id in self.cluster.members:
            await self.cluster.kill(broker_id)

    async def _expire(self, broker_id: int) -> None:
        if member := self._member(broker_id, SessionState.CONNECTED, SessionState.SUSPENDED):
            member.tree.expire_session()

    async def _suspend(self, broker_id: int) -> None:
        if member := self._member(broker_id, SessionState.CONNECTED):
            member.tree.suspend()

    async def _resume(self, broker_id: int) -> None:
        if member := self._member(broker_id, SessionState.SUSPENDED):
            member.tree.resume()

    async def _leave(self, broker_id: int) -> None:
        if member := self._member(broker_id, SessionState.CONNECTED):
            with contextlib.suppress(CoordinationError):
                await member.announce_leaving()

    async def _come_back(self, broker_id: int) -> None:
        if broker_id not in self.cluster.members:
            await self.cluster.start(broker_id)
        elif member := self._member(broker_id, SessionState.LOST):
            await member.join_again()

    async def _lose_a_reply(self, broker_id: int, applied: bool) -> None:
        if member := self._member(broker_id, SessionState.CONNECTED):
            member.tree.lose_next_reply(applied=applied)

    async def _depose(self) -> None:
        """An operator deletes the node, as is done with Kafka to have another controller."""
        server = self.cluster.server
        if server.nodes.get(CONTROLLER) is not None:
            server.apply(server.nodes.plan_multi([Delete(CONTROLLER)], 0))

    def _somebody(self) -> Member | None:
        members = (self._member(one, SessionState.CONNECTED) for one in BROKERS)
        return next((member for member in members if member is not None), None)

    async def _move(self, partition: int, target: tuple[int, ...]) -> None:
        if member := self._somebody():

            async def decide(topic: Topic) -> dict[int, Relocation]:
                return {partition: reassign(topic, partition, target)}

            with contextlib.suppress(CoordinationError, KafkaError):
                await member.registry.change_assignments("t", decide)

    async def _elect(self, partition: int, election_type: ElectionType) -> None:
        if member := self._somebody():
            self.cluster.server.allows_unclean |= election_type is ElectionType.UNCLEAN
            with contextlib.suppress(CoordinationError):
                await ask(member.tree, {("t", partition): election_type})


@pytest.mark.slow
@settings(max_examples=60)
@given(story=st.lists(events, max_size=25), unclean=st.booleans())
def test_everything_is_led_in_the_end(story: list[tuple[Any, ...]], *, unclean: bool) -> None:
    """Deaths, sessions, lost answers, old controllers and requests, in any order and at any moment."""

    async def scenario() -> None:
        told = Story(unclean=unclean)
        await told.begin()
        for name, *arguments in story:
            await told.happen(name, *arguments)
        await told.everybody_is_back()

    play(scenario())
