"""Several listeners: their names, and the addresses given to clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from echoless.broker.config.advertised import ARRIVAL
from echoless.broker.config.listener_names import EXTERNAL, NATIVE, PLAINTEXT
from echoless.broker.config.loading import Address, Config
from echoless.broker.config.security import ListenerProtocol, SecurityProtocol
from echoless.broker.config.values import PerAddress
from echoless.broker.metadata.node_data import broker_path
from echoless.broker.network import open_connections
from echoless.broker.network.listeners import Listener, bind_listeners
from tests.support.certificates import Authority
from tests.support.echoless import Echoless
from tests.support.given_addresses import given_to_a_client
from tests.support.in_process import in_process
from tests.support.raw_client import ConnectionEndedError, RawConnection

ANY_PORT = Address("127.0.0.1", 0)
EVERYWHERE = Address("0.0.0.0", 0)
INSIDE, OUTSIDE = Address("broker1", 9092), Address("kafka.example", 19092)


def bound(**settings: object) -> dict[str, Listener]:
    """The listeners by name; their sockets are closed again."""
    config = Config(**{"native_listen": ANY_PORT, **settings})  # type: ignore[arg-type]
    listeners = bind_listeners(config)
    for listener in listeners:
        listener.socket.close()
    return {listener.name: listener for listener in listeners}


def test_one_address_is_the_listener_plaintext() -> None:
    """A single address is one Kafka listener, advertised as it is bound: port 0 has become a port."""
    listeners = bound(listen=(ANY_PORT,))
    assert list(listeners) == [PLAINTEXT, NATIVE]
    for listener in listeners.values():
        assert listener.advertised.address == listener.address
        assert listener.address.port != 0


def test_a_name_is_advertised_as_a_name() -> None:
    """Certificates are for names: a client of `localhost` was told to go on to 127.0.0.1."""
    listeners = bound(listen=(Address("localhost", 0),), native_listen=Address("localhost", 0))
    for listener in listeners.values():
        assert listener.advertised.address == Address("localhost", listener.address.port)
        assert listener.address.is_loopback


def test_second_address_is_the_listener_external() -> None:
    """Each listener has the advertised address in the same position."""
    listeners = bound(listen=(ANY_PORT, ANY_PORT), advertise=(INSIDE, OUTSIDE))
    assert list(listeners) == [PLAINTEXT, EXTERNAL, NATIVE]
    assert listeners[PLAINTEXT].advertised.address == INSIDE
    assert listeners[EXTERNAL].advertised.address == OUTSIDE
    assert listeners[PLAINTEXT].address.port != listeners[EXTERNAL].address.port


def test_native_port_on_every_interface_is_advertised_at_the_first_host() -> None:
    """Other brokers come from inside: by the first advertised host, to the native port."""
    listeners = bound(
        listen=(EVERYWHERE, EVERYWHERE), advertise=(INSIDE, OUTSIDE), native_listen=EVERYWHERE
    )
    port = listeners[NATIVE].address.port
    assert listeners[NATIVE].advertised.address == Address("broker1", port)


def test_native_advertise_has_the_last_word() -> None:
    """The native port may be advertised anywhere."""
    address = Address("10.0.0.1", 1)
    assert bound(listen=(ANY_PORT,), native_advertise=address)[NATIVE].advertised.address == address


@pytest.mark.parametrize(
    ("settings", "registered"),
    [
        ({"listen": (EVERYWHERE,)}, "127.0.0.1"),
        ({"listen": (EVERYWHERE,), "native_advertise": INSIDE}, "broker1"),
        ({"listen": (EVERYWHERE,), "native_listen": EVERYWHERE}, "localhost"),
        ({"listen": (Address("127.0.0.2", 0),)}, "127.0.0.2"),
    ],
)
def test_a_wildcard_is_never_registered(settings: dict[str, object], registered: str) -> None:
    """With `arrival` other brokers know the host at which this one is reached, or that it listens on."""
    listener = bound(advertise=(ARRIVAL,), **settings)[PLAINTEXT]
    assert listener.advertised.is_arrival
    assert listener.advertised.address == Address(registered, listener.address.port)


@pytest.mark.parametrize(("listener", "address"), [(PLAINTEXT, INSIDE), (EXTERNAL, OUTSIDE)])
async def test_client_is_told_the_addresses_of_its_own_listener(
    tmp_path: Path, listener: str, address: Address
) -> None:
    """Metadata, DescribeCluster and FindCoordinator answer with the listener that was come by."""
    settings = {"listen": (ANY_PORT, ANY_PORT), "advertise": (INSIDE, OUTSIDE)}
    async with in_process(tmp_path, **settings) as running:
        come_by = {PLAINTEXT: running.kafka_address, EXTERNAL: running.external_address}[listener]
        assert come_by is not None
        assert await given_to_a_client(come_by) == {1: address}


async def test_registration_names_every_listener(tmp_path: Path) -> None:
    """Other brokers read all advertised addresses, and the rack, in the broker's node."""
    async with in_process(
        tmp_path,
        listen=(ANY_PORT, ANY_PORT),
        advertise=(INSIDE, OUTSIDE),
        native_advertise=Address("broker1", 9093),
        broker_rack="b",
    ) as running:
        node = (await running.broker.tree.read_many([broker_path(1)]))[0]
        assert node is not None
        fields = json.loads(node.data)
    assert fields["rack"] == "b"
    assert fields["endpoints"] == [
        "PLAINTEXT://broker1:9092",
        "EXTERNAL://kafka.example:19092",
        "NATIVE://broker1:9093",
    ]


