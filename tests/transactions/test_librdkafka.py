"""Transactions of librdkafka, which speaks the first generation of their protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.support.cluster import Cluster
from tests.support.echoless import Echoless
from tests.transactions.librdkafka import (
    TOPIC,
    create_topic,
    read,
    read_until,
    send,
    transactional,
)

FIRST = [f"first-{number}" for number in range(9)]
SECOND = [f"second-{number}" for number in range(9)]


@contextmanager
def running_cluster(directory: Path, **settings: str) -> Iterator[Cluster]:
    """Three brokers with the topic `orders`."""
    with Cluster(directory, settings) as cluster:
        cluster.start()
        create_topic(cluster.bootstrap, replicas=3)
        yield cluster


@pytest.fixture(params=["one", pytest.param("three", marks=pytest.mark.slow)])
def bootstrap(
    request: pytest.FixtureRequest, start_echoless: Callable[..., Echoless], tmp_path: Path
) -> Iterator[str]:
    """One broker, or a cluster of three, with the topic `orders`."""
    if request.param == "one":
        address = start_echoless().kafka_address
        create_topic(address)
        yield address
        return
    with running_cluster(tmp_path) as cluster:
        yield cluster.bootstrap


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str) -> None:
    """Until the end of a transaction only readers of uncommitted records see it."""
    producer = transactional(bootstrap)
    producer.begin_transaction()
    send(producer, FIRST)
    assert read(bootstrap) == []
    assert read(bootstrap, committed=False) == FIRST
    producer.commit_transaction()
    read_until(bootstrap, FIRST)
    producer.begin_transaction()
    send(producer, SECOND)
    producer.abort_transaction()
    assert read(bootstrap) == FIRST
    assert read(bootstrap, committed=False) == sorted(FIRST + SECOND)
    producer.begin_transaction()
    send(producer, SECOND)
    producer.commit_transaction()
    read_until(bootstrap, FIRST + SECOND)


def test_a_second_instance_fences_the_first(bootstrap: str) -> None:
    """The open transaction of the first one is aborted, and it gets no further."""
    old = transactional(bootstrap)
    old.begin_transaction()
    send(old, FIRST)
    new = transactional(bootstrap)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction()
    assert fenced.value.args[0].fatal()
    new.begin_transaction()
    send(new, SECOND)
    new.commit_transaction()
    read_until(bootstrap, SECOND)


def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str) -> None:
    """A reader of committed records gets past it; its producer may go on after it has aborted."""
    producer = transactional(bootstrap, timeout_ms=6000)  # which its records must not take
    other = transactional(bootstrap, "other")
    producer.begin_transaction()
    send(producer, FIRST)
    other.begin_transaction()
    send(other, SECOND)
    other.commit_transaction()
    read_until(bootstrap, SECOND)
    with pytest.raises(KafkaException):
        producer.commit_transaction()


@pytest.mark.slow
def test_the_coordinator_and_leaders_are_killed_between_the_steps(tmp_path: Path) -> None:
    """A broker is killed in the midst of each of six transactions: exactly the committed ones are read."""
    with running_cluster(tmp_path, zookeeper_session_timeout_ms="6000") as cluster:
        producer = transactional(cluster.bootstrap)
        committed: list[str] = []
        for number in range(6):
            values = [f"{number}-{one}" for one in range(6)]
            producer.begin_transaction()
            send(producer, values)
            broker_id = (
                cluster.leader("__transaction_state", number % 8)
                if number % 2
                else cluster.leader(TOPIC, number % 3)
            )
            cluster.kill(broker_id)
            if number % 3:
                producer.commit_transaction(60)
                committed += values
            else:
                producer.abort_transaction(60)
            cluster.start_broker(broker_id)
            cluster.wait_until(cluster.is_healed)
        read_until(cluster.bootstrap, committed)
