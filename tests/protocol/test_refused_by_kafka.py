"""The table of refused batches against a real Apache Kafka: where we say "as Kafka", it is."""

from __future__ import annotations

import pytest

from tests.protocol.refused_batches import (
    BATCH,
    COMPRESSED,
    CONTAINER,
    FIELDS,
    FRAMING,
    NO_ANSWER,
    ORDER,
    UNUSUAL_RECORDS,
    rows,
)
from tests.support.raw_batches import Batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

pytestmark = pytest.mark.kafka
ALL = CONTAINER + BATCH + ORDER + FRAMING + FIELDS + COMPRESSED
ANSWERED = [row for row in ALL if row.kafka != NO_ANSWER]


@pytest.fixture(scope="module")
def topics():
    """The topics that exist by now, one for each limit of size."""
    return set()


async def answer(address, topics, row):
    """The answer of the broker at `address` to the row's records."""
    topic = f"refused-{row.bytes_max}"
    connection = await RawConnection.open(address)
    try:
        if topic not in topics:
            await create_topic(connection, topic, 1, {"max.message.bytes": str(row.bytes_max)})
            topics.add(topic)
        data = PartitionData(topic, 0, row.records)
        (partition,) = await connection.produce(row.produce_version, -1, [data])
        return partition.error
    finally:
        await connection.close()


@rows(ANSWERED)
async def test_kafka_answers_as_the_table_says(apache_kafka, topics, row):
    """The code of each row, or where we differ on purpose the one noted beside it."""
    expected = row.code if row.kafka is None else row.kafka
    assert await answer(apache_kafka.address, topics, row) == expected


@pytest.mark.parametrize("index", range(len(UNUSUAL_RECORDS)))
async def test_kafka_takes_unusual_records(apache_kafka, topics, index):
    """Kafka appends everything that `check_records` accepts."""
    batch = Batch(payload=UNUSUAL_RECORDS[index], record_count=1).encode()
    row = BATCH[0]._replace(records=batch)
    assert await answer(apache_kafka.address, topics, row) == 0
