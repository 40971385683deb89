"""Each kind of trigger with librdkafka, whose retries count as matches like anybody's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from echoless.testkit.echoless import Echoless
from tests.testkit.test_reserve import PATIENCE_S

pytestmark = pytest.mark.slow

REFUSED = {"type": "error", "code": "NOT_LEADER_OR_FOLLOWER"}


@pytest.fixture(scope="module")
def echoless() -> Iterator[Echoless]:
    """One broker for the file, on which sessions may be short."""
    settings = {"group_min_session_timeout_ms": "100", "auto_create_topics_enable": "false"}
    with Echoless(settings) as running:
        yield running


@pytest.fixture
def producer(echoless: Echoless) -> Producer:
    return Producer({**echoless.client_options, "enable.idempotence": True, "retry.backoff.ms": 1})


def send_one_by_one(producer: Producer, topic: str, count: int) -> None:
    """Sends each record once the one before is acknowledged."""
    for number in range(count):
        producer.produce(topic, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("schedule", "counts"),
    [
        ({"nth": [2, 4]}, (4, 2)),
        ({"times": 3}, (3, 3)),
        ({"every": 3}, (8, 2)),
        ({"skip": 5, "times": 1}, (6, 1)),
    ],
)
def test_requests_are_counted_with_their_retries(
    echoless: Echoless, producer: Producer, schedule: dict[str, Any], counts: tuple[int, int]
) -> None:
    """Six records, and one more request for each that was refused; a rule that is used up counts no more."""
    topic = echoless.topic()
    match = {"api": "produce", "topic": topic}
    with echoless.faults.rule(REFUSED, match=match, **schedule) as rule:
        send_one_by_one(producer, topic, 6)
    assert (rule.seen, rule.hits) == counts
    echoless.assert_exactly_once(topic, [str(number) for number in range(6)])


def test_the_same_seed_strikes_the_same_requests(echoless: Echoless, producer: Producer) -> None:
    """In two runs, on two topics."""
    found = []
    for _ in range(2):
        topic = echoless.topic()
        match = {"api": "produce", "topic": topic}
        with echoless.faults.rule(REFUSED, match=match, probability=0.4, seed=5) as rule:
            send_one_by_one(producer, topic, 8)
        found.append((rule.seen, rule.hits))
    assert found[0] == found[1]
    assert found[0][0] == 8 + found[0][1] > 8


def test_an_answer_is_held_until_it_is_released(echoless: Echoless, producer: Producer) -> None:
    """The record is stored, and its producer hears of it later."""
    topic = echoless.topic()
    with echoless.faults.hold_responses(topic=topic, times=1) as held:
        producer.produce(topic, b"a")
        producer.poll(0)
        held.wait_until_held()
        assert [one.value for one in echoless.records(topic)] == [b"a"]
        assert len(producer) == 1
        assert held.release() == 1
        assert producer.flush(PATIENCE_S) == 0


def test_an_error_of_the_broker_itself(echoless: Echoless, producer: Producer) -> None:
    """The answer that there is no such topic is held up, once.

    Closing the connection instead would lose the request now and then: librdkafka forgets
    its only broker when that goes down, and what was to be sent to it again.
    """
    match = {"api": "metadata", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    late = {"type": "delay_response", "ms": 1}
    with echoless.faults.rule(late, match=match, times=1) as rule:
        found = producer.list_topics("nowhere", timeout=PATIENCE_S)
    assert found.topics["nowhere"].error is not None
    assert rule.hits == 1


def test_the_state_of_a_transaction(echoless: Echoless) -> None:
    """The commit of an open transaction is lost once; its repetition finds it open, or prepared."""
    topic = echoless.topic()
    options = {**echoless.client_options, "transactional.id": "t", "socket.timeout.ms": 1000}
    producer = Producer(options)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    match = {"api": "end_txn", "transaction_state": "Ongoing"}
    with echoless.faults.rule("drop_request", match=match, times=1) as rule:
        producer.commit_transaction(PATIENCE_S)
    assert (rule.seen, rule.hits) == (1, 1)
    assert [one.value for one in echoless.records(topic)] == [b"a"]


def consumer(echoless: Echoless, topic: str, client: str, group: str) -> Consumer:
    made = Consumer(
        {
            **echoless.client_options,
            "group.id": group,
            "client.id": client,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 1000,
            "heartbeat.interval.ms": 100,
        }
    )
    made.subscribe([topic])
    return made


def assigned(member: Consumer) -> int:
    """The number of its partitions, after it has had a moment to get some."""
    member.poll(0.05)
    return len(member.assignment())


def test_the_state_of_a_group(echoless: Echoless) -> None:
    """Heartbeats are counted once the group is stable."""
    topic = echoless.topic()
    member = consumer(echoless, topic, "c", "stable")
    match = {"api": "heartbeat", "group": "stable", "group_state": "Stable"}
    with echoless.faults.rule({"type": "delay_response", "ms": 1}, match=match) as rule:
        until(lambda: assigned(member) == 1)
        rule.wait_for_hits(2)
    member.close()


def test_a_client_is_kept_away_until_its_session_ends(echoless: Echoless) -> None:
    """Its partitions go to the other member; then it is let in again, and both have one."""
    topic = echoless.topic(partitions=2)
    first = consumer(echoless, topic, "first", "dark")
    second = consumer(echoless, topic, "second", "dark")
    until(lambda: (assigned(first), assigned(second)) == (1, 1))
    with echoless.faults.rule("blackhole", match={"client_id": "first"}) as rule:
        until(lambda: assigned(second) == 2)
        until(lambda: rule.document()["exhausted"])
        until(lambda: (assigned(first), assigned(second)) == (1, 1))
    first.close()
    second.close()
