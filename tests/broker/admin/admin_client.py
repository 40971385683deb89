"""A client of one admin port, and what to have decided for it."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from broker.admin.server import AdminServer
from broker.decisions import FaultedBatch, FaultHit
from broker.request import Peer, Request
from protocol.dedup import Reject
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader
from protocol.record_batch import BatchHeader
from storage.log import Appended
from tests.broker.admin.fake_broker import FakeBroker


class AdminClient:
    """Asks over real HTTP."""

    def __init__(
        self, broker: FakeBroker, server: AdminServer, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.broker = broker
        self._server = server
        self._is_stopped = False
        self.url = url
        self.session = session

    async def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        async with self.session.request(method, self.url + path) as response:
            return response.status, json.loads(await response.text())

    async def stop(self) -> None:
        """Stops the port, once."""
        if not self._is_stopped:
            self._is_stopped = True
            await self._server.stop()

    async def text(self, path: str) -> str:
        async with self.session.get(self.url + path) as response:
            return await response.text()

    def append(self, producer_id: int = 7, base_sequence: int = 0, topic: str = "orders") -> None:
        """The broker has appended a batch of two records."""
        result = Appended(base_offset=4, last_offset=5, timestamp=0, log_append_time=-1)
        self._decide(producer_id, base_sequence, topic, result)

    def refuse(self, producer_id: int = 7, base_sequence: int = 9, topic: str = "orders") -> None:
        """The broker has refused a batch of two records."""
        reject = Reject(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence 9 does not follow 1")
        self._decide(producer_id, base_sequence, topic, reject)

    def hit(self, producer_id: int = 7, base_sequence: int = 0) -> None:
        """The broker has lost an acknowledgement on purpose."""
        batch = FaultedBatch("orders", 0, producer_id, 2, base_sequence, base_sequence + 1)
        self.broker.decisions.record_fault(
            FaultHit(
                0, 1000, "lose-acks", "drop_response", "produce", 1, 1, "billing",
                "10.0.0.1:5000", (batch,),
            )
        )  # fmt: skip

    def _decide(
        self, producer_id: int, base_sequence: int, topic: str, result: Appended | Reject
    ) -> None:
        header = BatchHeader(0, 100, 0, 2, 5, 0, 1, 0, 0, producer_id, 2, base_sequence, 2)
        request = Request(RequestHeader(0, 9, 1, "billing", 0), None, Peer(1, "10.0.0.1:5000"))
        partition: Any = self.broker.partitions[topic, 0]
        self.broker.decisions.record(request, partition, header, result, 1000)
