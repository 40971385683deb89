"""The records of the client that behaves: the records follow from a batch's number alone."""

from __future__ import annotations

import struct
import time

from tests.support.raw_batches import Batch, plain_batch

TOPIC = "good"
BATCHES_PER_S = 100
RECORDS = 5
"""Records in each batch."""
_VALUE = struct.Struct(">qi")
_LARGE_EVERY = 20
_LARGE_BYTES = 16 * 1024
"""Size of each value in a large batch: the request is above the 64 KiB that need reserved memory."""


def batch(number: int, producer_id: int) -> Batch:
    """The batch with that number; its first record has the offset and sequence `number * RECORDS`."""
    padding = bytes(_LARGE_BYTES if number % _LARGE_EVERY == 0 else 80)
    values = [_VALUE.pack(number, index) + padding for index in range(RECORDS)]
    return plain_batch(
        values,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=number * RECORDS,
        timestamp=int(time.time() * 1000),
    )
