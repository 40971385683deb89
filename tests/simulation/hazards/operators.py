"""Deeds of operators and faults of machines: an old copy of the coordinator's data, a clock that is wrong."""

from __future__ import annotations

from functools import partial

from tests.simulation.machine import Machine
from tests.simulation.stage import Stage

DAY_MS = 24 * 3_600_000


def an_old_copy_of_the_tree() -> list[str]:
    """17. The coordinator is lost, and restored from a copy: ids and epochs that it has given out would come again.

    One broker has claimed a block since, and the others have only seen that. No broker takes part; with the newest
    data they go on.
    """
    with Stage(producer_id_block_size=1, zookeeper_session_timeout_ms=1500) as stage:
        stage.consumer()
        stage.producer().send(2)
        old = stage.server.copy()
        later = stage.producer("later")
        later.send(3)
        stage.run(1.0)
        newest = stage.server.copy()
        stage.server.restore(old)
        stage.run(10.0)
        takers = [one.node for one in stage.machines.values() if not stage.is_gone(one)]
        if takers:
            return [f"{takers} take part in an old copy of the tree"]
        stage.server.restore(newest)
        stage.until(lambda: all(one.service for one in stage.machines.values()))
        later.send(2)
        stage.producer("last").send(2)
        return stage.findings()


def a_copy_that_another_broker_has_used() -> list[str]:
    """17. A broker that was down meanwhile starts alone on the copy, and claims the same ids; the others do not follow."""
    with Stage(
        brokers=4, factor=3, producer_id_block_size=1, zookeeper_session_timeout_ms=1500
    ) as stage:
        stage.producer().send(2)
        away = next(one for one in stage.machines.values() if not stage.holds(one))
        stage.kill(away)
        stage.until(lambda: stage.is_gone(away))
        old = stage.server.copy()
        stage.producer("later").send(3)
        stage.run(1.0)
        others = [one for one in stage.machines.values() if one is not away]
        for one in others:
            stage.kill(one)
        stage.server.restore(old)
        stage.start(away)
        assert away.broker is not None
        for _ in range(5):
            task = away.process and away.process.spawn(
                away.broker.producer_ids.wait_for_producer_id()
            )
            assert task is not None
            stage.until(task.done)
        for one in others:
            one.is_wanted = True
            one.start_again()
        stage.run(10.0)
        takers = [one.node for one in others if not stage.is_gone(one)]
        return [f"{takers} take part in a tree that has gone another way"] if takers else []


def a_clock_is_days_ahead() -> list[str]:
    """18. A broker with a new disk and a clock ten days ahead leads: to it all fresh records are old."""
    with Stage(log_segment_bytes=200, zookeeper_session_timeout_ms=1500) as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(4)
        wrong = stage.followers[0]
        stage.kill(wrong)
        stage.until(lambda: stage.is_gone(wrong))
        wrong.replace_disk()
        wrong.skew_ms = 10 * DAY_MS
        stage.start(wrong)
        stage.until(lambda: len(stage.state["isr"]) == 3)
        _have_lead(stage, wrong)
        producer.send(10)
        stage.run(30.0)
        start = stage.partition(wrong).log.log_start_offset
        deleted = [f"{wrong.node} has deleted what is below {start}"] if start else []
        return deleted + stage.findings()


def _have_lead(stage: Stage, machine: Machine) -> None:
    """Ends the leaders, one after the other, until the machine leads; then starts them again."""
    ended = []
    while stage.leader is not machine:
        leader = stage.leader
        stage.kill(leader)
        ended.append(leader)
        stage.until(partial(stage.is_led_by_another_than, leader))
    stage.start(*ended)
    stage.until(lambda: len(stage.state["isr"]) == 3)
