"""The sockets of a broker's Kafka and native ports, each with its name and the addresses that its clients are given."""

from __future__ import annotations

import socket
from itertools import zip_longest
from typing import Final, NamedTuple

from echoless.broker.config.advertised import ARRIVAL, Advertised, ClientAddress
from echoless.broker.config.listener_names import KAFKA_LISTENERS, NATIVE
from echoless.broker.config.loading import Address, Config
from echoless.broker.network.server import bind, bound_address

_THIS_MACHINE: Final = "localhost"
"""Registered by a broker that stands alone and cannot name its own host: no client asks another one for it."""


class Listener(NamedTuple):
    """One bound socket."""

    name: str
    socket: socket.socket
    address: Address
    """The address it actually listens on."""
    advertised: Advertised
    """The addresses that clients (for `NATIVE`: other brokers, too) are given."""


def bind_listeners(config: Config) -> list[Listener]:
    """The Kafka listeners in configuration order, then the native one.

    Raises `ListenError`.
    """
    listeners = [
        _bound(config, name, "listen", address, advertised)
        for name, (address, advertised) in zip(
            KAFKA_LISTENERS,
            zip_longest(config.listen, config.advertise),
            strict=False,  # with a single address, EXTERNAL is left out
        )
    ]
    native = _bound(config, NATIVE, "native_listen", config.native_listen, config.native_advertise)
    if native.advertised.address.is_wildcard:
        first = listeners[0].advertised
        beside = first.address._replace(port=native.address.port)
        advertised = native.advertised._replace(address=beside, is_arrival=first.is_arrival)
        native = native._replace(advertised=advertised)
    return [*listeners, native]


def _bound(
    config: Config, name: str, option: str, address: Address, advertised: ClientAddress | None
) -> Listener:
    """The socket; advertised by the name that it was to listen on, which a certificate may be for."""
    bound = bind(option, address, listens=False)
    where = bound_address(bound)
    networks = config.advertise_networks.of(name)
    if isinstance(advertised, Address):
        return Listener(name, bound, where, Advertised(advertised, False, networks, where))
    is_arrival = advertised is ARRIVAL
    host = _own_host(config) if is_arrival and address.is_wildcard else address.host
    return Listener(
        name, bound, where, Advertised(where._replace(host=host), is_arrival, networks, where)
    )


def _own_host(config: Config) -> str:
    """The host at which other brokers reach this one, for a listener that is bound to every interface."""
    native = config.native_advertise or config.native_listen
    return _THIS_MACHINE if native.is_wildcard else native.host
