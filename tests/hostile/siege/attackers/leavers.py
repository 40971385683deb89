"""Clients that ask, and are gone before the answer (item 6 of the issue)."""

from __future__ import annotations

import asyncio
import datetime
import random

from tests.hostile.siege.attacker import Line, Repeated, Target
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import message, nested
from tests.support.raw_produce import PartitionData

_TOPIC = "left"


class Leavers(Repeated):
    name = "leavers"
    does = "produces of acks=all, and fetches that wait for data, whose clients disconnect at once"
    lanes = 4

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.kafka)
        try:
            fetch = _waiting_fetch(rng.choice((_TOPIC, "good")))
            row = PartitionData(_TOPIC, 0, plain_batch([b"x"]).encode())
            for _ in range(rng.randint(1, 60)):
                if rng.random() < 0.5:
                    line.send_produce(7, -1, [row])
                else:
                    line.send_request(fetch)
            await line.drain()
            await asyncio.sleep(rng.random() / 20)
            return "left"
        finally:
            line.abort()


def _waiting_fetch(topic: str) -> object:
    row = nested("fetch", 11, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=1_000_000
    )
    return message("fetch", 11, "Request")(
        max_wait=datetime.timedelta(minutes=10),
        min_bytes=2**31 - 1,
        topics=(nested("fetch", 11, "FetchTopic")(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
    )
