"""The controller over a tree: one in office, refused when deposed, and everything led in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from echoless.broker.controller import tasks
from echoless.broker.controller.election_requests import ask
from echoless.broker.controller.elections import ElectionType, Electorate
from echoless.broker.controller.reassignment import origin_of, reassign
from echoless.broker.metadata.node_data import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    NO_LEADER,
    PREFERRED_REPLICA_ELECTION,
    encode_controller,
    encode_partition_state,
    encode_topic,
    partition_state_path,
    topic_path,
)
from echoless.broker.metadata.topic import Relocation, StateChange, Topic
from echoless.broker.tree.node_tree import Create, Delete, SetData
from tests.broker.controller.cluster import Cluster, SteppedTree, play, settle
from tests.support.relocation import relocate


async def started(*broker_ids: int, unclean: bool = False) -> Cluster:
    cluster = Cluster(unclean=unclean)
    await cluster.start(*broker_ids)
    return cluster


def test_one_broker_is_the_controller_and_all_know_it() -> None:
    """The first one; when its session ends, another one follows in the next epoch."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        assert cluster.controllers() == {1}
        epoch = cluster.server.controller_epoch()
        await cluster.kill(1)
        await settle()
        (successor,) = cluster.controllers()
        assert successor in {2, 3}
        assert cluster.server.controller_epoch() == epoch + 1
        assert cluster.members[successor].controller.epoch == epoch + 1
        await cluster.stop()

    play(scenario())


def test_a_dead_leader_is_followed_by_one_in_sync() -> None:
    """It holds even if the controller itself has died."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((1, 2, 3), (3, 1, 2))
        await cluster.kill(3)
        await settle()
        assert cluster.shown(1) == (1, 1, (1, 2))
        await cluster.keep_isrs()
        await cluster.kill(1)
        await settle()
        assert (cluster.shown(0), cluster.shown(1)) == ((2, 1, (2,)), (2, 2, (2,)))
        await cluster.stop()

    play(scenario())


def test_an_offline_partition_waits_for_a_replica_in_sync() -> None:
    """Another replica is no substitute; the last one in sync leads when it is back."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1))
        await cluster.kill(1)
        await settle()
        await cluster.keep_isrs()
        await cluster.kill(2)
        await cluster.start(1)
        assert cluster.shown() == (NO_LEADER, 1, (2,))
        await cluster.start(2)
        leader, epoch, isr = cluster.shown()
        assert (leader, isr, epoch > 1) == (2, (2,), True)
        await cluster.stop()

    play(scenario())


def test_a_partition_without_a_leader_gets_one_when_unclean_elections_are_allowed() -> None:
    """Nothing else happens meanwhile: the controller looks again because the setting changed."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1))
        await cluster.kill(1)
        await settle()
        await cluster.keep_isrs()
        await cluster.kill(2)
        await cluster.start(1)
        assert cluster.shown() == (NO_LEADER, 1, (2,))
        cluster.server.allows_unclean = cluster.members[1].unclean = True
        cluster.members[1].controller.look_at_all_again()
        await settle()
        assert cluster.shown()[::2] == (1, (1,))
        await cluster.stop()

    play(scenario())


def test_an_unclean_election_is_counted() -> None:
    """Only where the configuration allows to lose what the old ISR had."""

    async def scenario() -> None:
        cluster = await started(1, 2, unclean=True)
        await cluster.create_topic((2, 1))
        await cluster.kill(1)
        await settle()
        await cluster.keep_isrs()
        await cluster.kill(2)
        await cluster.start(1)
        assert cluster.shown()[::2] == (1, (1,))
        assert cluster.members[1].elections == {"unclean": 1}
        await cluster.stop()

    play(scenario())


def test_a_leaving_broker_hands_over_while_it_lives() -> None:
    """Leadership and place in the ISR are gone before the broker is."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((1, 2, 3), (2, 1, 3))
        await cluster.members[1].announce_leaving()
        await settle()
        assert (cluster.shown(0), cluster.shown(1)) == ((2, 1, (2, 3)), (2, 1, (2, 3)))
        await cluster.stop()

    play(scenario())


