"""Transactions in trouble, on purpose: the hazards that random histories cannot meet, or meet seldom.

Numbered as in docs/transactions; the others are met at random (`tests/simulation/transactions/sometimes.py`) or have vectors.
"""

from __future__ import annotations

from tests.simulation.hazards.transaction_stage import SETTINGS, Transactions, end_late
from tests.simulation.stage import Stage
from tests.simulation.transactions.writer import BumpError
from tests.transactions.history.events import Outcome

_EXPIRY_S = 3700.0
"""Ids expire once an hour."""


def a_late_end_after_the_coordinator_has_moved_twice() -> list[str]:
    """H1. An EndTxn lies in a connection from before the coordinator moved away and back, and meets the next transaction."""
    with Stage(**SETTINGS) as stage:
        transactions = Transactions(stage)
        producer = transactions.producer(1)
        producer.begin()
        first, second = transactions.coordinator, None
        late = transactions.port("late")
        late.client.connection(first.node)
        producer.send()
        second = next(one for one in stage.machines.values() if one is not first)
        transactions.move_to(second)
        if producer.commit() is not Outcome.OK:
            transactions.findings.append("the commit failed at the second coordinator")
        transactions.move_to(first)
        producer.send()
        code = end_late(stage, late, first, producer.identity)
        if code is not None:
            transactions.findings.append(f"a late end is answered {code}")
        producer.send()
        producer.commit()
        return transactions.judged()


def a_decision_that_no_replica_has() -> list[str]:
    """H5. A commit is in its coordinator's log alone when that is killed: no one was answered, no marker was sent."""
    with Stage(**SETTINGS) as stage:
        transactions = Transactions(stage)
        producer = transactions.producer(2)
        producer.begin()
        producer.send()
        transactions.place_apart()
        coordinator = transactions.coordinator
        for other in stage.machines.values():
            if other is not coordinator:
                stage.cut(coordinator, other)
        committed = producer.start_commit()
        stage.run(0.4)
        stage.kill(coordinator)
        for other in stage.machines.values():
            if other is not coordinator:
                stage.mend(coordinator, other)
        stage.until(lambda: transactions.is_led(but_by=coordinator))
        stage.until(committed.done)
        return transactions.judged()


def a_marker_is_lost_with_its_leader() -> list[str]:
    """H6. A marker is in the log of a leader alone when that is killed: the coordinator sends it again."""
    with Stage(brokers=4, factor=2, **SETTINGS) as stage:
        transactions = Transactions(stage)
        producer = transactions.producer(1)
        producer.begin()
        producer.send()
        transactions.place_apart()
        leader = stage.leader
        followers = stage.followers
        for follower in followers:
            stage.cut(leader, follower)
        end = stage.end_of(leader)
        committed = producer.start_commit()
        stage.until(lambda: stage.end_of(leader) > end)
        stage.run(0.2)
        stage.kill(leader)
        for follower in followers:
            stage.mend(leader, follower)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        stage.until(committed.done)
        return transactions.judged()


def a_coordinator_wakes_with_old_markers() -> list[str]:
    """H7. A coordinator sleeps with markers that it has to send; its successor ends the transaction, and the next begins."""
    with Stage(brokers=4, factor=2, **SETTINGS) as stage:
        transactions = Transactions(stage)
        producer = transactions.producer(1)
        producer.begin()
        producer.send()
        transactions.place_apart()
        old, leader = transactions.coordinator, stage.leader
        stage.cut(old, leader)
        committed = producer.start_commit()
        stage.until(committed.done)
        stage.break_connections(old)
        stage.run(0.01)  # the marker waits to be sent again
        assert old.process is not None
        old.process.pause()
        stage.until(lambda: transactions.is_led(but_by=old))
        partition = transactions.ends()
        stage.until(lambda: partition.last_stable_offset == partition.log.log_end_offset)
        producer.send()
        stage.mend(old, leader)
        old.process.resume()
        stage.run(3.0)
        producer.send()
        producer.commit()
        return transactions.judged()


def too_few_replicas() -> list[str]:
    """H13. The timeout comes while too few replicas of the state are in sync: it is tried again, and the broker goes on."""
    with Stage(min_insync_replicas=2, **SETTINGS) as stage:
        transactions = Transactions(stage)
        producer = transactions.producer(2, timeout_ms=8000)
        producer.begin()
        producer.send()
        followers = [one for one in stage.machines.values() if one is not transactions.coordinator]
        stage.kill(*followers)
        stage.run(15.0)
        stage.start(*followers)
        return transactions.judged()


def an_id_expires() -> list[str]:
    """H15. A session is idle until its id is forgotten; then another instance has it."""
    with Stage(brokers=1, transactional_id_expiration_ms=60_000, **SETTINGS) as stage:
        transactions = Transactions(stage)
        producer, successor = transactions.producer(1), transactions.producer(1, "v")
        producer.begin()
        producer.send()
        producer.commit()
        stage.run(_EXPIRY_S)
        successor.begin()
        if successor.identity.producer_id == producer.identity.producer_id:
            transactions.findings.append("the id was not forgotten")
        successor.send()
        try:
            producer.send()
            transactions.findings.append("a session whose id has expired goes on")
        except BumpError:
            producer.one = None
        successor.commit()
        return transactions.judged()


def records_are_deleted_under_a_transaction() -> list[str]:
    """H17. The first records of an open transaction are deleted: readers are held back at the log start until it ends."""
    with Stage(**SETTINGS) as stage:
        transactions = Transactions(stage)
        producer = transactions.producer(2)
        producer.begin()
        producer.send(2)
        producer.send(2)
        stage.delete_records(3)
        partition = transactions.ends()
        stable = partition.last_stable_offset
        if stable != partition.log.log_start_offset:
            transactions.findings.append(f"stable up to {stable} while a transaction is open")
        leader = stage.leader
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader))
        producer.commit()
        partition = transactions.ends()
        stage.until(lambda: partition.last_stable_offset == partition.log.log_end_offset)
        return transactions.findings
