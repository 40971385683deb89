"""Changes of states and assignments: conditional, all or nothing, and the view is right afterwards."""

from __future__ import annotations

import pytest

from echoless.broker.metadata import topic_nodes
from echoless.broker.metadata.node_data import (
    CONTROLLER_EPOCH,
    LeaderAndIsr,
    Reassignment,
    encode_partition_state,
    partition_state_path,
    topic_path,
)
from echoless.broker.metadata.topic import NewTopic, StateChange, Topic, TopicChanged, TopicEvent
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import (
    BadVersionError,
    Check,
    ConnectionLostError,
    MultiFailedError,
    SetData,
)
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.broker.metadata.registries import loaded, server_with_brokers
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree
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
async def registry(tree: MemoryNodeTree) -> TopicRegistry:
    return await loaded(tree)


@pytest.fixture
async def topic(registry: TopicRegistry) -> Topic:
    return await registry.create_topic(NewTopic(name="t", assignment={0: (1, 2), 1: (2, 3)}))


def shrink(topic: Topic, partition: int, isr: tuple[int, ...]) -> StateChange:
    before = topic.states[partition]
    return StateChange(topic.name, partition, before, before._replace(isr=isr))


async def write_elsewhere(server: MemoryTree, partition: int, state: LeaderAndIsr) -> None:
    """A rival's change, over whatever there is."""
    data = encode_partition_state(state)
    await server.connect().write(partition_state_path("t", partition), data, -1)


