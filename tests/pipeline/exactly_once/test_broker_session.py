"""Connections outlive a task of a Python worker, and nothing else does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from echoless.broker.config.loading import Address
from echoless.broker.network.server import Server
from echoless.client.cluster import parse_addresses
from echoless.client.security import Login, Security
from echoless.client.settings import DEFAULT_SETTINGS
from echoless.pipeline.exactly_once import broker_session
from echoless.pipeline.exactly_once.broker_session import BrokerSession, close_kept, session_of
from echoless.protocol.sasl.mechanism import Mechanism
from tests.pipeline.exactly_once.attempts import TOPIC, Attempts, TaskDiedError, all_values, rows
from tests.pipeline.exactly_once.broker_thread import BrokerThread

ELSEWHERE = "127.0.0.1:1"
SECRET = Security(login=Login(mechanism=Mechanism.PLAIN, user="alice", password="one"))
WITHIN_S = 30


@pytest.fixture(autouse=True)
def _none_kept() -> None:
    close_kept()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def accepted(broker: BrokerThread) -> int:
    return broker.running.broker.metrics.connections_accepted_total


def dying(*batches: Any) -> Iterator[Any]:
    yield from batches
    raise TaskDiedError


def port_of(broker: BrokerThread) -> int:
    return parse_addresses(broker.address)[0].port


def test_a_later_task_uses_the_connections_of_an_earlier_one(attempts, broker):
    """It asks for the topic anew: what was known may have changed since."""
    attempts.run([rows(100)])
    connections, metadata = accepted(broker), broker.running.broker.metrics.requests["metadata"]
    attempts.run([rows(100, 100)], 1)
    assert accepted(broker) == connections
    assert broker.running.broker.metrics.requests["metadata"] == metadata + 1
    broker.grow(TOPIC, 7)
    attempts.run([rows(100, 200)], 2)
    assert attempts.begins(2)[0].partition_counts == {TOPIC: 7}
    assert accepted(broker) == connections + 1  # the one that has added partitions


def test_two_tasks_at_once_have_a_session_each():
    """A worker of Spark's has one task at a time, but nothing depends on it."""
    with session_of(ELSEWHERE, DEFAULT_SETTINGS) as first:
        with session_of(ELSEWHERE, DEFAULT_SETTINGS) as second:
            assert second is not first
        with session_of(ELSEWHERE, DEFAULT_SETTINGS) as third:
            assert third is second


@pytest.mark.parametrize(
    ("servers", "settings"),
    [
        ("127.0.0.1:2", DEFAULT_SETTINGS),
        (ELSEWHERE, replace(DEFAULT_SETTINGS, request_timeout_s=7)),
        (ELSEWHERE, replace(DEFAULT_SETTINGS, security=SECRET)),
    ],
)
def test_other_servers_or_credentials_are_another_session(servers, settings):
    """A worker serves queries of several users."""
    with session_of(ELSEWHERE, DEFAULT_SETTINGS) as first:
        pass
    with session_of(servers, settings) as other:
        assert other is not first
    with session_of(ELSEWHERE, DEFAULT_SETTINGS) as again:
        assert again is first


def test_after_an_error_the_connections_are_closed(attempts, broker):
    """Requests of the task may still be on their way."""
    attempts.run([rows(100)])
    connections = accepted(broker)
    with pytest.raises(TaskDiedError):
        attempts.run(dying(rows(100, 100)), 1)
    attempts.run([rows(100, 100)], 1)
    assert accepted(broker) == connections + 1
    assert attempts.stored() == all_values(200)


def test_a_broker_that_was_restarted_meanwhile_is_connected_to_again(tmp_path):
    """On the same port, with the same data."""
    with BrokerThread(tmp_path / "broker", num_partitions=3) as broker:
        attempts = Attempts(broker, tmp_path / "ledger")
        attempts.run([rows(100)])
        port = port_of(broker)
    listen = (Address("127.0.0.1", port),)
    with BrokerThread(tmp_path / "broker", num_partitions=3, listen=listen) as again:
        attempts.broker = again
        attempts.run([rows(100, 100)], 1)
        assert attempts.stored() == all_values(200)
    identities = [attempts.begins(batch_id)[0].identity for batch_id in (0, 1)]
    assert identities[0] == identities[1]


