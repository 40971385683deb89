"""The situations of docs/listeners.md, played by clients of four languages.

Each "host" that is not this one is a network namespace with a link of its own; a published port, or a proxy, forwards from an
address that the broker does not know. Where a client could also take a way around, that way is cut, or leads nowhere.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from echoless.testkit.admin import Admin
from tests.compatibility.programs import FRANZ_GO, JAVA, KAFKAJS, LIBRDKAFKA, REPOSITORY, Program
from tests.compatibility.round_trip import RoundTrip
from tests.nemesis.network import CLIENTS, Network, reason_unavailable
from tests.support.cluster import Cluster
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import LossyProxy

pytestmark = [pytest.mark.clients, pytest.mark.slow]

FOUR = (LIBRDKAFKA, JAVA[-1], FRANZ_GO, KAFKAJS)
each_client = pytest.mark.parametrize("client", FOUR, ids=lambda program: program.name)
in_pairs = pytest.mark.parametrize("client", FOUR[::2], ids=lambda program: program.name)
"""Two that write, and the next ones, which read: all four in half the time."""
BROKER, APPLICATION, LAPTOP = "broker", "application", "laptop"
NOWHERE = "nowhere.invalid:9092"
"""An address that no one can reach: a client that was given it cannot go on."""
PARTITIONS = 3


def the_next(client: Program) -> Program:
    """A client of another language, to read what `client` has written."""
    return FOUR[(FOUR.index(client) + 1) % len(FOUR)]


def on(prefix: Sequence[str], client: Program) -> Program:
    """The client as it runs on another host."""
    return replace(client, command=(*prefix, *client.command))


def forward(target: str, host: str = "127.0.0.1") -> LossyProxy:
    """A proxy that loses nothing."""
    return LossyProxy(0, host=host, target=target, is_lossy=False)


# --- containers and hosts ---


@dataclass(frozen=True, slots=True)
class Hosts:
    """A broker in a container, a container beside it, and a laptop that reaches only the published port."""

    network: Network
    address: str
    """The broker's own address, for containers."""
    published: LossyProxy
    admin: Admin

    @property
    def gateway(self) -> str:
        """The address that connections through the published port come from."""
        return self.network.address(CLIENTS)

    def advertise(self, **change: Any) -> None:
        self.admin.put("/listeners/PLAINTEXT", change)

    def brokers_seen_by(self, host: str, bootstrap: str) -> set[str]:
        """The addresses that a client on that host is given, which it need not be able to reach."""
        program = (
            "import asyncio, sys; from tests.support.given_addresses import given_to_a_client\n"
            "print(*map(str, asyncio.run(given_to_a_client(sys.argv[1])).values()))"
        )
        command = [*self.network.prefix(host), sys.executable, "-c", program, bootstrap]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60, cwd=REPOSITORY
        )
        return set(done.stdout.split())


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """One broker for the tests of this section; it advertises where a client arrives."""
    if reason := reason_unavailable():
        pytest.skip(f"no hosts can be made here: {reason}")
    with ExitStack() as stack:
        network = stack.enter_context(Network([BROKER, APPLICATION, LAPTOP]))
        network.cut_both(LAPTOP, BROKER)
        broker = Echoless(
            tmp_path_factory.mktemp("hosts"),
            {"num_partitions": str(PARTITIONS), "admin_insecure": "true"},
            arguments=("--advertise", "arrival"),
            host="0.0.0.0",
        )
        broker.process.prefix = network.prefix(BROKER)
        stack.callback(broker.kill)
        broker.start()
        address, admin = (
            f"{network.address(BROKER)}:{one.rpartition(':')[2]}"
            for one in (broker.kafka_address, broker.admin_address)
        )
        published = stack.enter_context(forward(address, network.address(CLIENTS)))
        yield Hosts(network, address, published, Admin(admin))