def test_a_partition_that_was_never_led_gets_its_first_state() -> None:
    """Its creator died between the topic node and the state."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((1,), name="other")
        other = cluster.topics()["other"]
        data = encode_topic(other.topic_id, {0: (2, 1), 1: (9,)})
        await cluster.members[2].tree.create(topic_path("t"), data)
        await settle()
        assert cluster.shown() == (2, 0, (2, 1))
        assert cluster.server.state("t", 1) is None
        await cluster.stop()

    play(scenario())


def test_a_broker_that_comes_back_too_soon_is_unseated() -> None:
    """It is registered again before the controller has seen it go, and a state still names it."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1))
        member = cluster.members[2]
        member.tree.expire_session()
        member.tree.reconnect()
        await member.tree.create("/brokers/ids/2", await read_registration(cluster), ephemeral=True)
        await settle()
        leader, epoch, _ = cluster.shown()
        assert (leader, epoch > 0) == (1, True)
        await cluster.stop()

    async def read_registration(cluster: Cluster) -> bytes:
        return (await cluster.members[1].tree.read("/brokers/ids/1")).data

    play(scenario())


def test_a_late_write_of_the_old_controller_is_refused() -> None:
    """It was decided and sent in time, and arrives when another controller has taken over."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((3, 2, 1))
        server = cluster.server

        async def take_over() -> None:
            # The other one has not done anything else yet: only its epoch says that it is there.
            version = server.nodes.read(CONTROLLER_EPOCH).version
            server.apply(server.nodes.plan_multi([SetData(CONTROLLER_EPOCH, b"7", version)], 0))

        cluster.members[1].tree.before_next_change(take_over)
        await cluster.kill(3)
        await settle()
        assert cluster.shown() == (2, 1, (2, 1))
        assert {state.controller_epoch for _, state in server.written} == {0, 7}
        await cluster.stop()

    play(scenario())


def test_two_controllers_never_both_succeed() -> None:
    """The office is taken from one that knows nothing of it while its decision is on the way."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((3, 2, 1))
        server = cluster.server

        async def take_over() -> None:
            server.apply(server.nodes.plan_multi([Delete(CONTROLLER)], 0))
            await settle()

        cluster.members[1].tree.before_next_change(take_over)
        await cluster.kill(3)
        await settle()
        await settle()
        assert cluster.shown() == (2, 1, (2, 1))
        assert {state.controller_epoch for _, state in server.written} == {0, 2}
        assert len(cluster.controllers()) == 1
        await cluster.stop()

    play(scenario())


def test_the_office_of_an_earlier_life_has_to_become_free() -> None:
    """The node names this broker, but the session is not this one's: it waits like everybody."""

    async def scenario() -> None:
        cluster = Cluster()
        earlier = cluster.server.connect()
        operations = [
            Create(CONTROLLER, encode_controller(1, 0), ephemeral=True),
            Create(CONTROLLER_EPOCH, b"4"),
        ]
        await earlier.multi(operations)
        await cluster.start(1, 2)
        await cluster.create_topic((2, 1))
        await cluster.kill(2)
        await settle()
        assert cluster.shown()[0] == 2
        await earlier.close()
        await settle()
        assert (cluster.shown()[0], cluster.server.controller_epoch()) == (1, 5)
        await cluster.stop()

    play(scenario())


@pytest.mark.parametrize("was_applied", [True, False])
def test_a_lost_answer_to_the_candidacy_is_no_second_controller(*, was_applied: bool) -> None:
    """The controller is read, never guessed."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1))
        cluster.members[2].tree.lose_next_reply(applied=was_applied)
        await cluster.kill(1)
        await settle()
        assert cluster.controllers() == {2}
        assert cluster.server.controller_epoch() == 2
        assert cluster.shown()[0] == 2
        await cluster.stop()

    play(scenario())


def suspend_for_a_while(tree: SteppedTree) -> None:
    tree.suspend()
    asyncio.get_running_loop().call_later(1.0, tree.resume)


def expire(tree: SteppedTree) -> None:
    tree.expire_session()


def lose_the_request(tree: SteppedTree) -> None:
    tree.lose_next_reply(applied=False)


def lose_the_answer(tree: SteppedTree) -> None:
    tree.lose_next_reply(applied=True)


@pytest.mark.parametrize("fault", [suspend_for_a_while, expire, lose_the_request, lose_the_answer])
def test_a_failure_at_any_step_is_made_good(fault: Callable[[SteppedTree], None]) -> None:
    """Whichever call of the controller fails, by whichever fault: in the end everything is led."""

    async def scenario(calls: int) -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((3, 1, 2), (3, 2, 1), (1, 3, 2))
        await ask(cluster.members[2].tree, {("t", 2): ElectionType.PREFERRED})
        await start_reassignment(cluster, 2, (1, 2))
        controller = cluster.members[1]
        controller.tree.after_calls(calls, fault)
        await cluster.kill(3)
        await settle()
        if fault is expire:
            await controller.join_again()
        await settle()
        await cluster.keep_isrs()
        await settle()
        cluster.check_led()
        assert len(cluster.controllers()) == 1
        assert cluster.topics()["t"].assignment[2] == (1, 2)
        assert cluster.server.nodes.get(PREFERRED_REPLICA_ELECTION) is None
        await cluster.stop()

    for calls in range(1, 25):
        play(scenario(calls))


async def start_reassignment(cluster: Cluster, partition: int, target: tuple[int, ...]) -> None:
    member = cluster.any_member()
    replicas, moving = reassign(member.registry.topics["t"], partition, target)
    await relocate(member.registry, "t", partition, replicas, moving)


def test_a_change_of_one_partition_is_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of thousands changes as often as any of its partitions does."""
    looked_at: list[int] = []
    decide = tasks.elect

    def recording(
        topics: list[Topic], *args: Any, partitions_of: Callable[[Topic], Any], **kwargs: Any
    ) -> Any:
        looked_at.extend(partition for topic in topics for partition in partitions_of(topic))
        return decide(topics, *args, partitions_of=partitions_of, **kwargs)

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic(*[(1, 2)] * 9)
        monkeypatch.setattr(tasks, "elect", recording)
        member = cluster.members[2]
        before = member.registry.topics["t"].states[5]
        after = before._replace(isr=(1,))
        await member.registry.change_states([StateChange("t", 5, before, after)])
        await settle()
        assert set(looked_at) == {5}
        await cluster.members[2].registry.set_topic_config("t", {"retention.ms": "1"})
        await settle()
        assert set(looked_at) == set(range(9))  # the rules may be others now
        await cluster.stop()

    play(scenario())


