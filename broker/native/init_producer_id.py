"""`init_producer_id`: a new producer id with epoch 0, from the same blocks as on the Kafka port."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers.init_producer_id import next_producer_id
from echoless.broker.network.request import Peer
from echoless.protocol.native.messages import InitProducerId

if TYPE_CHECKING:
    from echoless.broker.services import Services


def handle(
    _message: InitProducerId, peer: Peer, services: Services
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """Waits only while the next block is still being claimed."""
    producer_id = next_producer_id(services, peer)
    if isinstance(producer_id, int):
        return _answer(producer_id)
    return _answer_later(producer_id)


async def _answer_later(producer_id: Awaitable[int]) -> dict[str, Any]:
    return _answer(await producer_id)


def _answer(producer_id: int) -> dict[str, Any]:
    return {"producer_id": producer_id, "producer_epoch": 0}
