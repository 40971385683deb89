"""`/listeners`: the addresses that clients of each listener are given, and changes of them while the broker runs.

A change is as any other of this port: for callers who may change, and with an authorizer Alter on the cluster, since an
address decides where clients go. `docs/listeners.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from json import dumps
from typing import Any, Final

from aiohttp import web

from echoless.broker.admin.body import read_json
from echoless.broker.admin.callers import note_change
from echoless.broker.admin.query import INT32_MAX, read_optional
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.cluster.own_listeners import AdvertisedChange
from echoless.broker.config.advertised import (
    ARRIVAL,
    Advertised,
    ClientAddress,
    Networks,
    client_address,
    parse_networks,
)
from echoless.broker.config.listener_names import NATIVE
from echoless.broker.tree.node_tree import CoordinationError

ADVERTISE: Final = "advertise"
NETWORKS: Final = "networks"


class ListenerPages:
    """The paths that change something, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def routes(self) -> list[web.RouteDef]:
        """The routes of the methods below."""
        return [
            web.put("/listeners/{listener}", self.set),
            web.delete("/listeners/{listener}", self.reset),
        ]

    async def set(self, request: web.Request) -> web.Response:
        """Sets addresses for the clients of a listener; what the body leaves out is as configured."""
        name = self._own_name(request)
        change = read_change(await read_json(request))
        if change.address is ARRIVAL and name == NATIVE and self._is_member:
            raise _bad(
                f"advertise: takes HOST:PORT for {NATIVE}, not {ARRIVAL}: other brokers connect to it"
            )
        return await self._change(request, name, change)

    async def reset(self, request: web.Request) -> web.Response:
        """Restores the configured addresses."""
        return await self._change(request, self._own_name(request), AdvertisedChange())

    async def _change(
        self, request: web.Request, name: str, change: AdvertisedChange
    ) -> web.Response:
        try:
            await self._broker.listeners.change(name, change)
        except CoordinationError as error:
            raise RefusalError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the addresses of {name} are as before, try again: "
                f"the coordinator did not take the new ones: {error}",
            ) from error
        document = listener_document(self._broker, name)
        note_change(request, dumps(document))
        return web.json_response(document)

    def _own_name(self, request: web.Request) -> str:
        """The name of the listener. Raises `RefusalError` if it is another broker's, or none."""
        broker_id = read_optional(request.query, "broker", INT32_MAX)
        if broker_id not in {None, self._broker.config.broker_id}:
            raise _bad(f"broker: the addresses of broker {broker_id} are set on its own admin port")
        return listener_name(self._broker, request.match_info)

    @property
    def _is_member(self) -> bool:
        return self._broker.config.zookeeper_hosts is not None


def read_change(body: Any) -> AdvertisedChange:
    """The change that a body asks for. Raises `RefusalError`."""
    takes = 'the body takes {"advertise": "HOST:PORT"}, "networks" or both'
    if not isinstance(body, dict) or not body:
        raise _bad(f"{takes} (DELETE restores what is configured)")
    unknown = next((one for one in body if one not in {ADVERTISE, NETWORKS}), None)
    if unknown is not None:
        raise _bad(f"{takes}, not {unknown!r}")
    return AdvertisedChange(
        _read_address(body[ADVERTISE]) if ADVERTISE in body else None,
        _read_networks(body[NETWORKS]) if NETWORKS in body else None,
    )


def _read_address(value: Any) -> ClientAddress:
    kind = client_address()
    try:
        return kind.read(value if isinstance(value, str) else dumps(value))
    except ValueError as error:
        raise _bad(f"{ADVERTISE}: {error}") from error


def _read_networks(value: Any) -> Networks:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise _bad(f'{NETWORKS}: takes {{"NETWORK/PREFIX": "HOST:PORT", ...}}, not {dumps(value)}')
    try:
        return parse_networks(value)
    except ValueError as error:
        raise _bad(f"{NETWORKS}: {error}") from error


def _bad(text: str) -> RefusalError:
    return RefusalError(HTTPStatus.BAD_REQUEST, text)


def listener_name(broker: BrokerView, names: Mapping[str, str]) -> str:
    """The listener that a path names, in any case. Raises `RefusalError` if there is none."""
    given = names["listener"]
    if given.upper() not in broker.listeners.advertised:
        known = ", ".join(broker.listeners.advertised)
        raise RefusalError(
            HTTPStatus.NOT_FOUND, f"there is no listener {given!r} on this broker, only {known}"
        )
    return given.upper()


def listener_document(broker: BrokerView, name: str) -> dict[str, Any]:
    """One listener: where it listens, and the addresses in force and as configured."""
    now, configured = (
        broker.listeners.advertised[name],
        broker.listeners.configured[name],
    )
    return {
        "listener": name,
        "security_protocol": str(broker.config.security_protocol(name)),
        "listen": None if now.listen is None else str(now.listen),
        **_addresses(now),
        "configured": _addresses(configured),
        "is_changed": now != configured,
    }


def _addresses(advertised: Advertised) -> dict[str, Any]:
    networks = {str(network): str(address) for network, address in advertised.networks}
    return {
        ADVERTISE: str(advertised.general),
        "registered": str(advertised.address),
        NETWORKS: networks,
    }
