"""The addresses that clients are given: by listener, by network, where they arrived; set while brokers run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.cluster.addresses import client_addresses
from echoless.broker.cluster.own_listeners import AdvertisedChange
from echoless.broker.config.advertised import ARRIVAL, listener_networks, parse_networks
from echoless.broker.config.listener_names import EXTERNAL, NATIVE, PLAINTEXT
from echoless.broker.config.security import ListenerProtocol, SecurityProtocol
from echoless.broker.config.values import Address
from echoless.broker.metadata.node_data import broker_path
from echoless.broker.metadata.registration import decode_broker
from echoless.broker.network.request import Peer
from echoless.broker.tree.node_tree import ConnectionLostError
from tests.broker.cluster.one_member import Member
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.fakes.memory_node_tree import MemoryTree, turns
from tests.support.certificates import Authority
from tests.support.given_addresses import given_addresses, given_to_a_client
from tests.support.in_process import in_process
from tests.support.in_process_cluster import in_process_cluster
from tests.support.raw_client import RawConnection

EVERYWHERE, EVERYWHERE_6 = Address("0.0.0.0", 0), Address("::", 0)
A, B, C = Address("a", 1), Address("b", 2), Address("c", 3)
NETWORKS = listener_networks().read("127.0.0.0/8=a:1, 127.0.0.3=b:2, 127.0.0.4=arrival, ::1=c:3")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_a_client_gets_the_address_for_its_network(tmp_path: Path) -> None:
    """The longest prefix wins, IPv6 included; who is in no network gets the address for all."""
    async with in_process(
        tmp_path, listen=(EVERYWHERE_6,), advertise=(C,), advertise_networks=NETWORKS
    ) as running:
        port = port_of(running.kafka_address)
        for source, address in {
            "127.0.0.2": A,
            "127.0.0.3": B,
            "127.0.0.4": Address("127.0.0.1", port),
        }.items():
            assert await given_to_a_client(f"127.0.0.1:{port}", source=source) == {1: address}
        assert await given_to_a_client(f"::1:{port}") == {1: C}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1"])
async def test_arrival_is_where_the_client_connected_to(tmp_path: Path, host: str) -> None:
    """A host with several addresses gives each client the one that it has used."""
    async with in_process(tmp_path, listen=(EVERYWHERE_6,), advertise=(ARRIVAL,)) as running:
        port = port_of(running.kafka_address)
        assert await given_to_a_client(f"{host}:{port}") == {1: Address(host, port)}


async def test_arrival_is_the_same_by_tls(tmp_path: Path) -> None:
    """The address under the encrypted connection; a client then checks the certificate for it."""
    authority = Authority(tmp_path / "authority")
    async with in_process(
        tmp_path,
        listen=(EVERYWHERE,),
        advertise=(ARRIVAL,),
        listener_security_protocol_map=(ListenerProtocol(PLAINTEXT, SecurityProtocol.SSL),),
        ssl_keystore_location=authority.settings("")["ssl_keystore_location"],
    ) as running:
        port = port_of(running.kafka_address)
        context = authority.client_context()
        given = await given_to_a_client(f"127.0.0.1:{port}", context=context)
        assert given == {1: Address("127.0.0.1", port)}


async def test_an_address_that_is_set_is_given_from_the_next_answer_on(tmp_path: Path) -> None:
    """Open connections get it too, the registration has it, and the other listener keeps its own."""
    async with in_process(
        tmp_path, listen=(Address("127.0.0.1", 0),) * 2, advertise=(A, B)
    ) as running:
        broker = running.broker
        connection = await RawConnection.open(running.kafka_address)
        assert await given_addresses(connection) == {1: A}
        await broker.listeners.change(PLAINTEXT, AdvertisedChange(C))
        assert await given_addresses(connection) == {1: C}
        node = await broker.tree.read(broker_path(1))
        assert decode_broker(broker_path(1), node).endpoints == broker.listeners.endpoints()
        assert running.external_address is not None
        assert await given_to_a_client(running.external_address) == {1: B}
        await broker.listeners.change(PLAINTEXT, AdvertisedChange(ARRIVAL))
        own = Address("127.0.0.1", port_of(running.kafka_address))
        assert await given_addresses(connection) == {1: own}
        networks = parse_networks({"127.0.0.1": "c:3"})
        await broker.listeners.change(PLAINTEXT, AdvertisedChange(networks=networks))
        assert await given_addresses(connection) == {1: C}
        await broker.listeners.change(PLAINTEXT, AdvertisedChange())
        assert await given_addresses(connection) == {1: A}
        await connection.close()


async def test_other_brokers_give_what_a_broker_has_set(tmp_path: Path) -> None:
    """Its address for all, and those for networks; where it says arrival, only itself knows it."""
    everyone = {"listen": (EVERYWHERE,), "advertise": (ARRIVAL,)}
    async with in_process_cluster(tmp_path, 2, **everyone) as (one, other):

        async def given_by(running: Any, source: str = "127.0.0.1") -> dict[int, Address]:
            port = port_of(running.kafka_address)
            return await given_to_a_client(f"127.0.0.9:{port}", source=source)

        ports = {number: port_of(each.kafka_address) for number, each in enumerate((one, other), 1)}
        expected = {1: Address("127.0.0.1", ports[1]), 2: Address("127.0.0.9", ports[2])}
        await _until(lambda: given_by(other), expected)
        change = AdvertisedChange(A, parse_networks({"127.0.0.5": "b:2", "127.0.0.6": "arrival"}))
        await one.broker.listeners.change(PLAINTEXT, change)
        assert (await given_by(one))[1] == A
        for source, here, there in [
            ("127.0.0.1", A, A),
            ("127.0.0.5", B, B),
            ("127.0.0.6", Address("127.0.0.9", ports[1]), A),
        ]:
            assert (await given_by(one, source))[1] == here
            await _until(lambda source=source: given_by(other, source), {**expected, 1: there})


async def _until(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    async with asyncio.timeout(30):
        while await ask() != expected:
            await turns(1)


async def test_native_clients_get_native_addresses_by_the_same_rules(tmp_path: Path) -> None:
    """A wildcard for both ports: clients of both go on where they arrived."""
    async with in_process(
        tmp_path, listen=(EVERYWHERE,), native_listen=EVERYWHERE, advertise=(ARRIVAL,)
    ) as running:
        native = running.broker.listeners.advertised[NATIVE]
        assert native.is_arrival
        peer = Peer(1, "127.0.0.1:5", listener=NATIVE, transport_info=lambda _: ("10.0.0.1", 7))
        assert client_addresses(running.broker.membership, peer) == {1: Address("10.0.0.1", 7)}
        assert EXTERNAL not in running.broker.listeners.advertised


def plain_client() -> Peer:
    return Peer(1, "127.0.0.1:5000")


def registered(member: Member) -> Address | None:
    """The address in the broker's node; None while there is none."""
    path = broker_path(1)
    node = member.server.nodes.get(path)
    if node is None:
        return None
    endpoint = decode_broker(path, node).endpoints[PLAINTEXT]
    return Address(endpoint.host, endpoint.port)


