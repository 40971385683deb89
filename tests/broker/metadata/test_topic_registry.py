"""The topic registry: Kafka's rules, durable before visible, and never half a topic."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from echoless.broker.metadata import topic_nodes
from echoless.broker.metadata.node_data import (
    LeaderAndIsr,
    decode_partition_state,
    encode_partition_state,
    encode_uuid,
    partition_path,
    partition_state_path,
    topic_config_path,
    topic_path,
)
from echoless.broker.metadata.old_copy import OldCopyError
from echoless.broker.metadata.registration import BrokerInfo, register_broker
from echoless.broker.metadata.topic import (
    NewTopic,
    Topic,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicEvent,
)
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import Create, Operation
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.broker.metadata.registries import server_with_brokers
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns


@pytest.fixture
async def server() -> MemoryTree:
    """A tree with the brokers 1 and 2 alive."""
    server = MemoryTree()
    tree = server.connect()
    for broker_id in (1, 2):
        await register_broker(tree, BrokerInfo(broker_id=broker_id, endpoints={}, started_ms=0))
    return server


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
async def registry(tree: MemoryNodeTree) -> TopicRegistry:
    return await load(tree)


async def test_operations_are_made_as_those_before_are_committed(tree: MemoryNodeTree) -> None:
    """Those of thousands of partitions at once would hold the loop."""
    count = 3 * topic_nodes.OPERATIONS_MAX
    made = [0]
    committed: list[tuple[int, int]] = []

    def operations() -> Iterator[Operation]:
        for number in range(count):
            made[0] += 1
            yield Create(f"/node-{number}")

    multi = tree.multi

    async def noting(operations: Sequence[Operation]) -> None:
        committed.append((made[0], len(operations)))
        await multi(operations)

    tree.multi = noting  # type: ignore[method-assign]
    await topic_nodes.commit_in_chunks(tree, operations())
    size = topic_nodes.OPERATIONS_MAX
    assert committed == [(size, size), (2 * size, size), (3 * size, size)]


async def load(tree: MemoryNodeTree) -> TopicRegistry:
    registry = TopicRegistry(tree, rng=Random(0))
    await registry.load()
    return registry


def events_of(registry: TopicRegistry) -> list[TopicEvent]:
    """Every event from now on; at each the view shows it already."""
    events: list[TopicEvent] = []

    def listen(event: TopicEvent) -> None:
        events.append(event)
        match event:
            case TopicCreated(topic) | TopicChanged(_, topic):
                assert registry.topics[topic.name] is topic
                assert registry.topics_by_id[topic.topic_id] is topic
            case TopicDeleted(topic):
                assert topic.name not in registry.topics
                assert topic.topic_id not in registry.topics_by_id

    registry.listen(listen)
    return events


async def assert_same_as_tree(registry: TopicRegistry, tree: MemoryNodeTree) -> None:
    """Asserts that the view is what another reader would see, including versions."""
    assert (await load(tree)).topics == registry.topics


class TestCreation:
    """`create_topic`."""

    async def test_a_topic_has_a_leader_for_each_partition(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """First replica leads in epoch 0, all replicas are in sync; listeners hear of it once."""
        events = events_of(registry)
        topic = await registry.create_topic(
            NewTopic(name="t", partitions=3, replication_factor=2, config={"retention.ms": "1"})
        )
        assert (topic.partition_count, topic.replication_factor) == (3, 2)
        for partition, replicas in topic.assignment.items():
            assert topic.states[partition] == LeaderAndIsr(
                leader=replicas[0], leader_epoch=0, isr=replicas
            )
        assert topic.config == {"retention.ms": "1"}
        assert events == [TopicCreated(topic)]
        await assert_same_as_tree(registry, tree)

    async def test_the_nodes_are_where_kafka_keeps_them(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Topic, configuration and state nodes, each at version 0."""
        await registry.create_topic(NewTopic(name="t", assignment={0: (2, 1)}))
        state_path = partition_state_path("t", 0)
        paths = [topic_path("t"), topic_config_path("t"), state_path]
        nodes = await tree.read_many(paths)
        assert [node and node.version for node in nodes] == [0, 0, 0]
        state = decode_partition_state(state_path, await tree.read(state_path))
        assert state == LeaderAndIsr(leader=2, leader_epoch=0, isr=(2, 1))

    async def test_a_name_is_taken_once(self, registry: TopicRegistry) -> None:
        """TOPIC_ALREADY_EXISTS, and the first topic stays as it is."""
        first = await registry.create_topic(NewTopic(name="t"))
        with pytest.raises(KafkaError) as failure:
            await registry.create_topic(NewTopic(name="t", partitions=2))
        assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert registry.topics == {"t": first}

    @pytest.mark.parametrize(
        ("new", "code"),
        [
            (NewTopic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic(name="x_y"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS),
            (NewTopic(name="t", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
            (NewTopic(name="t", partitions=10_001), ErrorCode.INVALID_PARTITIONS),
            (NewTopic(name="t", assignment={}), ErrorCode.INVALID_PARTITIONS),
            (NewTopic(name="t", assignment={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewTopic(name="t", assignment={0: (7,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    async def test_what_is_refused_leaves_no_trace(
        self, registry: TopicRegistry, tree: MemoryNodeTree, new: NewTopic, code: ErrorCode
    ) -> None:
        """Kafka's code for each mistake; neither the view nor the tree changes."""
        existing = await registry.create_topic(NewTopic(name="x.y"))
        for validate_only in (True, False):
            with pytest.raises(KafkaError) as failure:
                await registry.create_topic(new, validate_only=validate_only)
            assert failure.value.code is code
        assert registry.topics == {"x.y": existing}
        await assert_same_as_tree(registry, tree)

    async def test_only_brokers_that_stay_lead_and_are_in_sync(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """One that is about to leave only holds a replica; if all leave, no one leads yet."""
        leaving = BrokerInfo(broker_id=3, endpoints={}, started_ms=0, is_leaving=True)
        await register_broker(server.connect(), leaving)
        assignment = {0: (3, 1), 1: (1, 3)}
        topic = await registry.create_topic(NewTopic(name="t", assignment=assignment))
        topic = await registry.create_partitions("t", 3, {2: (3, 2)})
        assert topic.assignment == {**assignment, 2: (3, 2)}
        assert [(state.leader, state.isr) for state in topic.states.values()] == [
            (1, (1,)),
            (1, (1,)),
            (2, (2,)),
        ]
        alone = await registry.create_topic(NewTopic(name="alone", assignment={0: (3,)}))
        assert (alone.states[0].leader, alone.states[0].isr) == (-1, (3,))
        await assert_same_as_tree(registry, tree)

    async def test_replicas_are_spread_over_racks(self) -> None:
        """The racks are those of the brokers' registrations."""
        server = await server_with_brokers(range(1, 5), {1: "a", 2: "a", 3: "b", 4: "b"})
        registry = await load(server.connect())
        topic = await registry.create_topic(NewTopic(name="t", partitions=8, replication_factor=2))
        for replicas in topic.assignment.values():
            assert len({one <= 2 for one in replicas}) == 2

    async def test_validation_alone_creates_nothing(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """The answer is the topic that would be."""
        events = events_of(registry)
        topic = await registry.create_topic(NewTopic(name="t", partitions=2), validate_only=True)
        assert topic.partition_count == 2
        assert (registry.topics, events) == ({}, [])
        assert await tree.read_many([topic_path("t")]) == [None]

    async def test_a_configuration_that_was_there_is_replaced(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Kafka's tools can leave one over."""
        await tree.create(topic_config_path("t"), b'{"version":1,"config":{"old":"1"}}')
        topic = await registry.create_topic(NewTopic(name="t", config={"new": "2"}))
        assert topic.config == {"new": "2"}
        await assert_same_as_tree(registry, tree)

    async def test_no_topic_id_begins_with_a_dash(self, tree: MemoryNodeTree) -> None:
        """Command lines would take it for an option; Kafka draws again, and so do we."""
        drawn = [uuid.UUID(int=0xFB << 120), uuid.UUID(int=1)]
        assert encode_uuid(drawn[0]).startswith("-")
        registry = TopicRegistry(tree, rng=Random(0), new_uuid=iter(drawn).__next__)
        await registry.load()
        assert (await registry.create_topic(NewTopic(name="t"))).topic_id == uuid.UUID(int=1)


class TestDeletion:
    """`delete_topic`."""

    async def test_nothing_is_left(self, registry: TopicRegistry, tree: MemoryNodeTree) -> None:
        """All nodes go, the configuration and the mark of the deletion too."""
        topic = await registry.create_topic(NewTopic(name="t", partitions=3))
        events = events_of(registry)
        assert await registry.delete_topic("t") == topic
        assert events == [TopicDeleted(topic)]
        assert registry.topics == registry.topics_by_id == {}
        await registry.finish_deletion(topic)
        for parent in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            assert await tree.children(parent) == []

    async def test_a_deletion_is_one_short_operation_however_large_the_topic(
        self, registry: TopicRegistry, tree: MemoryNodeTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other nodes are deleted when no one waits any more, in steps with turns between them."""
        sizes: list[int] = []
        multi = tree.multi

        async def counting(operations: Sequence[Operation]) -> None:
            sizes.append(len(operations))
            await multi(operations)

        topic = await registry.create_topic(
            NewTopic(name="t", assignment=dict.fromkeys(range(3000), (1,)))
        )
        monkeypatch.setattr(tree, "multi", counting)
        await registry.delete_topic("t")
        assert sizes == [topic_nodes.FIRST_DELETES_MAX]
        finishing = asyncio.create_task(registry.finish_deletion(topic))
        other = await registry.create_topic(NewTopic(name="other"))
        assert not finishing.done()
        await finishing
        assert registry.topics == {"other": other}
        assert max(sizes) <= topic_nodes.OPERATIONS_MAX
        assert await tree.children("/brokers/topics") == ["other"]

    async def test_a_restart_knows_what_was_deleted(
        self, registry: TopicRegistry, server: MemoryTree
    ) -> None:
        """It stays known until the deletion is finished.

        Its broker asks when it finds directories of the topic.
        """
        topic = await registry.create_topic(NewTopic(name="t", partitions=2))
        await registry.delete_topic("t")
        restarted = await load(server.connect())
        assert restarted.deleted == {"t": topic.topic_id}
        assert (await load(server.connect())).deleted == {}

    async def test_a_late_end_of_a_deletion_leaves_the_next_one_alone(
        self, registry: TopicRegistry, server: MemoryTree
    ) -> None:
        """It belongs to another topic of the same name."""
        first = await registry.create_topic(NewTopic(name="t"))
        await registry.delete_topic("t")
        second = await registry.create_topic(NewTopic(name="t"))
        await registry.delete_topic("t")
        await registry.finish_deletion(first)
        assert (await load(server.connect())).deleted == {"t": second.topic_id}

    async def test_a_topic_of_the_same_name_is_another_one(self, registry: TopicRegistry) -> None:
        """It has a new id, and its epochs start again."""
        first = await registry.create_topic(NewTopic(name="t"))
        await registry.delete_topic("t")
        second = await registry.create_topic(NewTopic(name="t"))
        assert first.topic_id != second.topic_id
        assert list(registry.topics_by_id) == [second.topic_id]

    async def test_a_recreation_elsewhere_is_two_events(
        self, registry: TopicRegistry, server: MemoryTree
    ) -> None:
        """A broker that was away is notified that the old topic is gone before the new one comes."""
        first = await registry.create_topic(NewTopic(name="t"))
        elsewhere = await load(server.connect())
        await elsewhere.delete_topic("t")
        second = await elsewhere.create_topic(NewTopic(name="t"))
        events = events_of(registry)
        await registry.load()
        assert events == [TopicDeleted(first), TopicCreated(second)]


class TestPartitions:
    """`create_partitions`."""

    async def test_new_partitions_join_the_old_ones(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Old assignments and states stay; the new ones have the topic's replication factor."""
        before = await registry.create_topic(NewTopic(name="t", partitions=2, replication_factor=2))
        events = events_of(registry)
        after = await registry.create_partitions("t", 5)
        assert list(after.assignment) == list(after.states) == [0, 1, 2, 3, 4]
        assert {p: after.assignment[p] for p in (0, 1)} == before.assignment
        assert all(len(replicas) == 2 for replicas in after.assignment.values())
        assert events == [TopicChanged(before, after)]
        await assert_same_as_tree(registry, tree)

    async def test_an_assignment_is_for_the_new_ones(self, registry: TopicRegistry) -> None:
        """Keys are partition numbers."""
        await registry.create_topic(NewTopic(name="t", assignment={0: (1,)}))
        topic = await registry.create_partitions("t", 3, {1: (2,), 2: (1,)})
        assert topic.assignment == {0: (1,), 1: (2,), 2: (1,)}
        for assignment in ({0: (2,)}, {3: (1, 2)}):
            with pytest.raises(KafkaError) as failure:
                await registry.create_partitions("t", 4, assignment)
            assert failure.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    @pytest.mark.parametrize("count", [0, 1, 2])
    async def test_partitions_never_become_fewer(self, registry: TopicRegistry, count: int) -> None:
        """Nor does the same number count as a change: INVALID_PARTITIONS."""
        await registry.create_topic(NewTopic(name="t", partitions=2))
        with pytest.raises(KafkaError) as failure:
            await registry.create_partitions("t", count)
        assert failure.value.code is ErrorCode.INVALID_PARTITIONS

    async def test_validation_alone_adds_nothing(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """The answer is the topic as it would be."""
        before = await registry.create_topic(NewTopic(name="t"))
        after = await registry.create_partitions("t", 2, validate_only=True)
        assert after.partition_count == 2
        assert registry.topics == {"t": before}
        await assert_same_as_tree(registry, tree)


class TestConfiguration:
    """`set_topic_config` and `alter_topic_config`."""

    async def test_overrides_are_replaced(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Overrides missing from the new configuration are gone."""
        before = await registry.create_topic(NewTopic(name="t", config={"a": "1"}))
        events = events_of(registry)
        after = await registry.set_topic_config("t", {"b": "2"})
        assert after.config == {"b": "2"}
        assert events == [TopicChanged(before, after)]
        await assert_same_as_tree(registry, tree)

    async def test_a_topic_without_configuration_node_gets_one(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Kafka deletes the node of a topic without overrides."""
        await registry.create_topic(NewTopic(name="t"))
        await tree.delete(topic_config_path("t"))
        await registry.load()
        await registry.set_topic_config("t", {"a": "1"})
        await assert_same_as_tree(registry, tree)

    async def test_concurrent_changes_both_count(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """After a lost race `alter` is asked again, about what is there now."""
        await registry.create_topic(NewTopic(name="t"))
        elsewhere = await load(server.connect())
        await elsewhere.alter_topic_config("t", lambda config: {**config, "theirs": "1"})
        here = await registry.alter_topic_config("t", lambda config: {**config, "ours": "2"})
        assert here.config == {"theirs": "1", "ours": "2"}

        async def add(name: str) -> None:
            await registry.alter_topic_config("t", lambda config: {**config, name: "3"})

        await asyncio.gather(*(add(f"{n}") for n in range(5)))
        assert len(registry.topics["t"].config) == 7
        await assert_same_as_tree(registry, tree)

    async def test_what_alter_raises_ends_the_change(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Values are validated by the caller, inside `alter`."""
        await registry.create_topic(NewTopic(name="t", config={"a": "1"}))

        def refuse(_: object) -> dict[str, str]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "no")

        with pytest.raises(KafkaError, match="no"):
            await registry.alter_topic_config("t", refuse)
        await assert_same_as_tree(registry, tree)


async def test_what_does_not_exist_is_unknown(registry: TopicRegistry) -> None:
    """Every change of a missing topic is UNKNOWN_TOPIC_OR_PARTITION."""
    for change in (
        registry.delete_topic("t"),
        registry.create_partitions("t", 2),
        registry.set_topic_config("t", {}),
    ):
        with pytest.raises(KafkaError) as failure:
            await change
        assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_cancelled_listener_is_silent(registry: TopicRegistry) -> None:
    """The others still hear."""
    silent: list[TopicEvent] = []
    registry.listen(silent.append)()
    events = events_of(registry)
    await registry.create_topic(NewTopic(name="t"))
    assert (silent, len(events)) == ([], 1)


class TestLeadership:
    """`claim_leadership`."""

    async def test_every_restart_is_a_new_epoch(
        self, registry: TopicRegistry, server: MemoryTree
    ) -> None:
        """Leader and ISR stay, the epoch grows by one, and the tree has it."""
        await registry.create_topic(NewTopic(name="t", assignment={0: (1, 2), 1: (1, 2)}))
        for epoch in (1, 2, 3):
            tree = server.connect()
            registry = await load(tree)
            await registry.claim_leadership(1)
            states = registry.topics["t"].states
            assert [state.leader_epoch for state in states.values()] == [epoch, epoch]
            assert [state.isr for state in states.values()] == [(1, 2), (1, 2)]
            await assert_same_as_tree(registry, tree)

    async def test_others_keep_what_they_lead(self, registry: TopicRegistry) -> None:
        """A broker claims nothing that another one leads; topics without a change make no event."""
        topic = await registry.create_topic(NewTopic(name="t", assignment={0: (2, 1)}))
        events = events_of(registry)
        await registry.claim_leadership(1)
        assert (registry.topics["t"], events) == (topic, [])

    @pytest.mark.parametrize(("isr", "leader"), [((1, 2), 1), ((2,), -1)])
    async def test_what_nobody_leads_goes_to_a_replica_in_sync(
        self, registry: TopicRegistry, tree: MemoryNodeTree, isr: tuple[int, ...], leader: int
    ) -> None:
        """A replica that is not in sync may lack committed records, so it must not lead."""
        await registry.create_topic(NewTopic(name="t", assignment={0: (1, 2)}))
        nobody = LeaderAndIsr(leader=-1, leader_epoch=4, isr=isr)
        await tree.write(partition_state_path("t", 0), encode_partition_state(nobody), 0)
        await registry.load()
        await registry.claim_leadership(1)
        assert registry.topics["t"].states[0].leader == leader

    async def test_a_partition_that_was_never_led_gets_its_first_state(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """Kafka's tools create the topic node alone; its preferred replica does the rest."""
        await tree.create(
            topic_path("t"),
            b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1,2],"1":[2]},'
            b'"adding_replicas":{},"removing_replicas":{}}',
        )
        await registry.load()
        await registry.claim_leadership(1)
        first = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2))
        assert registry.topics["t"].states == {0: first}
        await assert_same_as_tree(registry, tree)

    async def test_a_claim_that_lost_a_race_is_decided_again(
        self, registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
    ) -> None:
        """A partition that another broker claimed meanwhile stays with it."""
        await registry.create_topic(NewTopic(name="t", assignment={0: (1, 2), 1: (1, 2)}))
        taken = LeaderAndIsr(leader=2, leader_epoch=1, isr=(1, 2))
        data = encode_partition_state(taken)
        rival = server.connect()
        tree.before_next_change(lambda: rival.write(partition_state_path("t", 0), data, 0))
        await registry.claim_leadership(1)
        leaders = [state.leader for state in registry.topics["t"].states.values()]
        assert leaders == [2, 1]
        await assert_same_as_tree(registry, tree)


class TestLostReplies:
    """`ConnectionLostError` in the middle of a change."""

    @pytest.mark.parametrize("applied", [True, False])
    async def test_every_change_is_made_once(
        self, registry: TopicRegistry, tree: MemoryNodeTree, applied: bool
    ) -> None:
        """Whether it landed is found out by reading; if not, it is made."""
        tree.lose_next_reply(applied=applied)
        topic = await registry.create_topic(NewTopic(name="t", partitions=2))
        await assert_same_as_tree(registry, tree)
        tree.lose_next_reply(applied=applied)
        assert (await registry.create_partitions("t", 3)).topic_id == topic.topic_id
        tree.lose_next_reply(applied=applied)
        assert (await registry.set_topic_config("t", {"a": "1"})).config == {"a": "1"}
        await assert_same_as_tree(registry, tree)
        leader = registry.topics["t"].states[0].leader
        tree.lose_next_reply(applied=applied)
        await registry.claim_leadership(leader)
        assert registry.topics["t"].states[0].leader_epoch == 1
        await assert_same_as_tree(registry, tree)
        tree.lose_next_reply(applied=applied)
        await registry.delete_topic("t")
        await assert_same_as_tree(registry, tree)
        assert registry.topics == {}

    async def test_an_unknown_outcome_may_be_asked_again(
        self, registry: TopicRegistry, tree: MemoryNodeTree
    ) -> None:
        """REQUEST_TIMED_OUT is retriable and promises nothing."""
        tree.suspend()
        with pytest.raises(KafkaError) as failure:
            await registry.create_topic(NewTopic(name="t"))
        assert failure.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_of_two_brokers_one_creates_a_topic(
    registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
) -> None:
    """The other one gets the error that it exists, and knows it from then on."""
    elsewhere = await load(server.connect())
    results = await asyncio.gather(
        registry.create_topic(NewTopic(name="t")),
        elsewhere.create_topic(NewTopic(name="t")),
        return_exceptions=True,
    )
    created = [result for result in results if isinstance(result, Topic)]
    (refused,) = [result for result in results if isinstance(result, KafkaError)]
    assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert registry.topics == elsewhere.topics == {"t": created[0]}


class CrashError(Exception):
    """The process is gone."""


class CrashingTree(MemoryNodeTree):
    """A client that dies before or after its nth multi-operation."""

    crash_at = -1
    before = True
    count = 0

    async def multi(self, operations: Sequence[Operation]) -> None:
        self.count += 1
        if self.count == self.crash_at and self.before:
            raise CrashError
        await super().multi(operations)
        if self.count == self.crash_at:
            raise CrashError


async def delete(registry: TopicRegistry, name: str) -> None:
    """Deletes a topic and all of its nodes."""
    await registry.finish_deletion(await registry.delete_topic(name))


CHANGES = {
    "create": lambda registry: registry.create_topic(NewTopic(name="t", partitions=8)),
    "extend": lambda registry: registry.create_partitions("old", 9),
    "delete": lambda registry: delete(registry, "old"),
    "claim": lambda registry: registry.claim_leadership(1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("before", [True, False])
async def test_a_crash_at_any_step_leaves_nothing_half(
    server: MemoryTree, monkeypatch: pytest.MonkeyPatch, change: str, before: bool
) -> None:
    """After the next start each topic is whole: every partition led, or the topic gone."""
    monkeypatch.setattr(topic_nodes, "OPERATIONS_MAX", 4)
    for crash_at in range(1, 12):
        setup = await load(server.connect())
        for name in list(setup.topics):
            await setup.delete_topic(name)
        await setup.create_topic(NewTopic(name="old", assignment=dict.fromkeys(range(6), (1,))))
        tree = CrashingTree(server)
        registry = await load(tree)
        tree.count, tree.crash_at, tree.before = 0, crash_at, before
        with contextlib.suppress(CrashError):
            await CHANGES[change](registry)
        restarted = await load(server.connect())
        for broker_id in (1, 2):
            await restarted.claim_leadership(broker_id)
        for topic in restarted.topics.values():
            assert list(topic.states) == list(topic.assignment)
            for partition in topic.assignment:
                assert await server.connect().children(partition_path(topic.name, partition))
        await assert_same_as_tree(restarted, server.connect())
        assert await server.connect().children("/admin/delete_topics") == []


async def test_a_thousand_partitions_take_a_handful_of_operations(
    registry: TopicRegistry, server: MemoryTree
) -> None:
    """Each multi-operation is one fsync or one round trip, so their number is the start's cost."""
    await registry.create_topic(NewTopic(name="t", assignment=dict.fromkeys(range(1000), (1,))))
    tree = CrashingTree(server)
    restarted = await load(tree)
    await restarted.claim_leadership(1)
    assert tree.count == 1


async def test_what_an_older_copy_of_the_tree_lacks_is_not_taken_for_deleted(
    server: MemoryTree, registry: TopicRegistry
) -> None:
    """The logs of a deleted topic go at once; those of one that a restored coordinator has forgotten must stay."""
    await registry.create_topic(NewTopic(name="orders"))
    await registry.follow()
    asked = asyncio.Event()
    is_old = True

    async def check() -> None:
        asked.set()
        if is_old:
            raise OldCopyError("the coordinator's data is an old copy")

    registry.check_tree = check
    other = await load(server.connect())
    await other.delete_topic("orders")
    await asked.wait()
    await turns()
    assert "orders" in registry.topics
    is_old = False
    gone = asyncio.Event()
    registry.listen(lambda event: gone.set() if isinstance(event, TopicDeleted) else None)
    await gone.wait()  # it is read again after a failure
    assert "orders" not in registry.topics
    await registry.close()
