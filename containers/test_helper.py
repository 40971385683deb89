"""`echoless.testing.container`, as a test of a producer uses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from containers.images import ECHOLESS
from containers.podman import environment
from echoless.testing import BrokerContainer, BrokerStartError, Echoless, container


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman, with what it needs on this machine."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def echoless() -> Iterator[Echoless]:
    """A broker in a container, with two partitions for each topic."""
    with container(ECHOLESS, {"num_partitions": "2"}, engine="podman") as running:
        yield running


def _send(echoless: Echoless, *values: str) -> None:
    options = {"bootstrap.servers": echoless.bootstrap_servers, "socket.timeout.ms": 1000}
    producer = Producer({**options, "enable.idempotence": True})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(60) == 0


def test_a_lost_acknowledgement_in_a_container(echoless: Echoless) -> None:
    """Faults, settings and the comparison with what is stored, as with a broker in a process."""
    with echoless.faults.drop_responses(times=1, topic="orders") as lost:
        _send(echoless, "paid", "sent")
        assert lost.hits == 1
    echoless.assert_exactly_once("orders", ["paid", "sent"], ordered=False)
    assert len(echoless.admin.get("/topics")["topics"][0]["partitions"]) == 2


def test_a_killed_container_starts_again_with_its_data(echoless: Echoless) -> None:
    """On the same ports, so that clients find it again."""
    _send(echoless, "before")
    servers = echoless.bootstrap_servers
    echoless.broker.kill()
    assert not echoless.broker.is_running
    echoless.broker.start()
    assert echoless.bootstrap_servers == servers
    _send(echoless, "after")
    echoless.assert_exactly_once("orders", ["before", "after"], ordered=False)
    assert echoless.broker.stop() == 0


def test_a_container_that_cannot_start_says_why() -> None:
    """With the broker's own words, and without leaving it behind."""
    broker = BrokerContainer(ECHOLESS, {"log_flush": "sometimes"}, engine="podman")
    with pytest.raises(BrokerStartError, match="LOG_FLUSH: takes os or commit"):
        broker.__enter__()
    assert not broker.is_running
