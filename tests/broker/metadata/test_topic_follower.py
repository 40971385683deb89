"""Following: what one broker changes, all others see, whole, and never in the wrong order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.metadata import topic_nodes
from echoless.broker.metadata.node_data import (
    LeaderAndIsr,
    encode_partition_state,
    partition_path,
    partition_state_path,
    topic_config_path,
    topic_deletion_path,
    topic_id_path,
    topic_path,
)
from echoless.broker.metadata.topic import (
    NewTopic,
    StateChange,
    Topic,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicEvent,
)
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree import refresher
from echoless.broker.tree.node_tree import CoordinationError, Create, Node, ensure_paths
from echoless.protocol.errors import KafkaError
from tests.broker.metadata.registries import following, loaded, server_with_brokers
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns
from tests.support.relocation import relocate

UNMARKED = (
    b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1,2],"1":[2]},'
    b'"adding_replicas":{},"removing_replicas":{}}'
)
"""A topic as Kafka's tools create it: the node alone."""


@pytest.fixture
async def server() -> MemoryTree:
    return await server_with_brokers()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
async def here(tree: MemoryNodeTree) -> AsyncIterator[TopicRegistry]:
    registry = await following(tree)
    yield registry
    await registry.close()


@pytest.fixture
async def elsewhere(server: MemoryTree) -> TopicRegistry:
    return await loaded(server.connect())


