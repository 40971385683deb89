"""`write_markers`: a coordinator ends transactions on partitions that this broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.network.request import Peer
from echoless.protocol.native.transactions import WriteMarkers, to_write_markers_answer

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: WriteMarkers, _peer: Peer, services: Services) -> dict[str, Any]:
    """Answers once each marker is committed, or refused."""
    return to_write_markers_answer(await services.markers.write(message.markers))