class TestStates:
    """`change_states`."""

    async def test_what_is_changed_is_published_with_its_new_version(
        self, registry: TopicRegistry, topic: Topic, server: MemoryTree
    ) -> None:
        """One event with all partitions of the topic, and the tree says the same."""
        events: list[TopicEvent] = []
        registry.listen(events.append)
        await registry.change_states([shrink(topic, 0, (1,)), shrink(topic, 1, (2,))])
        after = registry.topics["t"]
        assert [(state.isr, state.node_version) for state in after.states.values()] == [
            ((1,), 1),
            ((2,), 1),
        ]
        assert events == [TopicChanged(topic, after)]
        assert (await loaded(server.connect())).topics == registry.topics
        await registry.change_states([shrink(after, 0, (1, 2))])
        assert (await loaded(server.connect())).topics == registry.topics

    async def test_nothing_to_change_is_no_change(self, registry: TopicRegistry) -> None:
        """The tree is not even asked."""
        await registry.change_states([])

    async def test_a_lost_race_changes_nothing_and_shows_the_winner(
        self, registry: TopicRegistry, topic: Topic, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """All changes of one call fail together; the view is what is there now."""
        winner = LeaderAndIsr(leader=3, leader_epoch=1, isr=(3,))
        tree.before_next_change(lambda: write_elsewhere(server, 1, winner))
        with pytest.raises(MultiFailedError) as failure:
            await registry.change_states([shrink(topic, 0, (1,)), shrink(topic, 1, (2,))])
        assert isinstance(failure.value.cause, BadVersionError)
        assert failure.value.cause.path == partition_state_path("t", 1)
        states = registry.topics["t"].states
        assert states == {0: topic.states[0], 1: winner._replace(node_version=1)}

    async def test_a_decision_on_old_news_has_lost_its_race(
        self, registry: TopicRegistry, topic: Topic
    ) -> None:
        """Not even tried: the view knows better."""
        await registry.change_states([shrink(topic, 0, (1,))])
        for stale in (shrink(topic, 0, (2,)), shrink(topic._replace(name="gone"), 0, (1,))):
            with pytest.raises(MultiFailedError):
                await registry.change_states([stale])
        assert registry.topics["t"].states[0].isr == (1,)

    async def test_a_check_that_fails_stops_the_change(
        self, registry: TopicRegistry, topic: Topic, tree: MemoryNodeTree
    ) -> None:
        """A controller that was replaced writes nothing, and the error names the path."""
        await tree.create(CONTROLLER_EPOCH, b"1")
        check = Check(CONTROLLER_EPOCH, 0)
        await registry.change_states([shrink(topic, 0, (1,))], [check])
        await tree.write(CONTROLLER_EPOCH, b"2", 0)
        before = registry.topics["t"]
        with pytest.raises(MultiFailedError) as failure:
            await registry.change_states([shrink(before, 1, (2,))], [check])
        assert failure.value.cause.path == CONTROLLER_EPOCH
        assert registry.topics["t"] == before

    @pytest.mark.parametrize("applied", [True, False])
    async def test_a_lost_answer_is_resolved(
        self,
        registry: TopicRegistry,
        topic: Topic,
        server: MemoryTree,
        tree: MemoryNodeTree,
        applied: bool,
    ) -> None:
        """The change is made once, and known."""
        tree.lose_next_reply(applied=applied)
        await registry.change_states([shrink(topic, 0, (1,))])
        assert registry.topics["t"].states[0].node_version == 1
        assert (await loaded(server.connect())).topics == registry.topics

    async def test_without_a_connection_the_outcome_is_unknown(
        self, registry: TopicRegistry, topic: Topic, tree: MemoryNodeTree
    ) -> None:
        """The view stays as it was."""
        tree.suspend()
        with pytest.raises(ConnectionLostError):
            await registry.change_states([shrink(topic, 0, (1,))])
        assert registry.topics["t"] == topic

    async def test_first_states_come_with_their_parents(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """A topic that Kafka's tools created has none of them."""
        await tree.create(topic_path("t"), UNMARKED)
        await registry.load()
        first = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2))
        second = LeaderAndIsr(leader=2, leader_epoch=0, isr=(2,))
        await registry.change_states([StateChange("t", 1, None, second)])
        await registry.change_states([StateChange("t", 0, None, first)])
        assert registry.topics["t"].states == {0: first, 1: second}
        assert list(registry.topics["t"].states) == [0, 1]
        assert (await loaded(server.connect())).topics == registry.topics

    @pytest.mark.parametrize("applied", [True, False])
    async def test_of_two_first_states_one_counts(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree, applied: bool
    ) -> None:
        """Even if the answer is lost: the empty parents tell nothing of who made the state."""
        await tree.create(topic_path("t"), UNMARKED)
        await registry.load()
        elsewhere = await loaded(server.connect())
        first = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1)
        second = LeaderAndIsr(leader=2, leader_epoch=0, isr=(1, 2), controller_epoch=2)

        async def rival() -> None:
            await elsewhere.change_states([StateChange("t", 0, None, second)])

        tree.lose_next_reply(applied=applied)
        if not applied:
            tree.before_next_change(rival)
            with pytest.raises(MultiFailedError):
                await registry.change_states([StateChange("t", 0, None, first)])
            assert registry.topics["t"].states[0] == second
        else:
            await registry.change_states([StateChange("t", 0, None, first)])
            assert registry.topics["t"].states[0] == first

    async def test_a_topic_that_is_gone_is_not_raised_from_the_dead(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """A first state for a topic that was deleted meanwhile creates no node."""
        await tree.create(topic_path("t"), UNMARKED)
        await registry.load()
        elsewhere = await loaded(server.connect())
        tree.before_next_change(lambda: elsewhere.delete_topic("t"))
        first = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2))
        with pytest.raises(MultiFailedError):
            await registry.change_states([StateChange("t", 0, None, first)])
        assert registry.topics == {}
        assert await tree.children("/brokers/topics") == []

    async def test_many_changes_are_several_operations(
        self, registry: TopicRegistry, server: MemoryTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those before a lost race are made and published, those after it are not."""
        monkeypatch.setattr(topic_nodes, "STATE_CHANGES_MAX", 2)
        topic = await registry.create_topic(
            NewTopic(name="t", assignment=dict.fromkeys(range(6), (1, 2)))
        )
        await write_elsewhere(server, 3, topic.states[3])
        with pytest.raises(MultiFailedError):
            await registry.change_states([shrink(topic, index, (1,)) for index in range(6)])
        states = registry.topics["t"].states.values()
        assert [state.node_version for state in states] == [1, 1, 0, 1, 0, 0]
        assert (await loaded(server.connect())).topics == registry.topics


class TestAssignments:
    """`change_assignments`."""

    async def test_a_reassignment_begins_and_ends(
        self, registry: TopicRegistry, topic: Topic, server: MemoryTree
    ) -> None:
        """Only this partition is concerned; other brokers read the same."""
        move = Reassignment(adding=(3,), removing=(1,))
        begun = await relocate(registry, "t", 0, (3, 1, 2), move)
        assert begun.assignment == {0: (3, 1, 2), 1: (2, 3)}
        assert begun.reassignments == {0: move}
        assert (await loaded(server.connect())).topics == {"t": begun}
        done = await relocate(registry, "t", 0, (3, 2))
        assert (done.assignment[0], done.reassignments) == ((3, 2), {})
        assert done.states == topic.states
        assert (await loaded(server.connect())).topics == {"t": done}

    async def test_more_partitions_leave_a_reassignment_alone(
        self, registry: TopicRegistry, topic: Topic, server: MemoryTree
    ) -> None:
        """Both are in the same node; the new ones have as many replicas as there will be."""
        move = Reassignment(adding=(3,), removing=(1,))
        await relocate(registry, "t", 0, (3, 1, 2), move)
        extended = await registry.create_partitions("t", 3)
        assert extended.reassignments == {0: move}
        assert len(extended.assignment[2]) == extended.replication_factor == 2
        assert (await loaded(server.connect())).topics == {"t": extended}

    async def test_a_lost_race_is_told(
        self, registry: TopicRegistry, topic: Topic, server: MemoryTree
    ) -> None:
        """The caller decides again, on the view as it is now."""
        elsewhere = await loaded(server.connect())
        theirs = await elsewhere.create_partitions("t", 3)
        with pytest.raises(MultiFailedError):
            await relocate(registry, "t", 0, (1, 3))
        assert registry.topics["t"] == theirs
        assert topic.partition_count == 2

    async def test_replicas_that_only_come_need_no_state(
        self, registry: TopicRegistry, topic: Topic, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """The leader's change of the ISR does not hold such a reassignment up; a replica that goes needs it."""

        async def shrink_elsewhere() -> None:
            state = topic.states[0]._replace(isr=(1,))
            await write_elsewhere(server, 0, state)

        tree.before_next_change(shrink_elsewhere)
        await relocate(registry, "t", 0, (1, 2, 3), Reassignment(adding=(3,), removing=()))
        tree.before_next_change(shrink_elsewhere)
        with pytest.raises(MultiFailedError):
            await relocate(registry, "t", 0, (2, 3))
        assert registry.topics["t"].assignment[0] == (1, 2, 3)
        assert (await loaded(server.connect())).topics == registry.topics

    @pytest.mark.parametrize(("name", "partition"), [("x", 0), ("t", 2)])
    async def test_what_does_not_exist_is_unknown(
        self, registry: TopicRegistry, topic: Topic, name: str, partition: int
    ) -> None:
        """UNKNOWN_TOPIC_OR_PARTITION, as of every change."""
        with pytest.raises(KafkaError) as failure:
            await relocate(registry, name, partition, (1,))
        assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.name == "t"


class TestLaterTopics:
    """A topic of the same name starts its node versions again: what was meant for the first must fail."""

    @pytest.mark.parametrize("what", ["state", "assignment", "config", "deletion"])
    async def test_a_late_change_does_not_hit_the_next_topic(
        self,
        registry: TopicRegistry,
        topic: Topic,
        server: MemoryTree,
        tree: MemoryNodeTree,
        what: str,
    ) -> None:
        """Delete and create fit between a decision and its write; all versions are the same."""
        elsewhere = await loaded(server.connect())

        async def replace_topic() -> None:
            await elsewhere.delete_topic("t")
            await elsewhere.create_topic(NewTopic(name="t", assignment={0: (3,), 1: (3,)}))

        tree.before_next_change(replace_topic)
        if what == "state":
            with pytest.raises(MultiFailedError):
                await registry.change_states([shrink(topic, 0, (1,))])
        elif what == "assignment":
            with pytest.raises(MultiFailedError):
                await relocate(registry, "t", 0, (1,))
        elif what == "config":
            await registry.alter_topic_config("t", lambda config: {**config, "a": "1"})
        else:
            await registry.delete_topic("t")
        if what in {"state", "assignment"}:
            assert registry.topics == elsewhere.topics
        assert (await loaded(server.connect())).topics == registry.topics

    async def test_a_check_on_a_node_that_kafka_does_not_make_is_left_out(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """Topics without the id's node are changed all the same."""
        await tree.create(topic_path("t"), UNMARKED)
        await registry.load()
        assert not registry.topics["t"].has_id_node
        await relocate(registry, "t", 1, (3,))
        await registry.delete_topic("t")
        assert (await loaded(server.connect())).topics == {}


async def test_a_late_write_of_another_client_fails(
    registry: TopicRegistry, topic: Topic, server: MemoryTree
) -> None:
    """The purpose of the checks, seen from the tree: the same operations of a change, sent late."""
    change = shrink(topic, 0, (1,))
    tree = server.connect()
    operations = [
        *topic_nodes.identity_checks(topic),
        *await topic_nodes.state_change_operations(tree, [change]),
    ]
    await registry.delete_topic("t")
    await registry.create_topic(NewTopic(name="t", assignment={0: (1, 2)}))
    assert any(isinstance(operation, SetData) for operation in operations)
    with pytest.raises(MultiFailedError) as failure:
        await tree.multi(operations)
    assert failure.value.index == 0