@pytest.mark.slow
def test_ready_line_has_all_addresses(tmp_path: Path) -> None:
    """The ready line has two listeners with a comma between, and both are reused."""
    broker = Echoless(tmp_path)
    broker.kafka_address = "127.0.0.1:0,127.0.0.1:0"
    try:
        for _ in range(2):
            broker.start()
            first, second = broker.kafka_address.split(",")
            assert first != second
            assert broker.terminate() == 0
    finally:
        broker.kill()


async def is_served(address: str, source: str = "127.0.0.1") -> RawConnection | None:
    """A connection that has been answered; None if it was refused."""
    connection = await RawConnection.open(address, source=source)
    try:
        await connection.call("find_coordinator", 1, key="g", key_type=0)
    except ConnectionEndedError:
        await connection.close()
        return None
    return connection


async def test_a_listener_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    """Its newcomers are refused, and those of the other listener are not; a place that is left is taken."""
    overrides = {EXTERNAL: {"connections_max": 2}}
    listen = (ANY_PORT, ANY_PORT)
    async with in_process(tmp_path, listen=listen, listener_overrides=overrides) as running:
        address = running.external_address
        assert address is not None
        first, second = [await is_served(address) for _ in range(2)]
        assert first is not None
        assert second is not None
        assert await is_served(address) is None
        inside = [await is_served(running.kafka_address) for _ in range(3)]
        assert all(inside)
        await first.close()
        async with asyncio.timeout(30):
            while (third := await is_served(address)) is None:
                pass
        for one in (second, third, *inside):
            assert one is not None
            await one.close()


async def test_an_address_does_not_keep_others_from_a_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit an idle connection of the address that has most gives way, as at the broker's."""
    monkeypatch.setattr(open_connections, "IDLE_S", 0.0)
    overrides = {EXTERNAL: {"connections_max": 2}}
    listen = (ANY_PORT, ANY_PORT)
    async with in_process(tmp_path, listen=listen, listener_overrides=overrides) as running:
        address = running.external_address
        assert address is not None
        many = [await is_served(address) for _ in range(2)]
        inside = await is_served(running.kafka_address)
        other = await is_served(address, source="127.0.0.2")
        assert other is not None
        assert await is_served(address, source="127.0.0.2") is None
        for one in (*many, inside, other):
            assert one is not None
            await one.close()


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_client_has_one_address_on_every_listener(
    tmp_path: Path, is_encrypted: bool
) -> None:
    """On `[::]` the system writes IPv4 as IPv6: a limit for 127.0.0.1 did not hold there."""
    authority = Authority(tmp_path / "authority")
    protocol = SecurityProtocol.SSL if is_encrypted else SecurityProtocol.PLAINTEXT
    async with in_process(
        tmp_path,
        listen=(Address("::", 0),),
        advertise=(INSIDE,),
        connections_max_per_ip_overrides=PerAddress((("127.0.0.1", 1),)),
        listener_security_protocol_map=(ListenerProtocol(PLAINTEXT, protocol),),
        ssl_keystore_location=authority.settings("")["ssl_keystore_location"],
    ) as running:
        port = running.kafka_address.rpartition(":")[2]
        context = authority.client_context() if is_encrypted else None
        first = await RawConnection.open(f"127.0.0.1:{port}", context)
        await first.call("find_coordinator", 1, key="g", key_type=0)
        assert [one.host for one in running.broker.open_connections.connections()] == ["127.0.0.1"]
        with pytest.raises((ConnectionEndedError, OSError)):
            await (await RawConnection.open(f"127.0.0.1:{port}", context)).receive()
        assert running.broker.metrics.connections_refused_total == 1
        await first.close()
