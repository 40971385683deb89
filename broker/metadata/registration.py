"""A broker's own node: while it is there, the broker is alive.

The node is ephemeral, its JSON is Kafka's version 5; nodes that Kafka wrote are read too. Called by the
server at its start, after a new session, and when it is about to leave.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from echoless.broker.config.advertised import Advertised, Networks, parse_networks
from echoless.broker.config.listener_names import KAFKA_LISTENERS
from echoless.broker.metadata.node_data import BROKERS, NodeDataError, broker_path
from echoless.broker.tree.lost_replies import commit
from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    CoordinationError,
    Node,
    NodeExistsError,
    NodeTree,
    SetData,
    ensure_paths,
)

_PLAINTEXT: Final = "PLAINTEXT"
_UNSERVED_MAX: Final = 1000
"""Unserved topics that are named: with the longest names a quarter of what a node may hold."""
_ENDPOINT: Final = r"([^:/]+)://(?:\[([^\]]*)\]|([^:]*)):(-?\d+)"


class BrokerIdInUseError(CoordinationError):
    """A broker with this id is alive."""


class Endpoint(NamedTuple):
    """The address of a listener."""

    host: str
    port: int
    security_protocol: str = _PLAINTEXT
    is_arrival: bool = False
    """Whether the broker itself gives its clients the address at which they arrived."""
    networks: Networks = ()
    """The addresses for clients of certain networks."""

    @classmethod
    def of(cls, advertised: Advertised, security_protocol: str) -> Self:
        """The endpoint of a listener whose clients are given these addresses."""
        host, port = advertised.address
        return cls(host, port, security_protocol, advertised.is_arrival, advertised.networks)


class BrokerInfo(NamedTuple):
    """A broker's registration: what the other brokers need to know of it."""

    broker_id: int
    endpoints: Mapping[str, Endpoint]
    """By listener name: `PLAINTEXT` and `EXTERNAL` for Kafka's protocol, `NATIVE` for ours."""
    started_ms: int
    rack: str | None = None
    features: Mapping[str, object] = MappingProxyType({})
    is_leaving: bool = False
    """Whether it is about to stop: it must not lead, and is not waited for."""
    unserved: frozenset[str] = frozenset()
    """Topics that it must not lead, because it cannot read a setting of theirs."""


def encode_broker(info: BrokerInfo) -> bytes:
    """The data of `broker_path`. `host` and `port` repeat a listener that speaks plaintext, as with Kafka."""
    plain = next((one for name, one in info.endpoints.items() if _is_plain(name, one)), None)
    fields: dict[str, object] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(info.started_ms),
        "endpoints": [
            f"{name}://{_bracketed(endpoint.host)}:{endpoint.port}"
            for name, endpoint in info.endpoints.items()
        ],
        "listener_security_protocol_map": {
            name: endpoint.security_protocol for name, endpoint in info.endpoints.items()
        },
        "features": dict(info.features),
    }
    varying = {name: one for name, one in info.endpoints.items() if one.is_arrival or one.networks}
    if varying:
        fields["advertised"] = {name: _varying_fields(one) for name, one in varying.items()}
    if info.rack is not None:
        fields["rack"] = info.rack
    if info.is_leaving:
        fields["leaving"] = True
    if info.unserved:
        fields["unserved"] = sorted(info.unserved)[:_UNSERVED_MAX]
    return json.dumps(fields, separators=(",", ":")).encode()


def _varying_fields(endpoint: Endpoint) -> dict[str, object]:
    """The addresses besides the endpoint's own."""
    networks = {str(network): str(address) for network, address in endpoint.networks}
    return {
        **({"arrival": True} if endpoint.is_arrival else {}),
        **({"networks": networks} if networks else {}),
    }


def _is_plain(name: str, endpoint: Endpoint) -> bool:
    """Whether Kafka's oldest clients can use it."""
    return endpoint.security_protocol == _PLAINTEXT and name in KAFKA_LISTENERS


