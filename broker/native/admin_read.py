"""`admin_read`: an admin document for another broker, whose console shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.network.request import Peer
from echoless.protocol.native.admin_read import AdminRead

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: AdminRead, _peer: Peer, services: Services) -> dict[str, Any]:
    """The status and the document as JSON; what may not be shown is a status too."""
    status, document = await services.read_admin(message)
    return {"status": int(status), "document": document}