@pytest.fixture(autouse=True)
def _as_configured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Takes back what a test has set."""
    yield
    if "hosts" in request.fixturenames:
        request.getfixturevalue("hosts").admin.delete("/listeners/PLAINTEXT")


def round_trip(
    hosts: Hosts, tmp_path: Path, topic: str, begin: str, read_from: str | None = None
) -> RoundTrip:
    return RoundTrip(
        address=begin,
        topic=topic,
        count=300,
        seed=1,
        partitions=PARTITIONS,
        directory=tmp_path,
        read_from=read_from,
    )


@in_pairs
def test_container_to_container(hosts: Hosts, tmp_path: Path, client: Program) -> None:
    """With `arrival` nothing has to be known: the container's address is the one that was connected to."""
    assert hosts.brokers_seen_by(APPLICATION, hosts.address) == {hosts.address}
    beside = hosts.network.prefix(APPLICATION)
    trip = round_trip(hosts, tmp_path, f"beside-{client.name}", hosts.address)
    trip.check(on(beside, client), on(beside, the_next(client)), "none")


@in_pairs
def test_host_to_container(hosts: Hosts, tmp_path: Path, client: Program) -> None:
    """The published port is known once the container runs, and set then; before, the client is led astray."""
    published = hosts.published.address
    assert hosts.brokers_seen_by(LAPTOP, published) == {hosts.address}
    hosts.advertise(advertise=published)
    assert hosts.brokers_seen_by(LAPTOP, published) == {published}
    outside = hosts.network.prefix(LAPTOP)
    trip = round_trip(hosts, tmp_path, f"outside-{client.name}", published)
    trip.check(on(outside, client), on(outside, the_next(client)), "none")


@each_client
def test_host_and_container_at_once(hosts: Hosts, tmp_path: Path, client: Program) -> None:
    """One listener for both: connections by the published port come from the gateway's address, a network of one."""
    published = hosts.published.address
    hosts.advertise(networks={hosts.gateway: published})
    assert hosts.brokers_seen_by(LAPTOP, published) == {published}
    assert hosts.brokers_seen_by(APPLICATION, hosts.address) == {hosts.address}
    outside, beside = hosts.network.prefix(LAPTOP), hosts.network.prefix(APPLICATION)
    trip = round_trip(hosts, tmp_path, f"both-{client.name}", published, hosts.address)
    trip.check(on(outside, client), on(beside, the_next(client)), "none")


def test_a_host_with_several_networks(hosts: Hosts) -> None:
    """A container that joins a second network gives its clients there the address that it has in it."""
    prefix = hosts.network.prefix(BROKER)
    second = f"{hosts.network.address(BROKER).rpartition('.')[0]}.77"
    subprocess.run([*prefix, "ip", "addr", "add", f"{second}/24", "dev", "eth0"], check=True)
    there = f"{second}:{hosts.address.rpartition(':')[2]}"
    assert hosts.brokers_seen_by(APPLICATION, there) == {there}
    assert hosts.brokers_seen_by(APPLICATION, hosts.address) == {hosts.address}


# --- proxies ---


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyProxy]:
    """The proxy before one broker, which advertises it since both run; before, it advertised what no one reaches."""
    broker = Echoless(
        tmp_path_factory.mktemp("proxied"),
        {"num_partitions": str(PARTITIONS)},
        arguments=("--advertise", NOWHERE),
    )
    try:
        broker.start()
        with forward(broker.kafka_address) as proxy:
            Admin(broker.admin_address).put("/listeners/PLAINTEXT", {"advertise": proxy.address})
            yield proxy
    finally:
        broker.kill()


@in_pairs
def test_through_a_tcp_proxy(behind_a_proxy: LossyProxy, tmp_path: Path, client: Program) -> None:
    """A client that asks for the broker behind the proxy is led to the proxy again."""
    trip = RoundTrip(
        address=behind_a_proxy.address,
        topic=f"proxied-{client.name}",
        count=300,
        seed=2,
        partitions=PARTITIONS,
        directory=tmp_path,
    )
    before = behind_a_proxy.connections
    trip.check(client, the_next(client), "none")
    assert behind_a_proxy.connections > before + 1


