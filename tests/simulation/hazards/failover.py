"""Leaders change, logs lose their ends: hazards 1, 5, 6, 7, 8, 9 and 19."""

from __future__ import annotations

import asyncio

from echoless.broker.cluster.member import ClusterMember
from echoless.broker.config.loading import LogFlush
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.protocol.errors import ErrorCode
from tests.simulation.machine import Machine
from tests.simulation.stage import COORDINATOR, SPOT, Stage


def two_quick_failovers() -> list[str]:
    """1. A follower that does not know the last high watermark restarts, and then has to lead.

    What it has above the high watermark that it knew was committed: cutting there loses it.
    """
    with Stage(brokers=2) as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(3)
        leader, (follower,) = stage.leader, stage.followers
        stage.run(2.0)
        producer.send(1)  # acknowledged; the follower will hear of it with its next answer
        stage.cut(leader, follower)
        assert stage.partition(follower).high_watermark < stage.end_of(follower)
        stage.kill(follower)
        stage.part(leader, COORDINATOR)  # it cannot take the follower out of the ISR
        stage.part(follower, leader)
        stage.start(follower)
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        producer.send(2)
        return stage.findings()


def a_follower_below_the_epoch_start() -> list[str]:
    """5. A new leader's high watermark lags; a follower that has reached it may still lack more.

    A leads; B and D are in sync; C is not. A's last batches are committed, which B cannot know when
    it becomes the leader while D is silent. C, at the high watermark that B knows, must not be in
    sync.
    """
    with Stage(brokers=4) as stage:
        a = stage.leader
        b, c, d = (stage.machines[i] for i in stage.state["isr"] if i != a.broker_id)
        producer = stage.producer()
        stage.consumer()
        producer.send(5)
        while stage.controller in (a, c):
            stage.depose(stage.controller)
        stage.run(1.5)
        stage.cut(a, c)
        stage.part(b, d)  # whichever of them leads will not hear from the other
        stage.cut(b, c)  # C may ask, and gets no answer
        stage.cut(d, c)
        last = producer.begin(2)
        stage.until(lambda: stage.end_of(b) == stage.end_of(d) == stage.end_of(a) == 7)
        stage.run(0.003)  # their fetches say so, and nothing comes back any more
        stage.cut(a, b)
        stage.cut(a, d)
        stage.until(lambda: all(one.acknowledged_at is not None for one in last))
        assert c.broker_id not in stage.state["isr"]
        stage.kill(a)
        stage.until(lambda: stage.is_gone(a))
        assert stage.controller_is_none_of(a, c)
        stage.cut(COORDINATOR, c)  # so that C asks the new leader when that knows its role
        stage.until(lambda: stage.is_led_by_another_than(a))
        stage.mend(COORDINATOR, c)
        new, silent = (b, d) if stage.leader is b else (d, b)
        stage.run(0.7)
        assert stage.partition(new).high_watermark < 7
        stage.kill(new, silent)
        stage.run(8.0)
        return stage.findings()


def a_newcomer_falls_behind_again() -> list[str]:
    """5. A follower has caught up; while the coordinator is asked about it, more is committed.

    Then it is in the ISR, and all others die: it must have what was acknowledged.
    """
    with Stage() as stage:
        producer = stage.producer()
        stage.consumer()
        leader, (other, newcomer) = stage.leader, stage.followers
        stage.cut(newcomer, leader)
        producer.send(2)
        stage.until(lambda: newcomer.broker_id not in stage.state["isr"])
        changes = _with_slow_questions(leader)
        stage.mend(newcomer, leader)
        stage.until(lambda: bool(changes._changes))
        stage.part(newcomer, leader)  # also the answer to a fetch that already waits there
        producer.begin(2)
        stage.until(lambda: newcomer.broker_id in stage.state["isr"])
        stage.kill(leader, other)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        return stage.findings()


def _with_slow_questions(leader: Machine) -> IsrChanges:
    """The leader's changes of the ISR, each of which now waits for the coordinator."""
    assert leader.broker is not None
    member = leader.broker.membership
    assert isinstance(member, ClusterMember)
    changes = member._isr_changes
    ask = changes._epochs._read

    async def ask_slowly(broker_id: int) -> int | None:
        await asyncio.sleep(0.3)
        return await ask(broker_id)

    changes._epochs._read = ask_slowly
    return changes


def the_last_replica_loses_power() -> list[str]:
    """6. Only one replica is in sync, and its machine loses power: `log_flush=commit` keeps all.

    With `log_flush=os` what was acknowledged may be gone, as documented: `losing_power_with_os`.
    """
    return _the_last_replica_loses_power(LogFlush.COMMIT)


def losing_power_with_os() -> list[str]:
    """6, as it is documented: what the system had not written yet is lost."""
    return _the_last_replica_loses_power(LogFlush.OS)


def _the_last_replica_loses_power(log_flush: LogFlush) -> list[str]:
    with Stage(brokers=2, log_flush=log_flush) as stage:
        producer = stage.producer()
        leader, (follower,) = stage.leader, stage.followers
        producer.send(2)
        stage.kill(follower)
        stage.until(lambda: stage.state["isr"] == [leader.broker_id])
        producer.send(3)
        stage.lose_power(leader)
        stage.start(follower)
        stage.run(8.0)
        assert stage.state["leader"] != follower.broker_id, "it lacks what was acknowledged"
        stage.start(leader)
        return stage.findings()


