"""Replicas that start from scratch, clocks, names used again: hazards 10, 11, 12, 13 and 14."""

from __future__ import annotations

from tests.simulation.stage import Stage


def a_fresh_replica_leads() -> list[str]:
    """10. A replica with an empty disk gets the remaining log, and leads.

    The producers whose batches are all deleted continue where they were: no 59, no second copy.
    """
    with Stage(brokers=2, log_segment_bytes=200) as stage:
        gone, other = stage.producer("gone"), stage.producer("other")
        stage.consumer()
        repeated = gone.send(4)[-1]
        other.send(4)
        stage.delete_records()
        stage.run(6.0)
        assert stage.partition(stage.leader).log.log_start_offset == 8
        other.send(2)
        leader, (follower,) = stage.leader, stage.followers
        stage.kill(follower)
        follower.replace_disk()
        stage.start(follower)
        stage.until(lambda: len(stage.state["isr"]) == 2)
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        end = stage.end_of(follower)
        answer = gone.ask(follower, repeated)
        stage.until(answer.done)
        assert stage.end_of(follower) == end or stage.cluster.observations.findings, "stored twice"
        gone.send(2)
        stage.start(leader)
        return stage.findings()


def clocks_differ_by_hours() -> list[str]:
    """11. The follower's clock is two hours ahead, and producers are remembered for one hour.

    It was away, starts from the leader's state, and leads: no one is forgotten early.
    """
    settings = {"producer_id_expiration_ms": 3_600_000, "zookeeper_session_timeout_ms": 30_000}
    with Stage(brokers=2, log_segment_bytes=200, **settings) as stage:
        producer, other = stage.producer(), stage.producer("other")
        leader, (follower,) = stage.leader, stage.followers
        stage.kill(follower)
        follower.skew_ms += 7_200_000
        producer.send(3)
        other.send(6)
        stage.delete_records()
        stage.run(6.0)
        stage.start(follower)
        stage.until(lambda: len(stage.state["isr"]) == 2)
        stage.run(1200.0)
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        producer.send(1)
        other.send(1)
        stage.start(leader)
        return stage.findings()


def a_topic_comes_again() -> list[str]:
    """12. While a replica is away its topic is deleted and another of the same name created."""
    with Stage() as stage:
        first = stage.producer("first")
        first.send(5)
        away = stage.followers[0]
        stage.kill(away)
        stage.recreate_topic()
        second = stage.producer("second")
        sent = second.send(3)
        assert sent[0].offset == 0, "the old records are gone"
        stage.forget_everything_before(sent[0])
        stage.start(away)
        stage.until(lambda: stage.holds(away))
        second.send(2)
        return stage.findings()


def two_brokers_with_one_id() -> list[str]:
    """13. A second machine is started with the broker id of the first: it must not serve."""
    with Stage() as stage:
        producer = stage.producer()
        producer.send(2)
        leader = stage.leader
        impostor = stage.impostor_of(leader)
        impostor.start()
        stage.run(20.0)
        producer.send(2)
        assert impostor.service is None, "two brokers serve as one"
        impostor.is_wanted = False
        impostor.kill()
        return stage.findings()


def two_brokers_on_one_disk() -> list[str]:
    """13. A second broker is started on the data directory of the first: it must not open it."""
    with Stage() as stage:
        producer = stage.producer()
        producer.send(2)
        leader = stage.leader
        impostor = stage.impostor_of(leader)
        impostor.disk = leader.disk
        impostor.start()
        stage.run(10.0)
        producer.send(2)
        assert impostor.service is None, "two brokers share one disk"
        impostor.is_wanted = False
        impostor.end_without_its_locks()
        return stage.findings()


def the_log_start_overtakes_a_follower() -> list[str]:
    """14.

    The records that a follower would fetch next are deleted: it restarts at the leader's log start.
    """
    with Stage(log_segment_bytes=200) as stage:
        producer, idle = stage.producer(), stage.producer("idle")
        stage.consumer()
        idle.send(2)
        producer.send(2)
        leader, (behind, _) = stage.leader, stage.followers
        stage.part(leader, behind)
        producer.send(8)
        stage.until(lambda: behind.broker_id not in stage.state["isr"])
        stage.delete_records()
        stage.run(6.0)
        assert stage.partition(leader).log.first_offset > stage.end_of(behind)
        stage.join(leader, behind)
        stage.until(lambda: behind.broker_id in stage.state["isr"])
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        idle.send(1)
        producer.send(1)
        stage.start(leader)
        return stage.findings()


def the_log_start_hides_an_epoch() -> list[str]:
    """14. A deposed leader comes back, and the records that followed its last epoch are deleted already.

    The point where its log diverges from the leader's is unknown: it must not keep its producer
    state.
    """
    with Stage(brokers=2, log_segment_bytes=200) as stage:
        producer, other = stage.producer(), stage.producer("other")
        producer.send(2)
        other.send(1)
        leader, (follower,) = stage.leader, stage.followers
        stage.cut(leader, follower)
        retried = producer.begin(2)
        stage.until(lambda: stage.end_of(leader) == 5)
        stage.kill(leader)
        stage.cut(producer.client.name, follower)  # it comes back later
        stage.until(lambda: stage.is_led_by_another_than(leader))
        other.send(3)
        stage.mend(producer.client.name, follower)
        stage.until(lambda: all(one.acknowledged_at is not None for one in retried))
        other.send(3)
        stage.delete_records(5)
        stage.run(6.0)
        assert 3 < stage.partition(stage.leader).log.first_offset <= 5
        other.send(1)
        stage.start(leader)
        return stage.findings()