def decode_broker(path: str, node: Node) -> BrokerInfo:
    """Raises `NodeDataError`."""
    try:
        fields = decode_node_json(node.data)
        return BrokerInfo(
            broker_id=int(path.rpartition("/")[2]),
            endpoints=_decode_endpoints(fields),
            started_ms=int(fields["timestamp"]),
            rack=fields.get("rack"),
            features=dict(fields.get("features", {})),
            is_leaving=fields.get("leaving") is True,
            unserved=frozenset(map(str, fields.get("unserved", ()))),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NodeDataError(f"the node {path} holds what cannot be read: {node.data!r}") from error


def _decode_endpoints(fields: Mapping[str, Any]) -> dict[str, Endpoint]:
    """Kafka's first version named no endpoints, the next ones named them by security protocol."""
    if "endpoints" not in fields:
        return {_PLAINTEXT: Endpoint(host=str(fields["host"]), port=int(fields["port"]))}
    protocols = fields.get("listener_security_protocol_map", {})
    varying = fields.get("advertised", {})
    endpoints = {}
    for text in fields["endpoints"]:
        match = re.fullmatch(_ENDPOINT, text)
        if match is None:
            raise ValueError(text)
        name, bracketed, plain, port = match.groups()
        endpoints[name] = Endpoint(
            host=plain if bracketed is None else bracketed,
            port=int(port),
            security_protocol=protocols.get(name, name),
            is_arrival=varying.get(name, {}).get("arrival") is True,
            networks=parse_networks(varying.get(name, {}).get("networks", {})),
        )
    return endpoints


async def read_brokers(tree: NodeTree) -> dict[int, BrokerInfo]:
    """Reads the brokers registered now, ids ascending. Raises `NodeDataError`, `NoNodeError`."""
    paths = [f"{BROKERS}/{name}" for name in await tree.children(BROKERS)]
    nodes = await tree.read_many(paths)
    infos = [
        decode_broker(path, node)
        for path, node in zip(paths, nodes, strict=True)
        if node is not None
    ]
    return {info.broker_id: info for info in sorted(infos, key=lambda info: info.broker_id)}


async def await_departure(tree: NodeTree, broker_id: int, *, wait_s: float) -> None:
    """Waits until no other session holds the broker id, at most `wait_s`.

    A broker that was killed finds its earlier session's node until that session has expired. Raises
    `BrokerIdInUseError` if the node is still there then.
    """
    path = broker_path(broker_id)
    changed = asyncio.Event()
    cancel = await tree.watch(path, lambda _: changed.set())
    try:
        holder = (await tree.read_many([path]))[0]
        async with asyncio.timeout(wait_s):
            while holder is not None and holder.owner != tree.session_id:
                await changed.wait()
                changed.clear()
                holder = (await tree.read_many([path]))[0]
    except TimeoutError as error:
        raise _in_use(broker_id, holder) from error
    finally:
        cancel()


async def register_broker(tree: NodeTree, info: BrokerInfo, *, wait_s: float = 0.0) -> None:
    """Announces the broker for as long as the session lives.

    Waits at most `wait_s` for another session to give the id up (`await_departure`). Raises
    `BrokerIdInUseError`.
    """
    await ensure_paths(tree, [BROKERS])
    holder = await _try_to_register(tree, info)
    if holder is not None and wait_s > 0:
        await await_departure(tree, info.broker_id, wait_s=wait_s)
        holder = await _try_to_register(tree, info)
    if holder is not None:
        raise _in_use(info.broker_id, holder)


async def update_registration(tree: NodeTree, info: BrokerInfo) -> None:
    """Replaces what this session's registration says.

    Raises `BrokerIdInUseError` when the node is another session's, `NoNodeError` when there is none,
    `ConnectionLostError` when the outcome is unknown.
    """
    path = broker_path(info.broker_id)
    node = await tree.read(path)
    if node.owner != tree.session_id:
        raise BrokerIdInUseError(f"broker id {info.broker_id} is in use by another session")
    data = encode_broker(info)
    if node.data != data:
        await commit(tree, [SetData(path, data, node.version)])


async def _try_to_register(tree: NodeTree, info: BrokerInfo) -> Node | None:
    """Returns None once the broker is registered; else the node of the id's other session."""
    path, data = broker_path(info.broker_id), encode_broker(info)
    try:
        await tree.create(path, data, ephemeral=True)
    except (NodeExistsError, ConnectionLostError) as error:
        node = (await tree.read_many([path]))[0]
        if node is None:
            if isinstance(error, ConnectionLostError):
                raise
            return await _try_to_register(tree, info)
        if node.owner != tree.session_id:
            return node
        # An answer was lost, or the broker registers again: the node is our own.
        await update_registration(tree, info)
    return None


def _in_use(broker_id: int, holder: Node | None) -> BrokerIdInUseError:
    data = b"" if holder is None else holder.data
    return BrokerIdInUseError(f"broker id {broker_id} is in use: {data.decode(errors='replace')}")


def _bracketed(host: str) -> str:
    """Puts IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