def test_a_worker_serves_two_clusters_in_turn(attempts, broker, tmp_path):
    """Each task reaches its own, over connections that are kept."""
    with BrokerThread(tmp_path / "other", num_partitions=3) as other:
        there = Attempts(other, tmp_path / "other-ledger")
        for batch_id in range(3):
            attempts.run([rows(10, 10 * batch_id)], batch_id)
            there.run([rows(10, 500 + 10 * batch_id)], batch_id)
        connections = accepted(broker), accepted(other)
        assert attempts.stored() == all_values(30)
        assert there.stored() == all_values(30, 500)
    assert connections == (1, 1)


def test_another_cluster_at_the_same_address_is_noticed(tmp_path):
    """The next batch begins there with an id of that cluster."""
    with BrokerThread(tmp_path / "one", num_partitions=3) as broker:
        attempts = Attempts(broker, tmp_path / "ledger")
        attempts.run([rows(100)])
        listen = (Address("127.0.0.1", port_of(broker)),)
    with BrokerThread(tmp_path / "two", num_partitions=3, listen=listen) as other:
        attempts.broker = other
        attempts.run([rows(100, 100)], 1)
        assert attempts.stored() == all_values(100, 100)
    assert attempts.begins(1)[0].cluster_id != attempts.begins(0)[0].cluster_id


def test_a_connection_that_the_broker_has_closed_is_opened_again(attempts, broker, monkeypatch):
    """Brokers close what was idle for long (connections.max.idle.ms)."""
    made, make = [], Server.make_connection
    monkeypatch.setattr(
        Server,
        "make_connection",
        lambda *given: made.append(make(*given)) or made[-1],
    )
    attempts.run([rows(100)])
    assert len(made) == 1
    broker.call_soon(made[0].close, "silent for long")
    with session_of(attempts.options.bootstrap_servers, attempts.options.settings) as session:
        wait_until(lambda: not is_connected(session, broker))
    attempts.run([rows(100, 100)], 1)
    assert len(made) == 2
    assert attempts.stored() == all_values(200)


def is_connected(session: BrokerSession, broker: BrokerThread) -> bool:
    cluster = session.cluster(auto_create_topics=False)
    return cluster.open_connection(parse_addresses(broker.address)[0]) is not None


def test_a_session_that_nobody_uses_is_closed(attempts, broker, monkeypatch):
    """Brokers have a limit of connections, and workers may live for days."""
    monkeypatch.setattr(broker_session, "KEPT_S", 0.05)
    monkeypatch.setattr(broker_session, "_process", broker_session._Process())
    attempts.run([rows(100)])
    metrics = broker.running.broker.metrics
    wait_until(lambda: metrics.connections_open == 0)
    attempts.run([rows(100, 100)], 1)
    assert attempts.stored() == all_values(200)


def test_a_forked_process_has_connections_of_its_own(attempts, broker):
    """Those of its parent have no thread there; and the parent's stay in order."""
    attempts.run([rows(100)])
    connections = accepted(broker)
    child = os.fork()
    if not child:
        try:
            attempts.run([rows(100, 100)], 1)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert accepted(broker) == connections + 1
    attempts.run([rows(100, 200)], 2)
    assert accepted(broker) == connections + 1
    assert attempts.stored() == all_values(300)


def test_few_are_kept():
    """A worker that serves many queries does not collect connections."""
    for port in range(1, 10):
        with session_of(f"127.0.0.1:{port}", DEFAULT_SETTINGS):
            pass
    assert len(broker_session._process.kept) == broker_session.KEPT_MAX
