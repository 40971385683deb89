"""`hello`: agrees on the protocol version, and tells the client which broker it has reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.network.request import Peer
from protocol.errors import ErrorCode, KafkaError
from protocol.native.messages import VERSION_MAX, VERSION_MIN, Hello

if TYPE_CHECKING:
    from broker.services import Services

_CLIENT_ID_LENGTH_MAX = 255


def handle(message: Hello, peer: Peer, services: Services) -> dict[str, Any]:
    """The version to be used from here on. Raises `KafkaError` UNSUPPORTED_VERSION."""
    if not VERSION_MIN <= message.version <= VERSION_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"version {message.version} is not spoken here, only {VERSION_MIN} to {VERSION_MAX}",
        )
    peer.client_id = message.client_id[:_CLIENT_ID_LENGTH_MAX] or None
    return {
        "version": message.version,
        "version_min": VERSION_MIN,
        "version_max": VERSION_MAX,
        "broker_id": services.config.broker_id,
        "cluster_id": services.cluster_id,
    }
