"""An internal topic that began with too few brokers gets more replicas when there are more."""

from __future__ import annotations

import pytest

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.controller.internal_replicas import with_missing_replicas
from echoless.broker.metadata.node_data import Reassignment
from tests.broker.controller.cluster import Cluster, play, settle
from tests.broker.controller.topics import state, topic


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ((1,), None),
        ((1, 2), (1, 2)),
        ((1, 2, 3, 4), (1, 4, 2)),
        ((2, 4), (1, 4, 2)),
    ],
)
def test_a_partition_gets_what_it_lacks(
    brokers: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    """From the brokers with the fewest partitions of the topic; a replica that is away is kept."""
    one = topic({0: (1,), 1: (2,), 2: (3,)}, {0: state(1, 0, (1,))})
    assert with_missing_replicas(one, 0, brokers, 3) == expected


def test_a_partition_is_left_alone_while_it_moves_or_has_no_leader_yet() -> None:
    """One step at a time; nor is a partition with more replicas than asked for narrowed."""
    moving = Reassignment(adding=(2,), removing=())
    states = {0: state(1, 0, (1,))}
    assert with_missing_replicas(topic({0: (1, 2)}, states, {0: moving}), 0, (1, 2, 3), 3) is None
    assert with_missing_replicas(topic({0: (1,)}, {}), 0, (1, 2, 3), 3) is None
    assert with_missing_replicas(topic({0: (1, 2, 3)}, states), 0, (1, 2, 3, 4), 2) is None


def test_the_topic_grows_with_the_cluster() -> None:
    """Begun by one broker, held by three in the end; another topic stays as it is."""

    async def scenario() -> None:
        cluster = Cluster()
        await cluster.start(1)
        await cluster.create_topic((1,), (1,), name=CONSUMER_OFFSETS)
        await cluster.create_topic((1,))
        for broker_id in (2, 3, 4):
            await cluster.start(broker_id)
            for _ in range(4):
                await settle()
                await cluster.keep_isrs()
        topics = cluster.topics()
        assert topics["t"].assignment[0] == (1,)
        internal = topics[CONSUMER_OFFSETS]
        assert internal.reassignments == {}
        for partition, replicas in internal.assignment.items():
            assert len(replicas) == 3
            assert set(internal.states[partition].isr) == set(replicas)
        await cluster.stop()

    play(scenario())
