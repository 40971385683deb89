"""Transactions of our producer with a broker in this process, in both generations of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.coordinator import Coordinator
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.sequencer_actions import AfterFailure
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.client.transactions.errors import AbortableError, FencedError, TransactionError
from echoless.client.transactions.group_metadata import GroupMetadata
from tests.broker.until import until
from tests.support.in_process import Running, in_process
from tests.transactions.in_process_reader import committed

TOPIC, ID = "orders", "orders-1"
QUICK = Settings(retry_backoff_s=0.001, retry_backoff_max_s=0.01, delivery_timeout_s=20)


@pytest.fixture(params=[1, 2], ids=["first", "second"])
def generation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The generation of the protocol: the first one is spoken with brokers that do not announce the second."""
    level: int = request.param
    if level == 1:
        monkeypatch.setattr(Coordinator, "finalized_level", lambda *_: 0)
    return level


@pytest.fixture
async def running(tmp_path: Path, generation: int) -> AsyncIterator[Running]:
    """A broker whose topics have two partitions."""
    async with in_process(tmp_path, num_partitions=2) as running:
        yield running


def producer_of(running: Running, settings: Settings = QUICK, name: str = ID) -> AsyncProducer:
    return AsyncProducer(running.kafka_address, settings, transactional_id=name)


def open_ends(running: Running) -> list[bool]:
    """Whether each partition holds records of a transaction that has not ended."""
    found = [running.broker.partitions[TOPIC, index] for index in range(2)]
    return [one.last_stable_offset < one.log.log_end_offset for one in found]


async def test_a_block_commits_at_its_end(running: Running) -> None:
    """Records of two partitions become visible together, and not before."""
    async with producer_of(running) as producer:
        for round_ in range(3):
            async with producer.transaction():
                for partition in range(2):
                    await producer.send(TOPIC, b"%d" % round_, partition=partition)
                await producer.flush()
                assert open_ends(running) == [True, True]
    for partition in range(2):
        assert await committed(running, TOPIC, partition) == [b"0", b"1", b"2"]


async def test_a_block_that_raises_aborts(running: Running) -> None:
    """Records that are stored and records that were not sent yet go; the next transaction commits."""
    async with producer_of(running) as producer:
        given = []

        async def fail() -> None:
            async with producer.transaction():
                await (await producer.send(TOPIC, b"stored", partition=0))
                given.append(await producer.send(TOPIC, b"open batch", partition=1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(DeliveryError, match="aborted"):
            await given[0]
        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=0)
    assert await committed(running, TOPIC) == [b"next"]


async def test_transactions_without_records(running: Running) -> None:
    """They commit and abort, and what comes after them has numbers of its own."""
    async with producer_of(running) as producer:
        for value in (b"one", b"two"):
            async with producer.transaction():
                pass
            await producer.begin_transaction()
            unsent = await producer.send(TOPIC, b"unsent", partition=0)
            await producer.abort_transaction()
            with pytest.raises(DeliveryError):
                await unsent
            async with producer.transaction():
                await producer.send(TOPIC, value, partition=0)
    assert await committed(running, TOPIC) == [b"one", b"two"]


async def test_which_generation_is_spoken(running: Running, generation: int) -> None:
    """The second one, if the brokers announce it: every transaction has an epoch of its own."""
    async with producer_of(running) as producer:
        epochs = []
        for _ in range(3):
            async with producer.transaction():
                found = await (await producer.send(TOPIC, b"v", partition=0))
            epochs.append((found.producer_epoch, found.sequence))
    assert epochs == ([(0, 0), (0, 1), (0, 2)] if generation == 1 else [(0, 0), (1, 0), (2, 0)])


async def test_nothing_is_sent_outside_of_a_transaction(running: Running) -> None:
    """Calls in the wrong order say what to do instead."""
    async with producer_of(running) as producer:
        with pytest.raises(ProducerError, match="begin one"):
            await producer.send(TOPIC, b"early", partition=0)
        with pytest.raises(ProducerError, match="begin one"):
            await producer.send_batch(TOPIC, 0, [(-1, 0, None, b"early", ())])
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(ProducerError, match="begin one"):
                await call()
        await producer.begin_transaction()
        with pytest.raises(ProducerError, match="is open"):
            await producer.begin_transaction()
        with pytest.raises(ProducerError, match="no state"):
            producer.state()
    async with AsyncProducer(running.kafka_address, QUICK) as plain:
        with pytest.raises(ProducerError, match="no transactional_id"):
            await plain.begin_transaction()


async def test_a_producer_that_ends_with_an_open_transaction_aborts_it(running: Running) -> None:
    """A commit is never implied."""
    async with producer_of(running) as producer:
        await producer.begin_transaction()
        await (await producer.send(TOPIC, b"one", partition=0))
    assert await committed(running, TOPIC) == []


async def test_a_second_producer_fences_the_first(running: Running) -> None:
    """Its open transaction is aborted, and it hears why; every further call says the same."""
    async with producer_of(running) as old:
        await old.begin_transaction()
        await (await old.send(TOPIC, b"old", partition=0))
        async with producer_of(running) as new:
            with pytest.raises(FencedError, match=ID) as caught:
                await old.commit_transaction()
            assert not caught.value.may_be_committed
            with pytest.raises(FencedError):
                await old.begin_transaction()
            async with new.transaction():
                await new.send(TOPIC, b"new", partition=0)
    assert await committed(running, TOPIC) == [b"new"]


async def test_a_fenced_producer_that_sends_is_fenced_by_its_abort(running: Running) -> None:
    """A leader's refusal may have other reasons: the coordinator says which it is."""
    async with producer_of(running) as old, producer_of(running):
        with pytest.raises(FencedError):
            async with old.transaction():
                await (await old.send(TOPIC, b"old", partition=0))


async def test_a_transaction_that_took_too_long_can_only_be_aborted(running: Running) -> None:
    """Its producer goes on with another one."""
    settings = Settings(transaction_timeout_s=0.2, retry_backoff_s=0.001)
    async with producer_of(running, settings) as producer:
        await producer.begin_transaction()
        await (await producer.send(TOPIC, b"late", partition=0))
        await until(lambda: not any(open_ends(running)))
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=0)
    assert await committed(running, TOPIC) == [b"next"]


