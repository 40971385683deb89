"""`add_or_verify`: the leaders of partitions ask the coordinator of transactional ids, before a producer's batch is appended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from echoless.broker.network.request import Peer
from echoless.protocol.native.transactions import AddOrVerify, to_add_or_verify_answer

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: AddOrVerify, _peer: Peer, services: Services) -> dict[str, Any]:
    """One row per transaction, once what was added is committed."""
    each = map(services.transactions.answer, message.transactions)
    return to_add_or_verify_answer(await asyncio.gather(*each))
