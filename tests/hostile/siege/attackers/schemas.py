"""The schema fuzz (`tests/hostile/fuzz`) as one attacker among the others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import uuid

from tests.hostile.fuzz.kafka_requests import kafka_request
from tests.hostile.fuzz.native_messages import native_message
from tests.hostile.fuzz.values import TOPICS
from tests.hostile.siege.attacker import Line, Repeated, Target
from tests.hostile.target import framed
from tests.support.native_client import NativeConnection

_NATIVE_SHARE = 0.2
_ANSWER_WAIT_S = 0.05
"""A fetch that waits for data is left waiting."""
_TOPICS_EVERY = 200


class SchemaFuzz(Repeated):
    name = "schema-fuzz"
    does = "every API, version and native message from its schema, each field hostile at some rate"
    lanes = 2

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._topic_ids: list[uuid.UUID] = []

    async def attempt(self, target: Target, rng: random.Random) -> str:
        number = next(self._numbers)
        if number % _TOPICS_EVERY == 0:
            self._topic_ids = await _learn_topic_ids(target)
        is_native = rng.random() < _NATIVE_SHARE
        write = native_message if is_native else kafka_request
        frame = framed(write(rng, number, self._topic_ids))
        line = await Line.open(target.native if is_native else target.kafka)
        try:
            line.send_bytes(frame)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_WAIT_S):
                    return "answered" if await line.read_some() else "connection ended"
            return "left waiting"
        finally:
            line.abort()


async def _learn_topic_ids(target: Target) -> list[uuid.UUID]:
    """Creates the topics that plausible requests name, and learns their ids."""
    connection = await NativeConnection.open(target.native)
    try:
        for topic in TOPICS:
            await connection.call("create_topic", topic=topic, partitions=2, replication_factor=1)
        answer = await connection.call("metadata", topics=list(TOPICS))
        return [uuid.UUID(row["topic_id"]) for row in answer["topics"] if row.get("topic_id")]
    finally:
        await connection.close()
