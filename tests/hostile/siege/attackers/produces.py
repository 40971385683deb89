"""Produces that the broker has to refuse, or to recognise (items 9 and 13 of the issue)."""

from __future__ import annotations

import random

from tests.hostile.siege.attacker import Line, OnOneLine
from tests.support.raw_batches import plain_batch
from tests.support.raw_produce import PartitionData

_TOPIC = "produced"
_ERROR_NAMES = {45: "out of order", 47: "old epoch", 59: "unknown producer", 0: "acknowledged"}


async def _produce(line: Line, *, id_: int, epoch: int, sequence: int, value: bytes) -> str:
    batch = plain_batch(
        [value], producer_id=id_, producer_epoch=epoch, base_sequence=sequence
    ).encode()
    (row,) = await line.produce(7, -1, [PartitionData(_TOPIC, 0, batch)])
    return _ERROR_NAMES.get(row.error, f"error {row.error}")


class RefusedProduces(OnOneLine):
    name = "refused-produces"
    does = "batches out of order, of old epochs, and of producers that are not known (45, 47, 59)"
    lanes = 2
    pause_s = 0.005

    async def ask(self, line: Line, rng: random.Random) -> str:
        return await _produce(
            line,
            id_=rng.randrange(20),
            epoch=rng.choice((0, 1, 32767)),
            sequence=rng.choice((0, 1, 7, 2**31 - 1)),
            value=b"x",
        )


class DivergentDuplicates(OnOneLine):
    name = "divergent-duplicates"
    does = "the same producer id, epoch and sequence with other bytes"

    async def ask(self, line: Line, rng: random.Random) -> str:
        sequence = rng.randrange(3)
        return await _produce(line, id_=1000, epoch=0, sequence=sequence, value=rng.randbytes(8))


class FreshProducers(OnOneLine):
    name = "fresh-producers"
    does = "each batch of another producer id, so that the broker has to remember it"
    lanes = 2
    pause_s = 0.005

    async def ask(self, line: Line, rng: random.Random) -> str:
        return await _produce(line, id_=rng.getrandbits(40), epoch=0, sequence=0, value=b"x")


class Unacknowledged(OnOneLine):
    name = "unacknowledged"
    does = "floods of acks=0, half of them refused, which ends the connection"

    async def ask(self, line: Line, rng: random.Random) -> str:
        batch = plain_batch([b"x"] * 10)
        batch.crc = rng.choice((None, 1))
        row = PartitionData(_TOPIC, 0, batch.encode())
        for _ in range(rng.randint(1, 30)):
            line.send_produce(7, 0, [row])
        await line.produce(7, 1, [PartitionData(_TOPIC, 0, plain_batch([b"x"]).encode())])
        return "followed by an answer"
