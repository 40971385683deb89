"""Addresses for clients, as they are written: hosts, `arrival`, and networks."""

from __future__ import annotations

import pytest

from echoless.broker.config.advertised import (
    ARRIVAL,
    NETWORKS_MAX,
    ClientAddress,
    address_in,
    client_address,
    listener_networks,
    parse_networks,
)
from echoless.broker.config.listener_names import EXTERNAL, PLAINTEXT
from echoless.broker.config.values import Address, canonical

A, B, C = Address("a", 1), Address("b", 2), Address("::1", 3)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:49153", Address("localhost", 49153)),
        ("[fd00::7]:9092", Address("fd00::7", 9092)),
        ("bücher.example:9092", Address("bücher.example", 9092)),
        ("dead.beef:9092", Address("dead.beef", 9092)),
        ("x0:9092", Address("x0", 9092)),
        ("0x1:9092", Address("0x1", 9092)),
        ("[::1]:9092", Address("::1", 9092)),
        ("[::ffff:10.0.0.0]:9092", Address("::ffff:10.0.0.0", 9092)),
        ("Arrival", ARRIVAL),
    ],
)
def test_what_clients_can_connect_to_is_taken(text: str, address: ClientAddress) -> None:
    """Names and addresses of both versions, and the word for the address of arrival."""
    assert client_address().read(text) == address


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "[::FFFF:0.0.0.0]", "[::%eth0]"),
        *("0", "00", "0x0", "0.0", "000.0.0.0"),
    ],
)
def test_no_wildcard_is_taken_however_it_is_written(host: str) -> None:
    """Clients would connect to themselves, or nowhere."""
    with pytest.raises(ValueError, match="takes HOST:PORT that clients can connect to, or arrival"):
        client_address().read(f"{host}:9092")


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        "localhost:0",
        ":9092",
        "http://a:1",
        "a b:1",
        "a,b:1",
        "a/b:1",
        "a\n:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """A registration lists addresses as `NAME://HOST:PORT`, which none of these may break."""
    with pytest.raises(ValueError, match="takes HOST:PORT"):
        client_address().read(text)


def test_the_longest_prefix_wins() -> None:
    """In whichever order they are written, and for IPv4 on a listener for both versions."""
    networks = parse_networks(
        {
            "10.0.0.0/8": "a:1",
            "0.0.0.0/0": "arrival",
            "10.1.2.3": "[::1]:3",
            "10.1.0.0/16": "b:2",
            "fd00::/8": "a:1",
            "::ffff:192.168.0.0/112": "b:2",
        }
    )
    given = {
        "10.9.9.9": A,
        "10.1.9.9": B,
        "10.1.2.3": C,
        "192.168.1.1": B,
        "8.8.8.8": ARRIVAL,
        "fd00::1": A,
        "fd00::1%eth0": A,
        "2001:db8::1": None,
        "?": None,
    }
    assert {host: address_in(networks, host) for host in given} == given


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"broker": "a:1"}, "takes NETWORK/PREFIX, such as 10.0.0.0/8 or fd00::/8, not 'broker'"),
        ({"10.0.0.0/33": "a:1"}, "takes NETWORK/PREFIX"),
        ({"10.0.0.1/8": "a:1"}, "10.0.0.1/8 has bits behind its prefix; the network is 10.0.0.0/8"),
        ({"10.0.0.0/8": "a"}, "10.0.0.0/8: takes HOST:PORT that clients can connect to"),
        ({"10.0.0.0/8": "a:1", "10.0.0.0/255.0.0.0": "b:1"}, "10.0.0.0/8 stands twice"),
        ({f"10.0.0.{i}": "a:1" for i in range(NETWORKS_MAX + 1)}, "at most 100 networks, not 101"),
    ],
)
def test_networks_that_cannot_be_used_are_named(table: dict[str, str], problem: str) -> None:
    """The message has the network, and what it takes."""
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        parse_networks(table)


def test_networks_of_several_listeners_are_one_text() -> None:
    """A listener that is not named is the first; the text that is shown means the same."""
    text = "10.0.0.0/8=a:1, external@fd00::/8=[::1]:3, PLAINTEXT@10.1.0.0/16=arrival"
    found = listener_networks().read(text)
    assert [one.address for one in found.of(PLAINTEXT)] == [ARRIVAL, A]
    assert [one.address for one in found.of(EXTERNAL)] == [C]
    assert listener_networks().read(canonical(found)) == found
    assert listener_networks().read("") == ()


@pytest.mark.parametrize(
    "text", ["10.0.0.0/8", "ADMIN@10.0.0.0/8=a:1", "10.0.0.0/8=a:1,10.0.0.0/8=b:1"]
)
def test_a_text_that_is_no_list_of_networks_is_refused(text: str) -> None:
    """Without an address, for a listener that clients do not use, or twice."""
    with pytest.raises(ValueError, match=r"takes \[LISTENER@\]NETWORK/PREFIX=HOST:PORT"):
        listener_networks().read(text)
