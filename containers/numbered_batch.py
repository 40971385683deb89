"""A batch with exact numbers on the native port, sent as often as needed: is a repeat recognised?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tests.support.native_client import NativeConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedBatch:
    """Three records of one producer, the same in every request."""

    topic: str
    producer_id: int
    base_sequence: int
    partition: int = 0

    def send(self, native_address: str) -> dict[str, Any]:
        """The broker's answer, with acks=all: `base_offset`, `duplicate`."""
        answer = _call(
            native_address,
            "produce",
            topic=self.topic,
            partition=self.partition,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.base_sequence,
            records=[{"value": str(self.base_sequence + index)} for index in range(3)],
        )
        assert answer["error"]["name"] == "NONE", answer
        return answer


def new_producer_id(native_address: str) -> int:
    """An id that no other producer has."""
    producer_id: int = _call(native_address, "init_producer_id")["producer_id"]
    return producer_id


def create_topic(native_address: str, topic: str) -> None:
    """Creates it with the broker's default numbers of partitions and replicas, unless it exists."""
    _call(native_address, "metadata", topics=[topic], may_create=True)


def _call(native_address: str, message: str, **fields: Any) -> dict[str, Any]:
    async def call() -> dict[str, Any]:
        connection = await NativeConnection.open(native_address)
        answer = await connection.call(message, **fields)
        await connection.close()
        return answer

    return asyncio.run(call())
