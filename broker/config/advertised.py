"""The addresses that a listener's clients are given: one for all, others for clients of certain networks, or their own.

`arrival` stands for the address at which the client's connection arrived here. Of the networks that a client is in, the one
with the longest prefix decides. Nothing here is ever a wildcard, which no client can connect to.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.config.listener_names import KAFKA_LISTENERS, NATIVE, PLAINTEXT
from echoless.broker.config.values import Address, ConfigType, ValueKind, parse_address

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

NETWORKS_MAX: Final = 100
"""Networks of one listener: each may be compared with the client's address in every answer that has addresses."""
_NAME: Final = re.compile(r"[\w.-]+")
_MAPPED_BITS: Final = 96
"""Bits before the IPv4 address in an IPv6 address that stands for one."""


class Arrival(enum.StrEnum):
    """The address at which a client's connection arrived, whichever that was."""

    ARRIVAL = "arrival"


ARRIVAL: Final = Arrival.ARRIVAL
ClientAddress = Address | Arrival


class NetworkAddress(NamedTuple):
    """The address for clients of one network."""

    network: IPv4Network | IPv6Network
    address: ClientAddress


Networks = tuple[NetworkAddress, ...]
"""The longest prefix first."""


class Advertised(NamedTuple):
    """The addresses that clients of one listener are given."""

    address: Address
    """For all that no other field is about; other brokers know it from the registration."""
    is_arrival: bool = False
    """Whether the broker itself gives its clients the address of their arrival instead of `address`."""
    networks: Networks = ()
    listen: Address | None = None
    """The address that the listener is bound to; None if that is not known."""

    @property
    def general(self) -> ClientAddress:
        """The address for clients of no network in `networks`."""
        return ARRIVAL if self.is_arrival else self.address


class ListenerNetworks(tuple[tuple[str, NetworkAddress], ...]):
    """Networks, each with the name of its listener."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(f"{name}@{one.network}={one.address}" for name, one in self)

    def of(self, listener: str) -> Networks:
        """The networks of one listener."""
        return ordered(one for name, one in self if name == listener)


def advertised_address() -> ValueKind[Address | None]:
    """The address at which other brokers reach this one; if empty, the listen address."""
    return ValueKind(
        "HOST:PORT that can be connected to", lambda text: _parse_advertised(text) if text else None
    )


def client_address() -> ValueKind[ClientAddress]:
    """The address at which clients reach a listener, or `arrival`."""
    return ValueKind("HOST:PORT that clients can connect to, or arrival", _parse_client_address)


def client_addresses(most: int) -> ValueKind[tuple[ClientAddress, ...]]:
    """Up to `most` of these, separated by commas; if empty, the listen addresses."""
    one = client_address()
    return ValueKind(
        f"{one.expects}, one for each of --listen",
        lambda text: _parse_client_addresses(text, one, most) if text else (),
        ConfigType.LIST,
    )


def listener_networks() -> ValueKind[ListenerNetworks]:
    """`NETWORK=ADDRESS`, or `LISTENER@NETWORK=ADDRESS`, separated by commas; if empty, none."""
    return ValueKind(
        "[LISTENER@]NETWORK/PREFIX=HOST:PORT with commas between (10.0.0.0/8=broker:9092, arrival for HOST:PORT)",
        _parse_listener_networks,
        ConfigType.LIST,
    )


def parse_networks(table: Mapping[str, str]) -> Networks:
    """The networks of one listener and their addresses, as texts. Raises `ValueError`, whose message names the network."""
    if len(table) > NETWORKS_MAX:
        raise ValueError(f"takes at most {NETWORKS_MAX} networks, not {len(table)}")
    found: dict[IPv4Network | IPv6Network, NetworkAddress] = {}
    for text, address in table.items():
        network = _parse_network(text)
        if network in found:
            raise ValueError(f"{network} stands twice")
        try:
            found[network] = NetworkAddress(network, client_address().read(address))
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from error
    return ordered(found.values())


def ordered(networks: Iterable[NetworkAddress]) -> Networks:
    """The networks in the order in which a client's address is looked up."""
    return tuple(sorted(networks, key=lambda one: (-one.network.prefixlen, str(one.network))))


def address_in(networks: Networks, host: str) -> ClientAddress | None:
    """The address for a client with this IP address; None if none of the networks has it."""
    import ipaddress

    try:
        client = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return next((one.address for one in networks if client in one.network), None)


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    import ipaddress

    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
        address = ipaddress.ip_interface(text.strip()).ip
    except ValueError as error:
        raise ValueError(
            f"takes NETWORK/PREFIX, such as 10.0.0.0/8 or fd00::/8, not {text!r}"
        ) from error
    if address != network.network_address:
        raise ValueError(f"{text} has bits behind its prefix; the network is {network}")
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= _MAPPED_BITS:  # clients are IPv4 here
        return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def _parse_client_address(text: str) -> ClientAddress:
    return ARRIVAL if text.lower() == ARRIVAL else _parse_advertised(text)


def _parse_client_addresses(
    text: str, one: ValueKind[ClientAddress], most: int
) -> tuple[ClientAddress, ...]:
    items = tuple(one.parse(item.strip()) for item in text.split(","))
    if len(items) > most:
        raise ValueError("too many")
    return items


def _parse_listener_networks(text: str) -> ListenerNetworks:
    tables: dict[str, dict[str, str]] = {}
    for one in filter(None, (one.strip() for one in text.split(","))):
        key, separator, address = one.partition("=")
        before, at, network = key.rpartition("@")
        listener = before.strip().upper() if at else PLAINTEXT
        table = tables.setdefault(listener, {})
        if not separator or listener not in {*KAFKA_LISTENERS, NATIVE} or network.strip() in table:
            raise ValueError("not LISTENER@NETWORK=ADDRESS")
        table[network.strip()] = address
    return ListenerNetworks(
        (listener, one) for listener, table in tables.items() for one in parse_networks(table)
    )


def _parse_advertised(text: str) -> Address:
    address = parse_address(text)
    if address.is_wildcard:
        raise ValueError("no client can connect to the wildcard address")
    if ":" in address.host:
        import ipaddress

        ipaddress.IPv6Address(address.host)
    elif not _NAME.fullmatch(address.host):
        raise ValueError("not a host name")
    return address
