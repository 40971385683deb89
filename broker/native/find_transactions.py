"""`find_transactions`: the leader of a partition asks for the transactions of producers that have not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.network.request import Peer
from echoless.protocol.native.find_transactions import FindTransactions

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: FindTransactions, _peer: Peer, services: Services) -> dict[str, Any]:
    """Looks at every id that this broker coordinates, in turns."""
    return (await services.transactions.find_open(message.producer_ids)).to_answer()
