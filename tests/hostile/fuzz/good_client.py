"""A client that behaves: one idempotent record after the other, and how long each took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.support.native_client import NativeConnection
from tests.support.queued_time import queued_s

TOPIC = "the-good-client"


class GoodClient:
    """Produces on the native port, where a record is a number; each waits for its answer."""

    def __init__(self, native_address: str, broker: int) -> None:
        """`broker` is its process."""
        self._address = native_address
        self._broker = broker
        self.waits_s: list[float] = []

    async def produce_while(self, condition: Callable[[], bool]) -> None:
        connection = await NativeConnection.open(self._address)
        await _succeeded(connection, "create_topic", topic=TOPIC, partitions=1)
        identity = await _succeeded(connection, "init_producer_id")
        while condition():
            number = len(self.waits_s)
            began = time.monotonic() - self._queued_s()
            answer = await _succeeded(
                connection,
                "produce",
                topic=TOPIC,
                partition=0,
                producer_id=identity["producer_id"],
                producer_epoch=identity["producer_epoch"],
                base_sequence=number,
                records=[{"value": b"%d" % number}],
            )
            self.waits_s.append(max(time.monotonic() - self._queued_s() - began, 0.0))
            assert answer["base_offset"] == number
            await asyncio.sleep(0.002)
        await connection.close()

    def _queued_s(self) -> float:
        """The time for which the machine ran neither the broker's event loop nor this one, though they could run."""
        return queued_s() + queued_s(self._broker)

    async def read_all(self) -> list[bytes]:
        """The stored values."""
        connection = await NativeConnection.open(self._address)
        values: list[bytes] = []
        while True:
            answer = await _succeeded(
                connection, "fetch", topic=TOPIC, partition=0, offset=len(values), max_wait_ms=0
            )
            values += [record["value"] for record in answer["records"]]
            if len(values) >= answer["high_watermark"]:
                await connection.close()
                return values


async def _succeeded(connection: NativeConnection, name: str, **fields: Any) -> dict[str, Any]:
    answer = await connection.call(name, **fields)
    assert answer["error"]["code"] == 0, answer
    return answer
