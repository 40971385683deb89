"""The image with a published port, and in a network of containers: addresses are set when the port is known."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from containers.images import ECHOLESS
from containers.podman import Container, podman
from containers.records import Sender, assert_exactly_once, read_all
from echoless.testkit.admin import Admin

RunBroker = Callable[..., Container]
COUNT = 200


class ContainerNetwork(NamedTuple):
    """A network of containers, and the address that this host has in it."""

    name: str
    gateway: str


@pytest.fixture
def network() -> Iterator[ContainerNetwork]:
    """A network that is gone after the test."""
    name = f"echoless-test-{uuid.uuid4().hex[:8]}"
    podman("network", "create", name)
    (found,) = json.loads(podman("network", "inspect", name))
    yield ContainerNetwork(name, found["subnets"][0]["gateway"])
    podman("network", "rm", "--force", name)


def advertise(broker: Container, **change: Any) -> None:
    """Sets the addresses that clients of the broker are given."""
    Admin(broker.port(8080)).put("/listeners/PLAINTEXT", change)


def sent_from_here(address: str) -> None:
    """Sends records from this host, and reads each once."""
    sender = Sender(address, "orders")
    try:
        sender.wait_for(COUNT)
        sent = sender.finish()
    finally:
        sender.abandon()
    assert_exactly_once(read_all(address, "orders"), sent)


def sent_from_a_container(network: ContainerNetwork, topic: str) -> None:
    """Sends and reads a record in a container of the network, where the broker is called `kafka`."""
    options = ("run", "--rm", "--interactive", "--network", network.name, ECHOLESS)
    place = ("--bootstrap-server", "kafka:9092")
    podman(*options, "produce", topic, *place, stdin=b"one\n")
    assert podman(*options, "consume", topic, *place, "--from", "earliest") == "one"


def test_host_to_container(run_broker: RunBroker) -> None:
    """Any free port is published; the image's own address would lead to another one."""
    broker = run_broker()
    published = broker.port(9092)
    advertise(broker, advertise=published)
    sent_from_here(published)


def test_container_to_container(run_broker: RunBroker, network: ContainerNetwork) -> None:
    """With `arrival` the name of the container is all that a client needs."""
    inside = ("--network", network.name, "--network-alias", "kafka")
    run_broker(*inside, "--env", "ECHOLESS_ADVERTISE=arrival")
    sent_from_a_container(network, "orders")


def test_host_and_container_at_once(run_broker: RunBroker, network: ContainerNetwork) -> None:
    """One listener for both sides: connections through the published port come from the gateway."""
    inside = ("--network", network.name, "--network-alias", "kafka")
    broker = run_broker(*inside, "--env", "ECHOLESS_ADVERTISE=arrival")
    published = broker.port(9092)
    advertise(broker, networks={network.gateway: published})
    sent_from_here(published)
    sent_from_a_container(network, "others")