@dataclass(frozen=True, slots=True)
class Proxied:
    """Three brokers, each behind a proxy of its own."""

    cluster: Cluster
    proxies: list[LossyProxy]

    def advertise(self, broker_id: int, address: str) -> None:
        """Returns when every broker gives it to its clients."""
        admins = {one: Admin(each.admin_address) for one, each in self.cluster.brokers.items()}
        admins[broker_id].put("/listeners/PLAINTEXT", {"advertise": address})
        self.cluster.wait_until(
            lambda: all(_registered(one)[broker_id - 1] == address for one in admins.values()),
            f"every broker gives {address}",
        )


@pytest.fixture(scope="module")
def behind_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A proxy before each of three brokers; a topic for each client, led by all three."""
    nowhere = dict.fromkeys((1, 2, 3), NOWHERE)
    with ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(
                tmp_path_factory.mktemp("three"), {"min_insync_replicas": "2"}, advertised=nowhere
            )
        )
        cluster.start()
        proxies = [
            stack.enter_context(forward(broker.kafka_address))
            for broker in cluster.brokers.values()
        ]
        proxied = Proxied(cluster, proxies)
        for broker_id, proxy in zip(cluster.brokers, proxies, strict=True):
            proxied.advertise(broker_id, proxy.address)
        for client in FOUR:
            cluster.create_topic(client.name, PARTITIONS)
        yield proxied


def _registered(admin: Admin) -> list[str]:
    return [one["listeners"]["PLAINTEXT"] for one in admin.get("/overview")["brokers"]]


@each_client
def test_through_a_proxy_for_each_of_three_brokers(
    behind_three: Proxied, tmp_path: Path, client: Program
) -> None:
    """Whichever broker a client asks, it is led through the proxies of all: no other address was ever given."""
    proxies = behind_three.proxies
    begin = FOUR.index(client) % len(proxies)
    trip = RoundTrip(
        address=proxies[begin].address,
        topic=client.name,
        count=300,
        seed=3,
        partitions=PARTITIONS,
        directory=tmp_path,
        read_from=proxies[begin - 1].address,
    )
    before = [proxy.connections for proxy in proxies]
    trip.check(client, the_next(client), "none")
    assert all(proxy.connections > was for proxy, was in zip(proxies, before, strict=True))


def test_a_running_client_follows_a_broker_to_another_address(behind_three: Proxied) -> None:
    """The proxy of a leader is replaced under a producer, which learns of the new one from the other brokers."""
    target = behind_three.cluster.brokers[1].kafka_address
    behind_three.cluster.create_topic("moved", 1, leader=1)
    producer = Producer({"bootstrap.servers": behind_three.proxies[1].address, "log_level": 2})
    with forward(target) as new:
        with forward(target) as old:
            behind_three.advertise(1, old.address)
            _send(producer, "before")
            assert old.connections
            behind_three.advertise(1, new.address)
        _send(producer, "after")
        assert new.connections
        behind_three.advertise(1, behind_three.proxies[0].address)


def test_an_address_survives_the_end_of_a_session(behind_three: Proxied) -> None:
    """A broker that was silent for too long registers again, with the address that was set."""
    cluster, proxies = behind_three.cluster, behind_three.proxies
    other = Admin(cluster.brokers[2].admin_address)
    expected = [proxy.address for proxy in proxies]
    cluster.pause(1)
    try:
        cluster.wait_until(lambda: _registered(other) == expected[1:], "broker 1 is gone")
    finally:
        cluster.resume(1)
    cluster.wait_until(lambda: _registered(other) == expected, "broker 1 is there as before")


def _send(producer: Producer, value: str) -> None:
    """Sends one record, and waits until it is acknowledged."""
    errors: list[object] = []
    producer.produce("moved", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