def recorded_reads(tree: MemoryNodeTree, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are read from now on, which the list is given."""
    read: list[str] = []
    read_many = tree.read_many

    async def recording(paths: Sequence[str]) -> list[Node | None]:
        read.extend(paths)
        return await read_many(paths)

    monkeypatch.setattr(tree, "read_many", recording)
    return read


class Witness:
    """Hears every event of a registry, and checks that they make sense one after the other."""

    def __init__(self, registry: TopicRegistry) -> None:
        self.events: list[TopicEvent] = []
        self._topics = dict(registry.topics)
        registry.listen(self._hear)

    def _hear(self, event: TopicEvent) -> None:
        self.events.append(event)
        match event:
            case TopicCreated(topic):
                assert topic.name not in self._topics
                self._topics[topic.name] = topic
            case TopicChanged(before, after):
                assert self._topics[after.name] == before
                assert before.topic_id == after.topic_id
                self._check_forward(before, after)
                self._topics[after.name] = after
            case TopicDeleted(topic):
                assert self._topics.pop(topic.name) == topic

    @staticmethod
    def _check_forward(before: Topic, after: Topic) -> None:
        assert after.node_version >= before.node_version
        assert after.partition_count >= before.partition_count
        for partition, state in before.states.items():
            assert after.states[partition].node_version >= state.node_version


class TestWhatOthersChange:
    """One registry follows, another one changes."""

    async def test_a_state_is_read_alone(
        self,
        here: TopicRegistry,
        elsewhere: TopicRegistry,
        tree: MemoryNodeTree,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A topic of thousands of partitions changes as often as any of them does."""
        topic = await elsewhere.create_topic(NewTopic(name="t", partitions=500))
        await turns()
        read = recorded_reads(tree, monkeypatch)
        before = topic.states[7]
        after = before._replace(leader_epoch=5)
        await elsewhere.change_states([StateChange("t", 7, before, after)])
        await turns()
        assert here.topics == elsewhere.topics
        assert read == [partition_state_path("t", 7), topic_id_path("t", topic.topic_id)]

    async def test_an_assignment_is_read_without_the_states_of_other_partitions(
        self,
        here: TopicRegistry,
        elsewhere: TopicRegistry,
        tree: MemoryNodeTree,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The states have watches of their own; the one of a partition that moves is read after its replicas."""
        topic = await elsewhere.create_topic(NewTopic(name="t", partitions=500))
        await turns()
        read = recorded_reads(tree, monkeypatch)
        await relocate(elsewhere, "t", 7, (2, 3))
        await turns()
        assert here.topics == elsewhere.topics
        nodes = [topic_path("t"), partition_state_path("t", 7)]
        assert read == [*nodes, topic_id_path("t", topic.topic_id)]

    async def test_every_change_is_seen(
        self, here: TopicRegistry, elsewhere: TopicRegistry
    ) -> None:
        """Creation, configuration, partitions, states, assignment, deletion: each is one event."""
        witness = Witness(here)
        created = await elsewhere.create_topic(NewTopic(name="t", assignment={0: (1, 2)}))
        await turns()
        configured = await elsewhere.set_topic_config("t", {"a": "1"})
        await turns()
        extended = await elsewhere.create_partitions("t", 3)
        await turns()
        before = extended.states[2]
        change = StateChange("t", 2, before, before._replace(leader_epoch=7))
        await elsewhere.change_states([change])
        changed = elsewhere.topics["t"]
        await turns()
        moved = await relocate(elsewhere, "t", 1, (3, 2))
        await turns()
        await elsewhere.delete_topic("t")
        await turns()
        assert witness.events == [
            TopicCreated(created),
            TopicChanged(created, configured),
            TopicChanged(configured, extended),
            TopicChanged(extended, changed),
            TopicChanged(changed, moved),
            TopicDeleted(moved),
        ]
        assert here.topics == here.topics_by_id == {}

    async def test_a_recreated_topic_is_another_one(
        self, here: TopicRegistry, elsewhere: TopicRegistry
    ) -> None:
        """Even if it was never seen to be gone; and it is followed like the first."""
        first = await elsewhere.create_topic(NewTopic(name="t"))
        await turns()
        witness = Witness(here)
        await elsewhere.delete_topic("t")
        second = await elsewhere.create_topic(NewTopic(name="t", partitions=2))
        await turns()
        assert witness.events == [TopicDeleted(first), TopicCreated(second)]
        await elsewhere.create_partitions("t", 4)
        await turns()
        assert here.topics == elsewhere.topics

    async def test_what_was_there_before_is_followed(
        self, server: MemoryTree, elsewhere: TopicRegistry
    ) -> None:
        """`follow` returns with everything known, and watched."""
        await elsewhere.create_topic(NewTopic(name="t", partitions=3))
        here = await loaded(server.connect())
        await elsewhere.create_topic(NewTopic(name="u"))
        await here.follow()
        assert here.topics == elsewhere.topics
        await elsewhere.set_topic_config("t", {"a": "1"})
        await turns()
        assert here.topics == elsewhere.topics
        await here.close()

    @pytest.mark.parametrize("head_start", range(0, 20, 2))
    @pytest.mark.parametrize("pause", range(4))
    async def test_what_a_lost_race_showed_is_followed(
        self, server: MemoryTree, here: TopicRegistry, head_start: int, pause: int
    ) -> None:
        """A topic is created and deleted between two looks at the set of topics, at any moment."""
        elsewhere = await following(server.connect())
        await elsewhere.create_topic(NewTopic(name="u"))
        await turns(head_start)
        creations = [
            elsewhere.create_topic(NewTopic(name="t")),
            *(elsewhere.set_topic_config("t", {"a": f"{n}"}) for n in range(pause)),
            elsewhere.delete_topic("t"),
            here.create_topic(NewTopic(name="t")),
        ]
        await asyncio.gather(*creations, return_exceptions=True)
        await turns()
        await elsewhere.load()
        assert here.topics == elsewhere.topics
        await elsewhere.close()

    async def test_a_topic_without_states_is_shown_without_them(
        self, here: TopicRegistry, elsewhere: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """The controller gives it the first ones; the other topics are not concerned."""
        await tree.create(topic_path("t"), UNMARKED)
        await turns()
        assert here.topics["t"].states == {}
        created = await elsewhere.create_topic(NewTopic(name="u"))
        await turns()
        assert here.topics["u"] == created
        first = LeaderAndIsr(leader=2, leader_epoch=0, isr=(2,))
        await elsewhere.load()
        await elsewhere.change_states([StateChange("t", 1, None, first)])
        await turns()
        assert here.topics["t"].states == {1: first}

    async def test_a_topic_being_deleted_is_gone(
        self, here: TopicRegistry, elsewhere: TopicRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is gone from the first step on.

        Its missing states must not look as if they were never made.
        """
        monkeypatch.setattr(topic_nodes, "OPERATIONS_MAX", 4)
        topic = await elsewhere.create_topic(NewTopic(name="t", partitions=6))
        await turns()
        witness = Witness(here)
        await topic_nodes.begin_deletion(elsewhere._tree, topic)
        await turns()
        assert witness.events == [TopicDeleted(topic)]
        await here.load()
        assert here.topics == {}
        again = await here.create_topic(NewTopic(name="t"))
        await turns()
        assert here.topics == {"t": again}

    async def test_what_a_crash_left_half_deleted_is_no_obstacle(
        self, here: TopicRegistry, elsewhere: TopicRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A creation finishes the deletion first."""
        monkeypatch.setattr(topic_nodes, "OPERATIONS_MAX", 4)
        topic = await elsewhere.create_topic(NewTopic(name="t", partitions=6))
        await topic_nodes.begin_deletion(elsewhere._tree, topic)
        again = await here.create_topic(NewTopic(name="t", partitions=2))
        await turns()
        assert here.topics == {"t": again}
        await elsewhere.load()
        assert elsewhere.topics == here.topics

    async def test_a_topic_that_cannot_be_read_stays_as_it_was(
        self, here: TopicRegistry, elsewhere: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """The others continue, and so does it when the node is valid again."""
        topic = await elsewhere.create_topic(NewTopic(name="t", assignment={0: (1,)}))
        await turns()
        node = await tree.read(topic_path("t"))
        await tree.write(topic_path("t"), b"junk", 0)
        await tree.create(topic_path("x"), b"junk")
        other = await elsewhere.create_topic(NewTopic(name="u"))
        await turns()
        assert here.topics == {"t": topic, "u": other}
        await tree.write(topic_path("t"), node.data, 1)
        await tree.write(topic_path("x"), UNMARKED, 0)
        await turns()
        assert here.topics["t"] == topic._replace(node_version=2)
        assert here.topics["x"].partition_count == 2

    async def test_the_controllers_first_states_do_not_fail_a_creation(
        self,
        here: TopicRegistry,
        tree: MemoryNodeTree,
        server: MemoryTree,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The creation of a large topic takes several steps.

        The existing states are those requested.
        """
        monkeypatch.setattr(topic_nodes, "OPERATIONS_MAX", 6)
        rival = server.connect()

        async def give_first_states() -> None:
            path = partition_path("t", 3)
            state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)
            data = encode_partition_state(state)
            await rival.multi([Create(path), Create(f"{path}/state", data)])

        async def nothing() -> None:
            pass

        tree.before_next_change(nothing)
        tree.before_next_change(give_first_states)
        topic = await here.create_topic(
            NewTopic(name="t", assignment=dict.fromkeys(range(9), (1,)))
        )
        assert topic.states[3].controller_epoch == 1

    async def test_nor_do_they_fail_an_extension(
        self,
        here: TopicRegistry,
        tree: MemoryNodeTree,
        server: MemoryTree,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It is the same as with a creation."""
        monkeypatch.setattr(topic_nodes, "OPERATIONS_MAX", 6)
        await here.create_topic(NewTopic(name="t", assignment={0: (1,)}))
        rival = server.connect()

        async def give_first_states() -> None:
            path = partition_path("t", 5)
            state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)
            data = encode_partition_state(state)
            await rival.multi([Create(path), Create(f"{path}/state", data)])

        async def nothing() -> None:
            pass

        tree.before_next_change(nothing)
        tree.before_next_change(give_first_states)
        topic = await here.create_partitions("t", 9, dict.fromkeys(range(1, 9), (1,)))
        assert topic.states[5].controller_epoch == 1


class TestConnection:
    """Outages of the coordinator."""

    async def test_what_was_missed_is_read_afterwards(
        self, here: TopicRegistry, elsewhere: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """The view stays as it was until then."""
        kept = await elsewhere.create_topic(NewTopic(name="kept"))
        gone = await elsewhere.create_topic(NewTopic(name="gone"))
        await turns()
        tree.suspend()
        await elsewhere.delete_topic("gone")
        await elsewhere.create_partitions("kept", 2)
        await elsewhere.create_topic(NewTopic(name="new"))
        await turns()
        assert here.topics == {"kept": kept, "gone": gone}
        tree.resume()
        await turns()
        assert here.topics == elsewhere.topics

    async def test_a_new_session_follows_on(
        self, here: TopicRegistry, elsewhere: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """The watches outlive the session."""
        await elsewhere.create_topic(NewTopic(name="t"))
        tree.expire_session()
        await elsewhere.create_partitions("t", 2)
        tree.reconnect()
        await turns()
        assert here.topics == elsewhere.topics
        await elsewhere.create_partitions("t", 3)
        await turns()
        assert here.topics == elsewhere.topics

    async def test_a_read_that_fails_is_tried_again(
        self,
        server: MemoryTree,
        elsewhere: TopicRegistry,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Even without a sign of the connection."""
        monkeypatch.setattr(refresher, "RETRY_INTERVAL_S", 0.001)
        tree = FailingTree(server)
        server.clients.append(tree)
        here = await following(tree)
        tree.failure_count = 3
        await elsewhere.create_topic(NewTopic(name="t"))
        heard = asyncio.Event()
        here.listen(lambda _: heard.set())
        await asyncio.wait_for(heard.wait(), 60)
        assert here.topics == elsewhere.topics
        assert tree.failure_count == 0
        await here.close()

    async def test_a_closed_registry_hears_nothing(
        self, server: MemoryTree, elsewhere: TopicRegistry
    ) -> None:
        """No watch is left over."""
        tree = server.connect()
        here = await following(tree)
        await elsewhere.create_topic(NewTopic(name="t"))
        await turns()
        before = dict(here.topics)
        await here.close()
        await elsewhere.create_partitions("t", 2)
        await elsewhere.create_topic(NewTopic(name="u"))
        await turns()
        assert here.topics == before
        tree._watches.anything_may_have_changed()
        watched = tree._watches._of_nodes, tree._watches._of_children
        assert watched == ({}, {})

    async def test_watches_of_a_deleted_topic_are_cancelled(
        self, here: TopicRegistry, elsewhere: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """A cluster may create and delete topics for ever."""
        for _ in range(3):
            await elsewhere.create_topic(NewTopic(name="t", partitions=5))
            await turns()
            await elsewhere.delete_topic("t")
            await turns()
        tree._watches.anything_may_have_changed()
        assert tree._watches._of_nodes == {}
        assert here.topics == {}


class FailingTree(MemoryNodeTree):
    """A client whose next reads fail, while the session says it is connected."""

    failure_count = 0

    async def _round_trip(self) -> None:
        if self.failure_count:
            self.failure_count -= 1
            raise topic_nodes_error()
        await super()._round_trip()


def topic_nodes_error() -> CoordinationError:
    return CoordinationError("no answer")


async def test_an_older_answer_does_not_move_the_view_back(
    server: MemoryTree, elsewhere: TopicRegistry
) -> None:
    """A lagging server is read after a reconnection: the known state stays."""
    tree = server.connect()
    here = await following(tree)
    old = await elsewhere.create_topic(NewTopic(name="t", assignment={0: (1, 2)}))
    new = await elsewhere.create_partitions("t", 2)
    await here.load()
    assert old.at_least_as_new_as(new) == new
    assert new.at_least_as_new_as(old) == new
    before = new.states[0]
    await elsewhere.change_states([StateChange("t", 0, before, before._replace(isr=(1,)))])
    newest = elsewhere.topics["t"]
    assert new.at_least_as_new_as(newest) == newest
    assert new.at_least_as_new_as(None) == new
    other = new._replace(topic_id=topic_nodes.decode_topic("/t", UNMARKED).topic_id)
    assert other.at_least_as_new_as(newest) == other
    await here.close()


# Random histories

NAMES = ["t", "u"]


class Member:
    """One broker of a random history: its client may lose its connection at any time."""

    def __init__(self, server: MemoryTree) -> None:
        self.tree = server.connect()

    async def start(self) -> None:
        self.registry = await following(self.tree)
        self.witness = Witness(self.registry)

    async def act(self, what: str, name: str, number: int) -> None:
        """One change; what is refused or fails is part of life."""
        with contextlib.suppress(KafkaError, CoordinationError):
            await getattr(self, f"_{what}")(name, number)

    async def _create(self, name: str, number: int) -> None:
        new = NewTopic(name=name, partitions=1 + number % 3, replication_factor=2)
        await self.registry.create_topic(new)

    async def _delete(self, name: str, _number: int) -> None:
        await self.registry.delete_topic(name)

    async def _extend(self, name: str, number: int) -> None:
        await self.registry.create_partitions(name, 1 + number % 5)

    async def _configure(self, name: str, number: int) -> None:
        await self.registry.alter_topic_config(name, lambda old: {**old, "a": str(number)})

    async def _elect(self, name: str, number: int) -> None:
        topic = self.registry.topics.get(name)
        if topic is None:
            return
        changes = []
        for partition, before in topic.states.items():
            epoch = before.leader_epoch + 1
            after = before._replace(leader=1 + number % 3, leader_epoch=epoch)
            changes.append(StateChange(name, partition, before, after))
        await self.registry.change_states(changes)

    async def _move(self, name: str, number: int) -> None:
        await relocate(self.registry, name, 0, (1 + number % 3,))

    async def _suspend(self, _name: str, _number: int) -> None:
        self.tree.suspend()

    async def _resume(self, _name: str, _number: int) -> None:
        self.tree.resume()

    async def _expire(self, _name: str, _number: int) -> None:
        self.tree.expire_session()
        self.tree.reconnect()

    async def _lose(self, _name: str, number: int) -> None:
        self.tree.lose_next_reply(applied=bool(number % 2))


ACTIONS = [
    *("create", "create", "delete", "extend", "configure", "elect", "elect", "move"),
    *("suspend", "resume", "expire", "lose"),
]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(ACTIONS),
        st.sampled_from(NAMES),
        st.integers(0, 9),
        st.sampled_from([0, 0, 1, 3, 10]),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(steps=STEPS, chunk=st.sampled_from([6, 1000]))
async def test_followers_agree_in_the_end(
    steps: list[tuple[int, str, str, int, int]], chunk: int
) -> None:
    """After any changes by three brokers at once, with outages: equal views, equal to the tree.

    Each one saw events that follow from each other, and versions that only grow.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_nodes, "OPERATIONS_MAX", chunk)
        server = await server_with_brokers()
        members = [Member(server) for _ in range(3)]
        for member in members:
            await member.start()
        tasks = []
        for index, what, name, number, pause in steps:
            tasks.append(asyncio.create_task(members[index].act(what, name, number)))
            await turns(pause)
        await asyncio.gather(*tasks)
        for member in members:
            member.tree.resume()
        await turns(500)
        in_tree = await topic_nodes.read_topics(
            server.connect(), await server.connect().children("/brokers/topics")
        )
        for member in members:
            assert member.registry.topics == in_tree
            await member.registry.close()


async def test_no_node_is_left_of_a_topic(server: MemoryTree, elsewhere: TopicRegistry) -> None:
    """Neither its own nor those that only Echoless makes."""
    await elsewhere.create_topic(NewTopic(name="t", partitions=2))
    await elsewhere.finish_deletion(await elsewhere.delete_topic("t"))
    tree = server.connect()
    paths = [
        topic_path("t"),
        topic_config_path("t"),
        topic_deletion_path("t"),
        partition_state_path("t", 0),
    ]
    assert await tree.read_many(paths) == [None] * len(paths)
    await ensure_paths(tree, ["/brokers/topics"])
