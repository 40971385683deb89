"""The sharer of a client: the one whose share its use counts towards, where clients share what a broker can hold."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

from echoless.broker.network.request import ANONYMOUS

if TYPE_CHECKING:
    from echoless.broker.network.request import Peer

_HOST_BITS: Final = 64
"""A site chooses its IPv6 addresses in a network of so many bits as it likes."""


def sharer_of(peer: Peer) -> str:
    """The principal, whatever addresses it comes from; of a client that has not authenticated the address.

    IPv6 addresses of one /64 network are one sharer.
    """
    return network_of(peer.host) if peer.principal == ANONYMOUS else peer.principal


def network_of(host: str) -> str:
    """An IPv4 address itself, and the /64 network of an IPv6 address."""
    if ":" not in host:
        return host
    try:
        address = int(IPv6Address(host))
    except ValueError:
        return host
    return f"{IPv6Address(address >> _HOST_BITS << _HOST_BITS)}/64"
