"""The producer against a broker in this process, directly and through a proxy that loses answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.sequencer_actions import AfterFailure, Failure
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record
from tests.support.in_process import in_process
from tests.support.lossy_proxy import LossyProxy
from tests.support.raw_client import RawConnection, fetch_log

TOPIC = "orders"
QUICK = Settings(retry_backoff_s=0.001, retry_backoff_max_s=0.01)


async def stored(address, partition=0):
    """The batches of the partition, as they lie in the log."""
    connection = await RawConnection.open(address)
    try:
        return await fetch_log(connection, TOPIC, partition)
    finally:
        await connection.close()


async def stored_values(address, partition=0):
    from aiokafka.record.memory_records import MemoryRecords

    batches = await stored(address, partition)
    return [record.value for one in batches for record in MemoryRecords(one.data).next_batch()]


def records(*values):
    return [Record(-1, 1_795_000_000_000 + n, None, value) for n, value in enumerate(values)]


async def test_acknowledgement_tells_everything(tmp_path: Path) -> None:
    """Topic, partition, offset, producer id, epoch, sequence, and whether it was there before."""
    async with in_process(tmp_path) as running, AsyncProducer(running.kafka_address) as producer:
        first = await producer.send(TOPIC, b"one", partition=0)
        second = await producer.send(TOPIC, b"two", partition=0)
        identity = producer.state().producer_id
        assert tuple(await second) == (TOPIC, 0, 1, identity, 0, 1, False)
        assert tuple(await first) == (TOPIC, 0, 0, identity, 0, 0, False)


async def test_same_calls_make_the_same_bytes(tmp_path: Path) -> None:
    """With given timestamps and codec, two runs from one state send the same batches."""
    logs = []
    for number in range(2):
        async with (
            in_process(tmp_path / str(number)) as running,
            AsyncProducer(
                running.kafka_address,
                Settings(batch_records_max=3, batch_bytes_max=120, compression=Codec.ZSTD),
                state=ProducerState(producer_id=9, producer_epoch=1),
            ) as producer,
        ):
            for value in range(20):
                await producer.send(
                    TOPIC, b"x" * value, partition=0, timestamp_ms=1_795_000_000_000 + value
                )
            await producer.flush()
            logs.append([one.data for one in await stored(running.kafka_address)])
    assert len(logs[0]) > 5
    assert logs[0] == logs[1]


async def test_key_decides_the_partition_as_in_kafka(tmp_path: Path) -> None:
    """Keys go where Kafka's own client puts them: murmur2 of the key."""
    async with (
        in_process(tmp_path, num_partitions=4) as running,
        AsyncProducer(running.kafka_address) as producer,
    ):
        keys = [b"", b"a", b"customer-17", bytes(range(60))]
        sent = [await producer.send(TOPIC, b"v", key=key) for key in keys]
        from kafka.partitioner.default import murmur2

        found = [(await delivery).partition for delivery in sent]
        assert found == [(murmur2(key) & 0x7FFFFFFF) % 4 for key in keys]
        with pytest.raises(ValueError, match="partition"):
            await producer.send(TOPIC, b"v")


async def test_resumed_producer_stores_nothing_twice(tmp_path: Path) -> None:
    """Records sent after the state was taken are resent, and acknowledged as stored before."""
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address) as producer:
            await producer.send_batch(TOPIC, 0, records(b"a", b"b"))
            saved = producer.state().to_json()
            await producer.send_batch(TOPIC, 0, records(b"c", b"d"))
            await producer.send_batch(TOPIC, 1 - 1, records(b"e"))
        async with AsyncProducer.resume(saved, running.kafka_address) as producer:
            again = await producer.send_batch(TOPIC, 0, records(b"c", b"d"))
            assert [one.offset for one in again] == [2, 3]
            assert all(one.is_duplicate for one in again)
            await producer.send_batch(TOPIC, 0, records(b"e"))
            (new,) = await producer.send_batch(TOPIC, 0, records(b"f"))
            assert (new.offset, new.sequence) == (5, 5)
        assert await stored_values(running.kafka_address) == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("cuts", [(3, 3, 3), (1,) * 9, (4, 4, 1), (9,), (2, 6, 1)], ids=str)