async def test_a_batch_that_failed_keeps_the_transaction_from_committing(running: Running) -> None:
    """The same if its error was seen and passed over."""
    async with producer_of(running) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, b"good", partition=0)
        delivery = await producer.send(TOPIC, b"x" * 2_000_000, partition=1)
        with pytest.raises(DeliveryError):
            await delivery
        with pytest.raises(AbortableError, match="cannot be committed"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            for partition in range(2):
                await producer.send(TOPIC, b"next", partition=partition)
    for partition in range(2):
        assert await committed(running, TOPIC, partition) == [b"next"]


async def test_offsets_are_committed_with_the_records(running: Running) -> None:
    """After an abort the group has the offset before; a group may be named without a member."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with producer_of(running) as producer:
        async with producer.transaction():
            await (await producer.send(TOPIC, b"one", partition=0))
            await producer.send_offsets({(TOPIC, 1): 5}, GroupMetadata("readers"))
        await producer.begin_transaction()
        await producer.send_offsets({(TOPIC, 1): 9}, GroupMetadata("readers"))
        await producer.abort_transaction()
    consumer = AIOKafkaConsumer(bootstrap_servers=running.kafka_address, group_id="readers")
    await consumer.start()
    assert await consumer.committed(TopicPartition(TOPIC, 1)) == 5
    await consumer.stop()


async def test_offsets_of_a_member_that_the_group_does_not_know(running: Running) -> None:
    """The generation is a fence, too: the transaction can only be aborted."""
    async with producer_of(running) as producer:
        await producer.begin_transaction()
        await (await producer.send(TOPIC, b"one", partition=0))
        with pytest.raises(AbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
            await producer.send_offsets({(TOPIC, 1): 5}, GroupMetadata("readers", 3, "gone"))
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=0)
    assert await committed(running, TOPIC) == [b"next"]


@pytest.mark.parametrize(
    ("name", "settings", "state"),
    [
        ("", QUICK, None),
        (ID, Settings(lease_servers="127.0.0.1:1"), None),
        (ID, Settings(after_failure=AfterFailure.NEW_EPOCH), None),
        (ID, QUICK, ProducerState(producer_id=1, producer_epoch=0)),
    ],
    ids=["no name", "leases", "new epochs", "state"],
)
def test_settings_that_do_not_go_with_transactions(
    name: str, settings: Settings, state: ProducerState | None
) -> None:
    """They are refused by name, before anything is asked of a broker."""
    with pytest.raises(ValueError, match="transactional_id"):
        AsyncProducer("127.0.0.1:1", settings, state=state, transactional_id=name)


async def test_a_timeout_above_the_brokers_limit(running: Running) -> None:
    """The session does not begin, and the error names id and reason."""
    with pytest.raises(TransactionError, match=rf"{ID}.*INVALID_TRANSACTION_TIMEOUT"):
        await producer_of(running, Settings(transaction_timeout_s=1e6)).start()
