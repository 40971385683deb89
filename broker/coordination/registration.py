"""A broker's own node: while it is there, the broker is alive.

The node is ephemeral, its JSON is Kafka's version 5. Called by the server at its start and after a
new session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.coordination.node_data import BROKERS, broker_path
from broker.coordination.node_tree import (
    ConnectionLostError,
    CoordinationError,
    NodeExistsError,
    NodeTree,
    ensure_paths,
)

_PLAINTEXT: Final = "PLAINTEXT"


class BrokerIdInUseError(CoordinationError):
    """A broker with this id is alive."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Endpoint:
    """Where a listener can be reached."""

    host: str
    port: int
    security_protocol: str = _PLAINTEXT


@dataclass(slots=True, frozen=True, kw_only=True)
class BrokerInfo:
    """What the others need to know of a broker."""

    broker_id: int
    endpoints: Mapping[str, Endpoint]
    """By listener name: `PLAINTEXT` for Kafka's protocol, `NATIVE` for ours."""
    started_ms: int
    rack: str | None = None
    features: Mapping[str, object] = field(default_factory=dict)


def encode_broker(info: BrokerInfo) -> bytes:
    """The data of `broker_path`. `host` and `port` repeat the plaintext listener, as with Kafka."""
    plain = info.endpoints.get(_PLAINTEXT)
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
    if info.rack is not None:
        fields["rack"] = info.rack
    return json.dumps(fields, separators=(",", ":")).encode()


async def register_broker(tree: NodeTree, info: BrokerInfo) -> None:
    """Announces the broker for as long as the session lives.

    Raises `BrokerIdInUseError` when the id is taken by another session.
    """
    await ensure_paths(tree, [BROKERS])
    path, data = broker_path(info.broker_id), encode_broker(info)
    try:
        await tree.create(path, data, ephemeral=True)
    except (NodeExistsError, ConnectionLostError) as error:
        node = (await tree.read_many([path]))[0]
        if node is None:
            raise
        if node.owner != tree.session_id:  # else an answer was lost, and the node is our own
            raise BrokerIdInUseError(
                f"broker id {info.broker_id} is in use: {node.data.decode(errors='replace')}"
            ) from error


def _bracketed(host: str) -> str:
    """IPv6 addresses stand in brackets."""
    return f"[{host}]" if ":" in host else host