async def test_replay_may_be_cut_elsewhere(tmp_path: Path, cuts) -> None:
    """Numbers belong to records, not to batches: other settings in the second run do no harm."""
    values = [b"%d" % number for number in range(9)]
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address) as producer:
            saved = producer.state()
            await producer.send_batch(TOPIC, 0, records(*values[:3]))
            await producer.send_batch(TOPIC, 0, records(*values[3:5]))
        async with AsyncProducer.resume(saved, running.kafka_address) as producer:
            position = 0
            for count in cuts:
                await producer.send_batch(TOPIC, 0, records(*values[position : position + count]))
                position += count
        assert await stored_values(running.kafka_address) == values


async def test_two_runs_from_one_state_store_everything_once(tmp_path: Path) -> None:
    """A copier that was started twice by mistake does no harm."""
    values = [b"%d" % number for number in range(400)]
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address) as producer:
            saved = producer.state()

        async def copy() -> None:
            settings = Settings(batch_records_max=3, retry_backoff_s=0.001)
            async with AsyncProducer.resume(saved, running.kafka_address, settings) as twin:
                for value in values:
                    await twin.send(TOPIC, value, partition=0, timestamp_ms=1_795_000_000_000)

        await asyncio.gather(copy(), copy())
        assert await stored_values(running.kafka_address) == values


async def test_lost_acknowledgements_do_no_harm(tmp_path: Path) -> None:
    """Answers are swallowed and connections cut; every record is stored once, in order."""
    with LossyProxy(3) as proxy:
        host, _, port = proxy.address.rpartition(":")
        from echoless.broker.config.loading import Address

        advertised = Address(host, int(port))
        async with in_process(tmp_path, num_partitions=2, advertise=(advertised,)) as running:
            proxy.target = running.kafka_address
            settings = Settings(
                batch_records_max=5, retry_backoff_s=0.001, retry_backoff_max_s=0.01
            )
            async with AsyncProducer(proxy.address, settings) as producer:
                for number in range(400):
                    await producer.send(TOPIC, b"%d" % number, partition=number % 2)
            assert proxy.swallowed + proxy.cut > 0
            for partition in range(2):
                expected = [b"%d" % number for number in range(partition, 400, 2)]
                assert await stored_values(running.kafka_address, partition) == expected


async def test_batch_above_the_topics_limit_is_divided(tmp_path: Path) -> None:
    """10: halves go under the same numbers, and every record has its acknowledgement."""
    async with (
        in_process(tmp_path, message_max_bytes=1000) as running,
        AsyncProducer(running.kafka_address) as producer,
    ):
        found = await producer.send_batch(TOPIC, 0, records(*(b"x" * 300 for _ in range(8))))
        assert [(one.offset, one.sequence) for one in found] == [(n, n) for n in range(8)]
        assert all(one.size <= 1000 for one in map(_Sized, await stored(running.kafka_address)))


class _Sized:
    def __init__(self, batch):
        self.size = len(batch.data)


async def test_refused_record_stops_its_partition_alone(tmp_path: Path) -> None:
    """Later records of the partition fail as not stored; others continue; the state begins there."""
    async with (
        in_process(tmp_path, num_partitions=2, message_max_bytes=1000) as running,
        AsyncProducer(running.kafka_address, QUICK) as producer,
    ):
        await producer.send_batch(TOPIC, 0, records(b"first"))
        with pytest.raises(DeliveryError, match=r"MESSAGE_TOO_LARGE.*not stored") as caught:
            await producer.send_batch(TOPIC, 0, records(b"x" * 2000))
        assert (caught.value.error_code, caught.value.may_be_stored) == (10, False)
        with pytest.raises(DeliveryError) as caught:
            await producer.send_batch(TOPIC, 0, records(b"later"))
        await producer.send_batch(TOPIC, 1, records(b"elsewhere"))
        assert producer.state().partitions[0].next_sequence == 1
        with pytest.raises(DeliveryError):
            await producer.flush()


