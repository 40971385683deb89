"""The producer against a real Apache Kafka, whose answers differ from ours where it matters."""

from __future__ import annotations

import uuid

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.errors import DeliveryError
from echoless.client.sequencer_actions import AfterFailure, Failure
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.protocol.records import Record
from tests.support.raw_client import RawConnection, create_topic, fetch_log

pytestmark = pytest.mark.kafka
QUICK = Settings(retry_backoff_s=0.001, retry_backoff_max_s=0.01)
VALUES = [b"%d" % number for number in range(40)]


@pytest.fixture(params=["apache_kafka", "apache_kafka_4"], ids=["3.9", "4"])
def kafka(request):
    """One broker of each version that matters."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def topic(kafka):
    """A new one, which keeps old timestamps."""
    name = f"client-{uuid.uuid4()}"
    connection = await RawConnection.open(kafka.address)
    await create_topic(connection, name, 1, {"retention.ms": "-1", "max.message.bytes": "1000"})
    await connection.close()
    return name


def records(values):
    return [Record(-1, 1000 + n, None, value) for n, value in enumerate(values)]


async def send(producer, topic, values, count):
    """Sends batches of `count`, each awaited before the next."""
    found = []
    for position in range(0, len(values), count):
        found += await producer.send_batch(topic, 0, records(values[position : position + count]))
    return found


async def stored_values(address, topic):
    from aiokafka.record.memory_records import MemoryRecords

    connection = await RawConnection.open(address)
    batches = await fetch_log(connection, topic, 0)
    await connection.close()
    return [record.value for one in batches for record in MemoryRecords(one.data).next_batch()]


@pytest.mark.parametrize("count", [4, 3, 40], ids=["same cuts", "other cuts", "one batch"])
async def test_replay_older_than_the_window_stores_nothing_twice(kafka, topic, count):
    """Kafka answers 45 to old repeats and to other cuts; the last sequence settles it."""
    async with AsyncProducer(kafka.address, QUICK) as producer:
        saved = producer.state()
        await send(producer, topic, VALUES, 4)
    async with AsyncProducer.resume(saved, kafka.address, QUICK) as producer:
        again = await send(producer, topic, VALUES, count)
        (new,) = await send(producer, topic, [b"new"], 1)
    assert [one.sequence for one in again] == list(range(40))
    assert new.offset == 40
    assert await stored_values(kafka.address, topic) == [*VALUES, b"new"]


async def test_repeat_inside_the_window_has_its_offset(kafka, topic):
    """The newest batches are reported with their first offsets, as duplicates."""
    async with AsyncProducer(kafka.address, QUICK) as producer:
        saved = producer.state()
        await send(producer, topic, VALUES[:6], 3)
    async with AsyncProducer.resume(saved, kafka.address, QUICK) as producer:
        again = await send(producer, topic, VALUES[:6], 3)
    assert [(one.offset, one.is_duplicate) for one in again] == [(n, True) for n in range(6)]


async def test_fresh_records_are_known_to_be_no_duplicates(kafka, topic):
    """A resumed producer's new records, too: the broker's answer shows it."""
    saved = ProducerState(producer_id=2**40 + len(topic), producer_epoch=0)
    async with AsyncProducer.resume(saved, kafka.address, QUICK) as producer:
        found = await send(producer, topic, VALUES[:6], 3)
    assert [(one.offset, one.is_duplicate) for one in found] == [(n, False) for n in range(6)]


async def test_state_that_kafka_has_forgotten_is_refused(kafka, topic):
    """Kafka would store what an unknown producer sends, at any sequence; so nothing is sent."""
    async with AsyncProducer(kafka.address, QUICK) as producer:
        await send(producer, topic, VALUES, 40)
        state = producer.state()
    text = state.to_json().replace(
        f'"producer_id": {state.producer_id}', '"producer_id": 987654321'
    )
    producer = AsyncProducer.resume(text, kafka.address, QUICK)
    await producer.start()
    with pytest.raises(DeliveryError) as caught:
        await send(producer, topic, VALUES, 40)
    assert caught.value.failure is Failure.FORGOTTEN
    await producer.close()
    assert await stored_values(kafka.address, topic) == VALUES


async def test_new_epoch_is_accepted_and_fences_the_old_state(kafka, topic):
    """The epoch is raised by the client alone; the old state cannot store anything any more."""
    settings = Settings(after_failure=AfterFailure.NEW_EPOCH, retry_backoff_s=0.001)
    producer = AsyncProducer(kafka.address, settings)
    await producer.start()
    await send(producer, topic, [b"first"], 1)
    saved = producer.state()
    with pytest.raises(DeliveryError, match=r"not stored"):
        await send(producer, topic, [b"x" * 2000], 1)
    (later,) = await send(producer, topic, [b"later"], 1)
    assert (later.producer_epoch, later.sequence, later.offset) == (1, 0, 1)
    await producer.close()
    old = AsyncProducer.resume(saved, kafka.address, QUICK)
    await old.start()
    with pytest.raises(DeliveryError) as caught:
        await send(old, topic, [b"old"], 1)
    assert caught.value.failure is Failure.FENCED
    await old.close()
    assert await stored_values(kafka.address, topic) == [b"first", b"later"]


async def test_batch_above_the_topics_limit_is_divided(kafka, topic):
    """10 in Kafka as well: halves under the same numbers."""
    async with AsyncProducer(kafka.address, QUICK) as producer:
        found = await send(producer, topic, [b"x" * 300] * 8, 8)
    assert [(one.offset, one.sequence) for one in found] == [(n, n) for n in range(8)]