def a_checkpoint_above_the_log() -> list[str]:
    """7. The high watermark is on disk, the records below it are not: the power fails then.

    The follower must not believe that it has what its checkpoint speaks of, nor serve or cut by it.
    """
    with Stage(brokers=2, log_flush=LogFlush.OS) as stage:
        producer = stage.producer()
        stage.consumer()
        (follower,) = stage.followers
        producer.send(4)
        stage.run(1.0)
        broker = follower.broker
        assert broker is not None
        assert stage.partition(follower).high_watermark == 4
        broker.logs.checkpoint({SPOT: 4})
        stage.lose_power(follower)
        producer.begin(2)
        stage.start(follower)
        leader = stage.leader
        assert stage.partition(follower).high_watermark <= stage.end_of(follower)
        stage.until(lambda: stage.state["isr"] == [leader.broker_id, follower.broker_id])
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        producer.send(1)
        return stage.findings()


def a_repeat_above_the_high_watermark() -> list[str]:
    """8. A repeat must wait for its original: success for one that is cut off later is a lost record."""
    with Stage() as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(2)
        leader = stage.leader
        for follower in stage.followers:
            stage.part(leader, follower)
        (batch,) = producer.begin(1)
        stage.until(lambda: stage.end_of(leader) == 3)
        stage.cut(producer.client.name, leader)
        repeat = stage.producer("q").ask(leader, batch)
        stage.run(1.4)
        stage.part(leader, COORDINATOR)
        stage.run(0.5)
        assert not repeat.done() or repeat.result() != ErrorCode.NONE
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.until(lambda: batch.acknowledged_at is not None)
        return stage.findings()


def an_old_repeat_above_the_high_watermark() -> list[str]:
    """8. So must a repeat older than the window, since clients take 46 for success as well."""
    with Stage(replica_lag_time_max_ms=20_000) as stage:
        producer = stage.producer(in_flight_max=8)
        stage.consumer()
        producer.send(1)
        leader = stage.leader
        for follower in stage.followers:
            stage.part(leader, follower)
        batches = producer.begin(8)
        stage.until(lambda: len(batches[0].attempts) == 1)  # the time of its request is over
        stage.run(1.0)
        stage.part(leader, COORDINATOR)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        return stage.findings()


def a_retry_before_the_original() -> list[str]:
    """9. What the new leader has never seen is new to it: stored once, and the old copy is cut off."""
    with Stage() as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(2)
        leader = stage.leader
        for follower in stage.followers:
            stage.cut(leader, follower)
        batches = producer.begin(3)
        stage.until(lambda: stage.end_of(leader) == 5)
        stage.kill(leader)
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        codes = {code for one in batches for _, _, code in one.attempts}
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER not in codes
        stage.start(leader)
        return stage.findings()


def a_batch_overtakes_another() -> list[str]:
    """9. A batch reaches the new leader before the one in front of it, which only the old leader had."""
    with Stage() as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(2)
        leader = stage.leader
        for follower in stage.followers:
            stage.cut(leader, follower)
        batches = producer.begin(3)
        stage.until(lambda: stage.end_of(leader) == 5)
        stage.part(producer.client.name, leader)
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        hasty = stage.producer("q").ask(stage.leader, batches[2])
        stage.until(hasty.done)
        assert hasty.result() == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was called a gap"
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        return stage.findings()


def a_leader_leads_on() -> list[str]:
    """19. The next epoch has the same leader while batches wait for replicas: a 6 would be taken for success."""
    with Stage(replica_lag_time_max_ms=20_000) as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(1)
        leader, followers = stage.leader, stage.followers
        for follower in followers:
            stage.cut(leader, follower)
        batches = producer.begin(3)
        stage.until(lambda: stage.end_of(leader) == 4)
        for _ in range(2):
            stage.elect(leader)
        for follower in followers:
            stage.mend(leader, follower)
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        codes = {code for one in batches for _, _, code in one.attempts}
        assert ErrorCode.NOT_LEADER_OR_FOLLOWER not in codes, f"refused with {codes}"
        return stage.findings()


def a_leader_leads_again() -> list[str]:
    """19. Another broker leads in between, and has other records where the batch was that waits."""
    with Stage(replica_lag_time_max_ms=20_000) as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(1)
        leader, followers = stage.leader, stage.followers
        for follower in followers:
            stage.cut(leader, follower)
        (batch,) = producer.begin(1)
        stage.until(lambda: stage.end_of(leader) == 2)
        stage.elect(followers[0])
        stage.until(lambda: not stage.partition(leader).is_leader)
        stage.cut(producer.client.name, followers[0])
        for follower in followers:
            stage.mend(leader, follower)
        stage.producer("q").send(1)
        stage.elect(leader)
        stage.mend(producer.client.name, followers[0])
        stage.until(lambda: batch.acknowledged_at is not None)
        return stage.findings()


def a_doubt_passes() -> list[str]:
    """19. The coordinator falls silent while batches wait, and answers again before the session has ended."""
    with Stage(replica_lag_time_max_ms=20_000) as stage:
        producer = stage.producer()
        stage.consumer()
        producer.send(1)
        leader, followers = stage.leader, stage.followers
        for follower in followers:
            stage.cut(leader, follower)
        batches = producer.begin(3)
        stage.until(lambda: stage.end_of(leader) == 4)
        assert leader.service is not None
        metrics = leader.service.broker.metrics
        stage.part(leader, COORDINATOR)
        stage.until(lambda: metrics.leadership_doubts_total > 0)
        stage.join(leader, COORDINATOR)
        for follower in followers:
            stage.mend(leader, follower)
        stage.until(lambda: all(one.acknowledged_at is not None for one in batches))
        codes = {code for one in batches for _, _, code in one.attempts}
        assert ErrorCode.NOT_LEADER_OR_FOLLOWER not in codes, f"refused with {codes}"
        assert stage.state["leader_epoch"] == 0
        return stage.findings()