def test_the_preferred_leader_takes_over_when_asked() -> None:
    """The request disappears, including the part that could not be fulfilled."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1), (1, 2))
        await cluster.kill(2)
        await cluster.keep_isrs()
        await cluster.start(2)
        await cluster.keep_isrs()
        assert cluster.shown(0)[0] == 1
        wanted = dict.fromkeys([("t", 0), ("t", 1), ("u", 7)], ElectionType.PREFERRED)
        await ask(cluster.members[2].tree, wanted)
        await settle()
        assert cluster.shown(0)[0] == 2
        assert cluster.shown(1)[0] == 1
        assert cluster.server.nodes.get(PREFERRED_REPLICA_ELECTION) is None
        await cluster.stop()

    play(scenario())


def test_a_lost_race_does_not_lose_the_request() -> None:
    """A leader that changes its ISR meanwhile does not keep the preferred one from its office."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1))
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.keep_isrs()
        assert cluster.shown()[0] == 1
        path = partition_state_path("t", 0)
        rival = cluster.server.connect()

        async def change_isr() -> None:
            node = await rival.read(path)
            await rival.write(path, node.data, node.version)

        (controller,) = cluster.controllers()
        cluster.members[controller].tree.before_next_change(change_isr)
        await ask(cluster.members[2].tree, {("t", 0): ElectionType.PREFERRED})
        await settle()
        assert cluster.shown()[0] == 2
        assert cluster.server.nodes.get(PREFERRED_REPLICA_ELECTION) is None
        await cluster.stop()

    play(scenario())


def test_requests_that_cannot_be_read_stop_nothing() -> None:
    """A typing error in the node must not cost the cluster its controller."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((2, 1))
        await cluster.members[2].tree.multi([Create(PREFERRED_REPLICA_ELECTION, b"{")])
        await settle()
        await cluster.kill(2)
        await settle()
        assert cluster.shown()[0] == 1
        await cluster.stop()

    play(scenario())


def test_a_partition_moves_to_other_brokers() -> None:
    """It is led all the time, and the old replicas are gone in the end."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3, 4)
        await cluster.create_topic((1, 2))
        await start_reassignment(cluster, 0, (3, 4))
        await settle()
        assert cluster.topics()["t"].assignment[0] == (3, 4, 1, 2)
        await cluster.keep_isrs()
        await settle()
        topic = cluster.topics()["t"]
        assert (topic.assignment[0], topic.reassignments) == ((3, 4), {})
        leader, _, isr = cluster.shown()
        assert (leader, set(isr)) == (3, {3, 4})
        await cluster.stop()

    play(scenario())


