"""Brokers that do not know what has happened: hazards 2, 3, 4, 15 and 16."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from echoless.broker.config.loading import LogFlush
from echoless.protocol.errors import ErrorCode
from tests.simulation.network import CALM
from tests.simulation.stage import COORDINATOR, Stage


def a_leader_alone_shrinks() -> list[str]:
    """2. A leader that reaches only its clients wants to continue without its followers.

    Until the coordinator has agreed, they are in sync, and one of them becomes the leader.
    """
    with Stage(zookeeper_session_timeout_ms=12_000) as stage:
        producer, later = stage.producer(), stage.producer("later")
        stage.consumer()
        producer.send(2)
        later.send(1)
        leader = stage.leader
        stage.part(leader, COORDINATOR)
        for follower in stage.followers:
            stage.part(leader, follower)
        batches = producer.begin(2)
        stage.run(2.0)  # longer than a follower may lag, shorter than the session surely lives
        batches += later.begin(1)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        return stage.findings()


def a_paused_leader_wakes() -> list[str]:
    """3. A leader sleeps through the end of its session; what came meanwhile must not be believed."""
    with Stage() as stage:
        producer, other = stage.producer(), stage.producer("q")
        stage.consumer()
        (batch,) = producer.send(1)
        other.send(1)
        leader = stage.leader
        assert leader.process is not None
        leader.process.pause()
        stage.until(lambda: stage.is_led_by_another_than(leader))
        other.send(1)
        # A repeat of a committed batch could be answered at once by any broker that believes it
        # leads.
        asked = [producer.ask(leader, batch, acks) for acks in (-1, 1)]
        stage.run(0.1)
        leader.process.resume()
        stage.until(lambda: all(one.done() for one in asked))
        if not stage.cluster.observations.findings:
            assert {one.result() for one in asked} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        return stage.findings()


def an_old_controller_writes_late() -> list[str]:
    """4. A controller has decided, and another takes office before its write arrives."""
    with Stage(brokers=4, factor=4) as stage:
        producer = stage.producer()
        producer.send(1)
        old = stage.controller
        if stage.leader is old:
            old = stage.depose(old)
        leader = stage.leader
        assert leader is not old
        stage.kill(leader)
        stage.until(lambda: stage.is_gone(leader))
        stage.until(stage.hold_back_at_next_write(old))
        new = stage.depose(old)
        stage.hold_back(new)  # it has not decided yet
        stage.let_go(old)
        stage.run(0.5)
        stage.let_go(new)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        producer.send(1)
        return stage.findings()


def the_session_ends_before_the_write() -> list[str]:
    """15. A leader decides to change the ISR, and its session ends before the write arrives."""
    with Stage() as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(1)
        leader, (first, _) = stage.leader, stage.followers
        stage.part(leader, first)
        stage.hold_back(leader)
        batches = producer.begin(2)
        in_sync = stage.partition(leader).in_sync
        assert in_sync is not None
        stage.until(lambda: in_sync.pending is not None, within_s=3.0)
        assert leader.session_tree is not None
        stage.server.expire(leader.session_tree.session_id)
        stage.let_go(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        return stage.findings()


def messages_come_minutes_late() -> list[str]:
    """16. Everything that brokers say to each other comes again, minutes later, in other epochs."""
    with Stage() as stage:
        stage.network.weather = replace(CALM, duplicate_probability=1.0, late_s=120.0)
        producer = stage.producer()
        stage.consumer()
        for _ in range(4):
            producer.send(3)
            leader = stage.leader
            stage.kill(leader)
            stage.until(partial(stage.is_led_by_another_than, leader))
            producer.send(2)
            stage.start(leader)
            stage.run(5.0)
        stage.network.weather = CALM
        for _ in range(13):
            producer.send(1)
            stage.run(10.0)
        return stage.findings()


def a_fetch_of_an_earlier_life() -> list[str]:
    """16. A fetch from before a power loss claims records that the follower no longer has.

    The leader, with no one else in sync, must not count on it when it acknowledges and dies.
    """
    with Stage(brokers=2, log_flush=LogFlush.OS) as stage:
        producer = stage.producer()
        producer.send(3)
        leader, (follower,) = stage.leader, stage.followers
        stage.run(0.1)
        stage.network.weather = replace(CALM, duplicate_probability=1.0, late_s=20.0)
        for _ in range(12):
            stage.break_connections(follower)
            stage.run(0.25)  # it opens a session, naming offset 3, and that comes again
        stage.network.weather = CALM
        stage.lose_power(follower)
        stage.until(lambda: stage.state["isr"] == [leader.broker_id])
        stage.cut(leader, follower)
        stage.start(follower)
        stage.run(20.0)
        stage.kill(leader)
        stage.run(6.0)
        return stage.findings()
