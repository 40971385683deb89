"""A client that behaves: one idempotent record after the other, and how long each took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.support.native_client import NativeConnection

TOPIC = "the-good-client"


class GoodClient:
    """Produces on the native port, where a record is a number; each waits for its answer."""

    def __init__(self, native_address: str) -> None:
        self._address = native_address
        self.waits_s: list[float] = []

    async def produce_while(self, condition: Callable[[], bool]) -> None:
        connection = await NativeConnection.open(self._address)
        await _succeeded(connection, "create_topic", topic=TOPIC, partitions=1)
        identity = await _succeeded(connection, "init_producer_id")
        while condition():
            number = len(self.waits_s)
            began = time.monotonic()
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
            self.waits_s.append(time.monotonic() - began)
            assert answer["base_offset"] == number
            await asyncio.sleep(0.002)
        await connection.close()

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