async def test_a_change_survives_a_new_session() -> None:
    """The next registration of the process repeats it; that of the next process is as configured."""
    server = MemoryTree()
    member = Member(server, MemoryFileSystem())
    await member.start()
    await member.broker.listeners.change(PLAINTEXT, AdvertisedChange(A))
    member.tree.expire_session()
    assert registered(member) is None
    member.tree.reconnect()
    await member.until(lambda: registered(member) == A)
    await member.until(lambda: member.broker.membership.is_proved)
    assert client_addresses(member.broker.membership, plain_client()) == {1: A}
    await member.broker.stop()


async def test_a_change_and_a_departure_at_once_are_both_announced() -> None:
    """Each writes the whole registration: neither takes the other back."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(
                member.broker.listeners.change(
                    PLAINTEXT, AdvertisedChange(Address("a", number + 1))
                )
            )
            if number == 10:
                group.create_task(member.broker.hand_over(30.0))
    assert member.is_told_to_leave()
    assert registered(member) == Address("a", 20)
    await member.broker.stop()


@pytest.mark.parametrize("applied", [False, True])
async def test_a_change_that_failed_is_no_change(applied: bool) -> None:
    """Without an answer of the coordinator no one knows whether it was written: it is taken back."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    before = registered(member)
    member.tree.lose_next_reply(applied=applied)
    with pytest.raises(ConnectionLostError):
        await _cut_off_in_the_middle(member)
    member.tree.resume()
    await member.until(lambda: registered(member) == before)
    membership = member.broker.membership
    await member.until(lambda: client_addresses(membership, plain_client()) == {1: before})
    assert member.broker.listeners.advertised == member.broker.listeners.configured
    await member.broker.listeners.change(PLAINTEXT, AdvertisedChange(B))
    assert registered(member) == B
    await member.broker.stop()


async def _cut_off_in_the_middle(member: Member) -> None:
    """A change during which the connection goes, whether or not it was applied."""

    async def suspend() -> None:
        member.tree.suspend()

    member.tree.before_next_change(suspend)
    await member.broker.listeners.change(PLAINTEXT, AdvertisedChange(A))


async def test_a_caller_that_goes_does_not_cut_a_change_in_half() -> None:
    """The change goes on: clients are given what is registered."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    change = asyncio.create_task(member.broker.listeners.change(PLAINTEXT, AdvertisedChange(A)))
    await member.until(lambda: registered(member) == A)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    await member.until(lambda: member.broker.listeners.advertised[PLAINTEXT].address == A)
    assert client_addresses(member.broker.membership, plain_client()) == {1: A}
    await member.broker.stop()
