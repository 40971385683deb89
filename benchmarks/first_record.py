"""One idempotent record, from connecting to the acknowledgement, as fast as a client can be.

A raw connection, so that only the broker's time is measured: a new topic is requested until it has
a leader, a producer id until there is one, and sequence 0 is sent with acks=all. The versions are those that
librdkafka and the Java client choose.
"""

from __future__ import annotations

import asyncio
import datetime

from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, nested
from tests.support.raw_produce import PartitionData

_TOPIC = "first-record"
_RETRY_S = 0.005


def acknowledge_one(address: str) -> None:
    """Returns when the record is acknowledged."""
    asyncio.run(_acknowledge_one(address))


async def _acknowledge_one(address: str) -> None:
    connection = await RawConnection.open(address)
    try:
        await connection.call(
            "api_versions", 3, client_software_name="first-record", client_software_version="1"
        )
        await _until_led(connection)
        producer_id = await _producer_id(connection)
        batch = plain_batch([b"first"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        row = PartitionData(_TOPIC, 0, batch.encode())
        (answer,) = await connection.produce(9, -1, [row])
        assert answer.error == 0, answer
    finally:
        await connection.close()


async def _until_led(connection: RawConnection) -> None:
    wanted = nested("metadata", 12, "MetadataRequestTopic")(topic_id=None, name=_TOPIC)
    while True:
        response = await connection.call(
            "metadata",
            12,
            topics=(wanted,),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        partitions = response.topics[0].partitions
        if partitions and partitions[0].leader_id >= 0:
            return
        await asyncio.sleep(_RETRY_S)


async def _producer_id(connection: RawConnection) -> int:
    while True:
        response = await connection.call(
            "init_producer_id",
            4,
            transactional_id=None,
            transaction_timeout=datetime.timedelta(milliseconds=2**31 - 1),
            producer_id=-1,
            producer_epoch=-1,
        )
        if response.error_code == 0:
            return int(response.producer_id)
        await asyncio.sleep(_RETRY_S)
