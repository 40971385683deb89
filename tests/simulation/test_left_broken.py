"""The machine that is left broken is one that the others can do without."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.network import CALM
from tests.simulation.stage import Stage
from tests.simulation.transactions.left_broken import is_dispensable


def test_a_leader_that_is_about_to_be_the_only_one_in_sync_is_not() -> None:
    """Its change of the in-sync replicas is on its way: the coordinator does not show it yet (seed 3101001)."""
    with Stage(brokers=2) as stage:
        cluster, leader = stage.cluster, stage.leader
        assert is_dispensable(cluster, leader)
        (follower,) = stage.followers
        stage.cut(leader, follower)
        stage.producer().begin()
        stage.hold_back(leader)
        stage.run(2.0)  # the follower lags after one second, and the session ends after three
        assert set(stage.state["isr"]) == {leader.broker_id, follower.broker_id}
        assert not is_dispensable(cluster, leader)


def test_one_that_no_partition_is_in_sync_without_is_not() -> None:
    """With two in-sync replicas wanted, and two there, both are needed."""
    with Stage(brokers=2, min_insync_replicas=2) as stage:
        assert not any(
            is_dispensable(stage.cluster, machine) for machine in stage.machines.values()
        )


def test_none_is_while_a_broker_stops() -> None:
    """Its departure may be on its way to the coordinator, and leave a partition to one broker (seed 1000308)."""
    with Stage(brokers=2) as stage:
        cluster, leader = stage.cluster, stage.leader
        assert is_dispensable(cluster, leader)
        (follower,) = stage.followers
        stage.hold_back(follower)
        follower.stop()
        stage.run(0.1)
        assert set(stage.state["isr"]) == {leader.broker_id, follower.broker_id}
        assert not is_dispensable(cluster, leader)


def test_none_is_while_a_session_may_be_about_to_end() -> None:
    """Its broker has not been heard of for most of the timeout, and is out of sync next (seed 2000808)."""
    with Stage(brokers=2) as stage:
        cluster, leader = stage.cluster, stage.leader
        assert is_dispensable(cluster, leader)
        (follower,) = stage.followers
        stage.hold_back(follower)
        stage.run(2.0)  # of three seconds
        assert set(stage.state["isr"]) == {leader.broker_id, follower.broker_id}
        assert not is_dispensable(cluster, leader)


def test_none_is_while_bad_weather_holds_something_up() -> None:
    """It may be a sign of life, with everything that its sender has said since (seed 5021026)."""
    with Stage(brokers=2) as stage:
        cluster, leader = stage.cluster, stage.leader
        assert is_dispensable(cluster, leader)
        cluster.network.weather = replace(CALM, slow_probability=1.0, slow_s=1.0)
        stage.run(0.5)
        cluster.heal()
        assert not is_dispensable(cluster, leader)
        stage.run(1.0)
        assert is_dispensable(cluster, leader)
