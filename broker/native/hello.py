"""`hello`: agrees on the protocol version, and tells the client which broker it has reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.messages import (
    UNKNOWN_BROKER,
    UNKNOWN_CLOCK,
    VERSION_MAX,
    VERSION_MIN,
    Hello,
)

if TYPE_CHECKING:
    from echoless.broker.services import Services

_CLIENT_ID_LENGTH_MAX = 255


def handle(message: Hello, peer: Peer, services: Services) -> dict[str, Any]:
    """The version to be used from now on, and the broker's id, if the client need not log in first.

    Raises `KafkaError` UNSUPPORTED_VERSION.
    """
    if not VERSION_MIN <= message.version <= VERSION_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"version {message.version} is not spoken here, only {VERSION_MIN} to {VERSION_MAX}",
        )
    login = peer.login
    is_known = login is None or login.is_open
    peer.client_id = message.client_id[:_CLIENT_ID_LENGTH_MAX] or None
    return {
        "version": message.version,
        "version_min": VERSION_MIN,
        "version_max": VERSION_MAX,
        "broker_id": services.config.broker_id if is_known else UNKNOWN_BROKER,
        "cluster_id": services.cluster_id if is_known else "",
        "clock_ms": services.clock.trusted_wall_ms() if is_known else UNKNOWN_CLOCK,
    }
