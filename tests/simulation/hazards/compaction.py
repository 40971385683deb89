"""Cleaning beside fail-overs: hazards H8 to H11 of compacted topics.

Promises C1 (what cleaning leaves is the table), C2 (decisions are as without it) and C3 (a crash leaves old or new).
"""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.checkers.compacted import rows_of
from tests.simulation.checkers.logs import read_batches
from tests.simulation.clients import NONE
from tests.simulation.machine import Machine
from tests.simulation.stage import COORDINATOR, Stage

COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS: Final[dict[str, Any]] = {
    "log_cleaner_backoff_ms": 100,
    "replica_lag_time_max_ms": 20_000,
    "config": COMPACT,
}
CLEANED_S: Final = 10.0
"""Until the recovery point on disk has followed, and what is below it is cleaned."""


def an_end_is_cut_off_after_cleaning() -> list[str]:
    """H8. A leader's last records are its alone: they replace nothing that is committed, for they go again."""
    with Stage(**SETTINGS, log_segment_bytes=200) as stage:
        producer, hasty = stage.producer(key=b"k"), stage.producer("hasty", key=b"k", acks=1)
        producer.send(4)
        leader = stage.leader
        stage.until(lambda: not stage.doubts_its_clock(leader))  # else nothing would be cleaned
        for follower in stage.followers:
            stage.part(leader, follower)
        hasty.send(6)
        stage.run(CLEANED_S)
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.start(leader)
        return stage.findings()


def a_hole_hides_the_beginning_of_an_epoch() -> list[str]:
    """H9. The first records of an epoch are cleaned away, and a new replica leads that never saw them.

    An earlier leader comes back with records of its own in their place.
    """
    with Stage(**SETTINGS, log_segment_bytes=1000) as stage:
        stage.producer("first", key=b"first").send(3)
        producer, hasty = stage.producer(key=b"k"), stage.producer("hasty", key=b"other", acks=1)
        old = stage.leader
        for follower in stage.followers:
            stage.part(old, follower)
        stage.part(old, COORDINATOR)
        hasty.send(3)
        stage.kill(old)
        stage.until(lambda: stage.is_led_by_another_than(old))
        producer.send(24)
        stage.run(CLEANED_S)
        fresh = _replaced(stage, stage.followers[0])
        middle = stage.leader
        stage.kill(middle)
        stage.until(lambda: stage.leader is fresh and stage.partition(fresh).is_leader)
        for other in (fresh, middle, COORDINATOR):
            stage.join(old, other)
        stage.start(old)
        return stage.findings()


def a_fresh_replica_of_a_cleaned_log_leads() -> list[str]:
    """H10. Batches whose records were all replaced are sent again, to a replica that copied what is left of them."""
    with Stage(**SETTINGS, brokers=2, log_segment_bytes=200) as stage:
        producer = stage.producer(key=b"k")
        batches = producer.send(10)
        stage.run(CLEANED_S)
        assert all(_is_replaced(stage, batch.offset) for batch in batches[-5:-3])
        leader = stage.leader
        fresh = _replaced(stage, stage.followers[0])
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        end = stage.end_of(fresh)
        answer = producer.ask(fresh, batches[-4])
        stage.until(answer.done)
        if (answer.result(), stage.end_of(fresh)) != (NONE, end):
            stage.cluster.observations.find(f"a repeat was answered {answer.result()}")
        producer.send(2)
        stage.start(leader)
        return stage.findings()


def segments_end_in_holes() -> list[str]:
    """H11. The last batches of segments are replaced by later ones; brokers start again, and followers ask there."""
    with Stage(**SETTINGS, log_segment_bytes=400) as stage:
        producer = stage.producer(key=b"k")
        producer.send(200)  # more segments than become one
        stage.run(CLEANED_S)
        leader = stage.leader
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.start(leader)
        _replaced(stage, stage.followers[0])
        return stage.findings()


def _replaced(stage: Stage, machine: Machine) -> Machine:
    """The machine once it has an empty disk, has copied everything and is in sync."""
    stage.kill(machine)
    stage.until(lambda: stage.is_gone(machine))
    machine.replace_disk()
    stage.start(machine)
    stage.until(lambda: machine.broker_id in stage.state["isr"])
    stage.until(lambda: stage.end_of(machine) == stage.end_of(stage.leader))
    return machine


def _is_replaced(stage: Stage, offset: int | None) -> bool:
    """Whether the leader's log has no record at this offset any more."""
    assert offset is not None
    log = stage.partition(stage.leader).log
    data = log.read(offset, 1, log.log_end_offset)
    return offset not in rows_of(read_batches(bytes(data)))
