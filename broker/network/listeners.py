"""The sockets of a broker's Kafka and native ports, each with its name and advertised address."""

from __future__ import annotations

import socket
from typing import NamedTuple

from echoless.broker.config.listener_names import KAFKA_LISTENERS, NATIVE
from echoless.broker.config.loading import Address, Config
from echoless.broker.network.server import bind, bound_address


class Listener(NamedTuple):
    """One bound socket."""

    name: str
    socket: socket.socket
    address: Address
    """The address it actually listens on."""
    advertised: Address
    """The address that clients (for `NATIVE`: other brokers) are given."""


def bind_listeners(config: Config) -> list[Listener]:
    """The Kafka listeners in configuration order, then the native one.

    Raises `ListenError`.
    """
    listeners = [
        _bound(name, "listen", address, advertised)
        for name, address, advertised in zip(
            KAFKA_LISTENERS,
            config.listen,
            config.advertise or (None,) * len(config.listen),
            strict=False,  # with a single address, EXTERNAL is left out
        )
    ]
    native = _bound(NATIVE, "native_listen", config.native_listen, config.native_advertise)
    if native.advertised.is_wildcard:
        reachable = Address(listeners[0].advertised.host, native.address.port)
        native = native._replace(advertised=reachable)
    return [*listeners, native]


def _bound(name: str, option: str, address: Address, advertised: Address | None) -> Listener:
    """The socket; advertised by the name that it was to listen on, which a certificate may be for."""
    bound = bind(option, address, listens=False)
    where = bound_address(bound)
    return Listener(name, bound, where, advertised or where._replace(host=address.host))
