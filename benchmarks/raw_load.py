"""Ready-made batches over a raw connection: a client that costs next to nothing.

Batches are built before the clock starts; five requests are in flight, as with every idempotent
client.
"""

from __future__ import annotations

import datetime
import os
import time

from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

_IN_FLIGHT = 5
_VERSION = 9
_RECORD_BYTES_MAX = 16_384
_TOPIC_COUNT = iter(range(1_000_000))


async def send_batches(
    address: str, batch_bytes: int, count: int, *, idempotent: bool = True, topic: str | None = None
) -> float:
    """Seconds from the first request to the last acknowledgement.

    `topic` must exist; None creates a new one.
    """
    connection = await RawConnection.open(address)
    try:
        if topic is None:
            topic = f"raw-{os.getpid()}-{next(_TOPIC_COUNT)}"
            await create_topic(connection, topic, 1)
        rows = await _rows(connection, topic, batch_bytes, count, idempotent=idempotent)
        begin = time.perf_counter()
        for number, row in enumerate(rows):
            if number >= _IN_FLIGHT:
                await _receive(connection)
            connection.send_produce(_VERSION, -1, [row])
        for _ in range(min(_IN_FLIGHT, count)):
            await _receive(connection)
        return time.perf_counter() - begin
    finally:
        await connection.close()


async def _receive(connection: RawConnection) -> None:
    (answer,) = await connection.receive_produce(_VERSION)
    assert answer.error == 0, answer


async def _rows(
    connection: RawConnection, topic: str, batch_bytes: int, count: int, *, idempotent: bool
) -> list[PartitionData]:
    records = max(1, batch_bytes // _RECORD_BYTES_MAX)
    values = [os.urandom(batch_bytes // records)] * records
    now_ms = time.time_ns() // 1_000_000
    if not idempotent:
        batch = plain_batch(values, timestamp=now_ms).encode()
        return [PartitionData(topic, 0, batch)] * count
    response = await connection.call(
        "init_producer_id",
        2,
        transactional_id=None,
        transaction_timeout=datetime.timedelta(seconds=60),
    )
    return [
        PartitionData(
            topic,
            0,
            plain_batch(
                values,
                producer_id=response.producer_id,
                producer_epoch=0,
                base_sequence=number * records,
                timestamp=now_ms,
            ).encode(),
        )
        for number in range(count)
    ]
