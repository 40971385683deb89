"""Records of one producer in t-0, for the APIs that show or delete them."""

from __future__ import annotations

from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection
from tests.support.raw_produce import PartitionData


async def produce(kafka: RawConnection, count: int, producer_id: int = 7) -> None:
    """Appends `count` batches of one record to t-0."""
    for sequence in range(count):
        batch = plain_batch(
            [b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, batch.encode())])
        assert answer.error == 0