async def test_new_epoch_goes_on_behind_a_refused_record(tmp_path: Path) -> None:
    """With `NEW_EPOCH` the partition continues without the record, and the old state is refused."""
    settings = Settings(after_failure=AfterFailure.NEW_EPOCH, retry_backoff_s=0.001)
    async with in_process(tmp_path, message_max_bytes=1000) as running:
        async with AsyncProducer(running.kafka_address, settings) as producer:
            await producer.send_batch(TOPIC, 0, records(b"first"))
            saved = producer.state()
            with pytest.raises(DeliveryError):
                await producer.send_batch(TOPIC, 0, records(b"x" * 2000))
            (later,) = await producer.send_batch(TOPIC, 0, records(b"later"))
            assert (later.producer_epoch, later.sequence, later.offset) == (1, 0, 1)
            with pytest.raises(DeliveryError):
                await producer.flush()
        producer = AsyncProducer.resume(saved, running.kafka_address, QUICK)
        await producer.start()
        with pytest.raises(DeliveryError) as caught:
            await producer.send_batch(TOPIC, 0, records(b"later"))
        assert caught.value.failure is Failure.FENCED
        await producer.close()
        assert await stored_values(running.kafka_address) == [b"first", b"later"]


async def test_state_older_than_the_brokers_memory_is_refused(tmp_path: Path) -> None:
    """A partition that does not know the producer any more cannot tell what it has stored."""
    async with (
        in_process(tmp_path) as running,
        AsyncProducer(running.kafka_address, QUICK) as other,
    ):
        await other.send_batch(TOPIC, 0, records(b"other"))
        state = ProducerState.from_json(
            '{"version": 1, "producer_id": 77, "producer_epoch": 0, "partitions": [{"topic": '
            '"orders", "partition": 0, "producer_id": 77, "producer_epoch": 0, '
            '"next_sequence": 5, "unacknowledged": 0}]}'
        )
        producer = AsyncProducer.resume(state, running.kafka_address, QUICK)
        await producer.start()
        with pytest.raises(DeliveryError) as caught:
            await producer.send_batch(TOPIC, 0, records(b"x"))
        assert caught.value.failure is Failure.FORGOTTEN
        assert producer.state() == state
        await producer.close()


@pytest.mark.parametrize("asks_on_resume", [True, False])
@pytest.mark.parametrize("after_failure", AfterFailure)
async def test_a_state_of_another_topic_is_refused(
    tmp_path: Path, after_failure: AfterFailure, *, asks_on_resume: bool
) -> None:
    """A hundred new records would pass for the hundred that its producer has stored there already."""
    settings = replace(QUICK, asks_on_resume=asks_on_resume, after_failure=after_failure)
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address, settings) as first:
            await first.send_batch(TOPIC, 0, records(*[b"old"] * 100))
            state = first.state().to_json().replace(f'"{TOPIC}"', '"payments"')
        producer = AsyncProducer.resume(state, running.kafka_address, settings)
        await producer.start()
        for _ in range(2):
            with pytest.raises(DeliveryError, match="names other topics only") as caught:
                await producer.send_batch(TOPIC, 0, records(*[b"new"] * 100))
        assert caught.value.failure is Failure.UNNAMED_TOPIC
        await producer.close()
        assert await stored_values(running.kafka_address) == [b"old"] * 100


async def test_a_resumed_program_may_begin_with_another_topic(tmp_path: Path) -> None:
    """Nothing of its producer is stored there; after a crash in it, the setting says whose it is."""
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address, QUICK) as first:
            await first.send_batch("payments", 0, records(b"p"))
            state = first.state()
        for settings in (QUICK, replace(QUICK, resumes_unnamed_topics=True)):
            async with AsyncProducer.resume(state, running.kafka_address, settings) as resumed:
                await resumed.send_batch(TOPIC, 0, records(b"one", b"two"))
        assert await stored_values(running.kafka_address) == [b"one", b"two"]


