"""Everything that a broker has stored, read back with a raw client and aiokafka's record reader."""

from __future__ import annotations

import asyncio

from tests.support.raw_client import RawConnection, fetch_log


def read_stored_values(address: str, topic: str, partitions: int) -> list[list[bytes]]:
    """The record values of each partition, in offset order without a gap."""
    return asyncio.run(stored_values(address, topic, partitions))


async def stored_values(address: str, topic: str, partitions: int) -> list[list[bytes]]:
    """The same, for a caller that has an event loop."""
    connection = await RawConnection.open(address)
    try:
        return [await _read_partition(connection, topic, index) for index in range(partitions)]
    finally:
        await connection.close()


async def _read_partition(connection: RawConnection, topic: str, partition: int) -> list[bytes]:
    from aiokafka.record.memory_records import MemoryRecords

    values: list[bytes] = []
    for batch in await fetch_log(connection, topic, partition):
        assert batch.crc_is_right, f"{topic}-{partition} at {batch.base_offset}"
        reader = MemoryRecords(batch.data).next_batch()
        for record in reader:
            assert record.offset == len(values), "offsets have a gap"
            values.append(record.value)
    return values
