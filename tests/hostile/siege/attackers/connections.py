"""Connections that take and do not give (item 3 of the issue)."""

from __future__ import annotations

import asyncio
import datetime
import random
from typing import Any

from tests.hostile.siege.attacker import Line, Repeated, Target, claim
from tests.hostile.target import API_VERSIONS
from tests.support.raw_client import message, nested

_FRAME_BYTES = 100_000_000
_HELD_S = 3.0


class LargeFrames(Repeated):
    name = "large-frames"
    does = "connections that announce 100 MB and send nothing, a byte now and then, or half of 1 MB"
    lanes = 16
    pause_s = 0.05

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(rng.choice((target.kafka, target.native)))
        try:
            size = rng.choice((_FRAME_BYTES, 70_000, 1_000_000))
            line.send_bytes(
                claim(size) + bytes(rng.choice((0, 4, size // 2 if size < 2**20 else 1)))
            )
            for _ in range(rng.randint(0, 10)):
                await asyncio.sleep(_HELD_S / 10)
                line.send_bytes(b"\0")
            return "held"
        finally:
            line.abort()


class NeverReading(Repeated):
    name = "never-reading"
    does = "fetches of everything, pipelined, whose answers are never read"
    lanes = 4

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.kafka)
        try:
            for _ in range(rng.randint(1, 100)):
                line.send_request(_fetch_everything())
            await asyncio.sleep(_HELD_S * rng.random())
            return "left unread"
        finally:
            line.abort()


def _fetch_everything() -> Any:
    row = nested("fetch", 11, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1
    )
    return message("fetch", 11, "Request")(
        max_wait=datetime.timedelta(0),
        min_bytes=1,
        topics=(nested("fetch", 11, "FetchTopic")(topic="good", partitions=(row,) * 20),),
        forgotten_topics_data=(),
    )


class ConnectionFlood(Repeated):
    name = "connection-flood"
    does = "hundreds of connections at once, idle, reset, or closed within a request"
    pause_s = 0.1

    async def attempt(self, target: Target, rng: random.Random) -> str:
        lines = await asyncio.gather(
            *(Line.open(target.kafka) for _ in range(rng.randint(10, 100))), return_exceptions=True
        )
        opened = [line for line in lines if isinstance(line, Line)]
        for line in opened:
            line.send_bytes(rng.choice((b"", b"\0\0", API_VERSIONS[:7], API_VERSIONS)))
        await asyncio.sleep(rng.random() / 2)
        for line in opened:
            line.abort()
        self.tries["connections"] += len(opened)
        return "flood"


class HalfOpen(Repeated):
    name = "half-open"
    does = "connections that end their side within a header, a frame or after a request"
    lanes = 2

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(rng.choice((target.kafka, target.native)))
        try:
            line.send_bytes(API_VERSIONS[: rng.randint(0, len(API_VERSIONS))])
            line.finish_sending()
            await line.wait_closed_by_broker()
            return "closed"
        finally:
            line.abort()


class Crawlers(Repeated):
    name = "crawlers"
    does = "requests sent one byte at a time"
    lanes = 8
    pause_s = 0.1

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.kafka)
        try:
            for byte in API_VERSIONS:
                line.send_bytes(bytes([byte]))
                await asyncio.sleep(0.1)
            return "answered" if await line.read_some() else "connection ended"
        finally:
            line.abort()