async def test_missing_topic_fails_when_its_time_is_over(tmp_path: Path) -> None:
    """The message names the topic; nothing was stored."""
    settings = Settings(delivery_timeout_s=0.05, retry_backoff_s=0.001)
    async with in_process(tmp_path, auto_create_topics_enable=False) as running:
        producer = AsyncProducer(running.kafka_address, settings)
        await producer.start()
        with pytest.raises(DeliveryError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*not stored"):
            await producer.send_batch(TOPIC, 0, records(b"x"))
        await producer.close()


async def test_invalid_topic_fails_at_once(tmp_path: Path) -> None:
    """Waiting would not help."""
    async with in_process(tmp_path) as running:
        producer = AsyncProducer(running.kafka_address, QUICK)
        await producer.start()
        with pytest.raises(DeliveryError) as caught:
            await producer.send_batch("no spaces", 0, records(b"x"))
        assert caught.value.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await producer.close()


async def test_values_that_are_no_bytes_are_refused_whole(tmp_path: Path) -> None:
    """A batch that cannot be encoded takes no numbers, and the producer continues."""
    async with (
        in_process(tmp_path) as running,
        AsyncProducer(running.kafka_address) as producer,
    ):
        with pytest.raises(TypeError):
            await producer.send_batch(TOPIC, 0, records("text"))
        (found,) = await producer.send_batch(TOPIC, 0, records(b"bytes"))
        assert found.sequence == 0


async def test_no_broker_is_a_producer_error() -> None:
    """The message says whom it tried to reach."""
    settings = Settings(delivery_timeout_s=0.05, retry_backoff_s=0.001)
    with pytest.raises(ProducerError, match=r"127\.0\.0\.1:1"):
        await AsyncProducer("127.0.0.1:1", settings).start()


async def test_close_fails_what_is_under_way(tmp_path: Path) -> None:
    """No one waits for ever for a producer that is gone."""
    async with in_process(tmp_path, auto_create_topics_enable=False) as running:
        producer = AsyncProducer(running.kafka_address)
        await producer.start()
        delivery = await producer.send(TOPIC, b"x", partition=0)
        waiting = asyncio.ensure_future(_awaited(delivery))
        await asyncio.sleep(0)
        await producer.close()
        with pytest.raises(DeliveryError, match="closed"):
            await waiting
        with pytest.raises(ProducerError, match="closed"):
            await producer.send(TOPIC, b"x", partition=0)


async def _awaited(delivery):
    return await delivery


async def test_a_flush_while_the_loop_ends_its_tasks() -> None:
    """The end of `asyncio.run` cancels the senders, too: nobody waits for them, and it ends."""
    state = ProducerState(producer_id=9, producer_epoch=1)
    async with AsyncProducer("127.0.0.1:1", QUICK, state=state) as producer:
        await producer.send(TOPIC, b"one", partition=0)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task(), flushing}:
            task.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(DeliveryError, match="crashed"):
                await flushing
        with pytest.raises(ProducerError, match="crashed"):
            await producer.send(TOPIC, b"two", partition=0)


async def test_a_bug_in_a_sender_crashes_the_producer_and_not_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is handled where it arrives: its exception may fail all deliveries, but no other request."""
    async with in_process(tmp_path) as running:
        producer = AsyncProducer(running.kafka_address)
        await producer.start()
        await producer.send_batch("t", 0, records(b"1"))
        sender = producer._senders["t", 0]
        monkeypatch.setattr(sender._sequencer, "on_answer", lambda *_: 1 / 0)
        with pytest.raises(DeliveryError, match="crashed: ZeroDivisionError"):
            await producer.send_batch("t", 0, records(b"2"))
        connection = producer._around.cluster.known_leader("t", 0)
        fields = {"include_cluster_authorized_operations": False}
        assert (await connection.send("describe_cluster", fields)).error_code == 0
        with pytest.raises(ProducerError, match="crashed"):
            await producer.send_batch("t", 0, records(b"3"))
        await producer.close()


async def test_records_that_a_crashed_producer_did_not_send_fail_every_time(tmp_path: Path) -> None:
    """A second `flush` does not pass for a success, and a second look at a delivery does not wait for ever."""
    async with in_process(tmp_path) as running:
        producer = AsyncProducer(running.kafka_address)
        await producer.start()
        delivery = await producer.send("t", b"v", partition=0)
        producer._on_crash(ZeroDivisionError("a bug"))
        for _ in range(2):
            with pytest.raises(ProducerError, match="crashed"):
                await producer.flush()
            with pytest.raises(ProducerError, match="crashed"):
                await asyncio.wait_for(_awaited(delivery), 60)
        await producer.close()