def test_a_partition_gives_replicas_up() -> None:
    """While it does, its replicas are the same, and only what is said of them is new."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((1, 2, 3))
        await start_reassignment(cluster, 0, (3,))
        await settle()
        topic = cluster.topics()["t"]
        assert (topic.assignment[0], topic.reassignments) == ((3,), {})
        assert cluster.shown()[0] == 3
        await cluster.stop()

    play(scenario())


def test_many_partitions_move_in_as_many_requests_as_few() -> None:
    """A request for each, and a copy of the topic's node in each, would make their number count twice."""
    spent: dict[int, int] = {}

    async def scenario(count: int) -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic(*[(1, 2)] * count)
        trees = [member.tree for member in cluster.members.values()]
        before = sum(tree.calls for tree in trees)

        async def all_of_them(topic: Topic) -> dict[int, Relocation]:
            return {partition: reassign(topic, partition, (1, 3)) for partition in topic.assignment}

        await cluster.any_member().registry.change_assignments("t", all_of_them)
        await settle()
        await cluster.keep_isrs()
        topic = cluster.topics()["t"]
        assert {*topic.assignment.values()} == {(1, 3)}
        assert not topic.reassignments
        assert topic.node_version == 2
        spent[count] = sum(tree.calls for tree in trees) - before
        await cluster.stop()

    for count in (10, 200):
        play(scenario(count))
    assert spent[200] == spent[10] <= 40


def test_a_reassignment_is_looked_at_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of the others, which still wait for their new replicas."""
    looked_at: list[int] = []
    find = tasks.arrivals

    def recording(topic: Topic, partitions: Collection[int], brokers: Electorate) -> Any:
        looked_at.extend(partitions)
        return find(topic, partitions, brokers)

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic(*[(1, 2)] * 9)
        for partition in range(9):
            await start_reassignment(cluster, partition, (1, 3))
        await settle()
        monkeypatch.setattr(tasks, "arrivals", recording)
        member = cluster.members[2]
        before = member.registry.topics["t"].states[5]
        change = StateChange("t", 5, before, before._replace(isr=(1, 2, 3)))
        await member.registry.change_states([change])
        await settle()
        assert set(looked_at) == {5}
        assert cluster.topics()["t"].assignment[5] == (1, 3)
        await cluster.stop()

    play(scenario())


def test_a_cancelled_reassignment_leaves_what_was() -> None:
    """Even when a new replica is the leader already."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((1, 2))
        await start_reassignment(cluster, 0, (3, 2, 4))
        await cluster.keep_isrs()
        assert cluster.topics()["t"].reassignments
        origin = origin_of(cluster.topics()["t"], 0)
        await start_reassignment(cluster, 0, origin)
        await settle()
        topic = cluster.topics()["t"]
        assert (set(topic.assignment[0]), topic.reassignments) == ({1, 2}, {})
        assert set(cluster.shown()[2]) == {1, 2}
        await cluster.stop()

    play(scenario())


def test_the_last_replica_in_sync_is_not_dropped() -> None:
    """The target is in sync when the decision is made, and no more when it arrives."""

    async def scenario() -> None:
        cluster = await started(1, 2)
        await cluster.create_topic((1, 2))
        await start_reassignment(cluster, 0, (2,))
        member = cluster.members[1]

        async def only_the_old_one_is_in_sync() -> None:
            server, path = cluster.server, partition_state_path("t", 0)
            state = server.state("t", 0)
            assert state is not None
            # As if 1 had been taken in again, and 2 had died thereafter.
            for leader, isr in ((2, (2, 1)), (1, (1,))):
                state = state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)
                version = server.nodes.read(path).version
                write = SetData(path, encode_partition_state(state), version)
                server.apply(server.nodes.plan_multi([write], 0))

        member.tree.before_next_change(nothing)  # the state without the old replica
        member.tree.before_next_change(only_the_old_one_is_in_sync)
        await settle()
        assert cluster.topics()["t"].assignment[0] == (2, 1)
        await cluster.keep_isrs()
        assert cluster.topics()["t"].assignment[0] == (2,)
        await cluster.stop()

    async def nothing() -> None:
        pass

    play(scenario())


def test_a_topic_may_be_deleted_while_it_moves() -> None:
    """Nothing is left to finish."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((1, 2))
        await start_reassignment(cluster, 0, (3,))
        await cluster.members[2].registry.delete_topic("t")
        await settle()
        assert cluster.topics() == {}
        assert cluster.controllers() == {1}
        await cluster.stop()

    play(scenario())


def test_nothing_is_written_when_nothing_is_wrong() -> None:
    """A new controller and a reconnection find everything in order, and leave it so."""

    async def scenario() -> None:
        cluster = await started(1, 2, 3)
        await cluster.create_topic((2, 3), (3, 2))
        written = len(cluster.server.written)
        await cluster.kill(1)
        await settle()
        cluster.any_member().tree.suspend()
        cluster.any_member().tree.resume()
        await settle()
        assert len(cluster.server.written) == written
        await cluster.stop()

    play(scenario())
