"""Withdrawal: a broker that comes back leads nothing, and is in sync only where that is sure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.cluster.withdrawal import withdraw, withdrawn
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import NewTopic, StateChange
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import ConnectionLostError, MultiFailedError
from tests.broker.metadata.registries import loaded, server_with_brokers
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree

STATES = st.builds(
    LeaderAndIsr,
    leader=st.sampled_from([-1, 1, 2, 3]),
    leader_epoch=st.integers(0, 9),
    isr=st.lists(st.sampled_from([1, 2, 3]), unique=True, min_size=1).map(tuple),
    controller_epoch=st.integers(0, 9),
    node_version=st.integers(0, 9),
)


@pytest.fixture
async def server() -> MemoryTree:
    return await server_with_brokers()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
async def registry(tree: MemoryNodeTree) -> TopicRegistry:
    """Topic t: led by 1 with 2; led by 2 with 1; broker 1 the last in sync; not of broker 1."""
    registry = await loaded(tree)
    assignment = {0: (1, 2), 1: (2, 1), 2: (1, 3), 3: (2, 3)}
    topic = await registry.create_topic(NewTopic(name="t", assignment=assignment))
    before = topic.states[2]
    await registry.change_states([StateChange("t", 2, before, before._replace(isr=(1,)))])
    return registry


def summary(registry: TopicRegistry) -> list[tuple[int, int, tuple[int, ...]]]:
    states = registry.topics["t"].states.values()
    return [(state.leader, state.leader_epoch, state.isr) for state in states]


@given(state=STATES, tail_is_safe=st.booleans())
def test_the_state_after_a_withdrawal(state: LeaderAndIsr, tail_is_safe: bool) -> None:
    """Laws: no leadership, an epoch per lost leadership, an ISR that never empties or grows."""
    after = withdrawn(state, 1, tail_is_safe=tail_is_safe)
    assert after.leader == (-1 if state.leader == 1 else state.leader)
    assert after.leader_epoch == state.leader_epoch + (state.leader == 1)
    if tail_is_safe or state.isr == (1,):
        assert after.isr == state.isr
    else:
        assert after.isr == tuple(one for one in state.isr if one != 1)
    assert after.isr
    assert withdrawn(after, 1, tail_is_safe=tail_is_safe) == after


async def test_all_that_was_promised_is_taken_back(
    registry: TopicRegistry, server: MemoryTree
) -> None:
    """Leaderships go; the ISR keeps the broker only where it is the last one."""
    await withdraw(registry, 1, tail_is_safe=False)
    assert summary(registry) == [(-1, 1, (2,)), (2, 0, (2,)), (-1, 1, (1,)), (2, 0, (2, 3))]
    assert (await loaded(server.connect())).topics == registry.topics


async def test_a_safe_tail_stays_in_sync(registry: TopicRegistry) -> None:
    """Only the leaderships go: the log has all that it had."""
    await withdraw(registry, 1, tail_is_safe=True)
    assert summary(registry) == [(-1, 1, (1, 2)), (2, 0, (2, 1)), (-1, 1, (1,)), (2, 0, (2, 3))]


async def test_a_race_with_the_controller_has_one_winner(
    registry: TopicRegistry, server: MemoryTree, tree: MemoryNodeTree
) -> None:
    """The controller's decision stays, and the withdrawal is decided again on top of it."""
    controller = await loaded(server.connect())

    async def elect(partition: int) -> None:
        await controller.load()
        before = controller.topics["t"].states[partition]
        elected = before._replace(
            leader=2, leader_epoch=before.leader_epoch + 1, controller_epoch=1
        )
        await controller.change_states([StateChange("t", partition, before, elected)])

    tree.before_next_change(lambda: elect(0))
    tree.before_next_change(lambda: elect(1))
    await withdraw(registry, 1, tail_is_safe=False)
    assert summary(registry) == [(2, 1, (2,)), (2, 1, (2,)), (-1, 1, (1,)), (2, 0, (2, 3))]
    assert (await loaded(server.connect())).topics == registry.topics


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_costs_no_second_epoch(
    registry: TopicRegistry, tree: MemoryNodeTree, applied: bool
) -> None:
    """The withdrawal is made once."""
    tree.lose_next_reply(applied=applied)
    await withdraw(registry, 1, tail_is_safe=False)
    assert summary(registry)[0] == (-1, 1, (2,))


async def test_without_a_connection_nothing_is_withdrawn(
    registry: TopicRegistry, tree: MemoryNodeTree
) -> None:
    """The broker must not register then."""
    tree.suspend()
    with pytest.raises(ConnectionLostError):
        await withdraw(registry, 1, tail_is_safe=False)


async def test_a_second_withdrawal_finds_nothing_to_do(registry: TopicRegistry) -> None:
    """A broker may join repeatedly."""
    await withdraw(registry, 1, tail_is_safe=False)
    before, topics = summary(registry), dict(registry.topics)
    await withdraw(registry, 1, tail_is_safe=True)
    assert registry.topics == topics
    await withdraw(registry, 1, tail_is_safe=False)
    assert summary(registry) == before


async def test_no_write_under_way_brings_a_lost_tail_back(
    registry: TopicRegistry, server: MemoryTree
) -> None:
    """The leader has taken the earlier life into the ISR, and its write comes late."""
    leader = await loaded(server.connect())
    before = leader.topics["t"].states[0]
    await registry.change_states([StateChange("t", 0, before, before._replace(leader=2, isr=(2,)))])
    await leader.load()
    before = leader.topics["t"].states[0]
    await withdraw(registry, 1, tail_is_safe=False)
    with pytest.raises(MultiFailedError):
        await leader.change_states([StateChange("t", 0, before, before._replace(isr=(2, 1)))])
    assert summary(registry)[0][2] == (2,)
