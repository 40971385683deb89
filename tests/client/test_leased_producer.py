"""The producer under leased ids, over days that pass at once on its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from echoless.broker.config.loading import Address
from echoless.client.async_producer import AsyncProducer
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.producer import Producer
from echoless.client.sequencer_actions import AfterFailure, Failure
from echoless.client.settings import Settings
from echoless.client.state import PartitionState, ProducerState
from echoless.protocol.leases import is_leased
from tests.support.in_process import Running, in_process
from tests.support.stored_values import read_stored_values
from tests.support.tcp_proxy import TcpProxy

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MINUTE_S = 60.0


@dataclass(slots=True)
class Days:
    """A broker with a proxy before each port, and the producer's clock."""

    running: Running
    kafka: TcpProxy
    native: TcpProxy
    now_s: float = 1000.0

    def producer(self, **settings) -> AsyncProducer:
        quick = Settings(
            lease_servers=self.native.address, retry_backoff_s=0.001, retry_backoff_max_s=0.01
        )
        return AsyncProducer(
            self.kafka.address, replace(quick, **settings), lease_clock_s=lambda: self.now_s
        )

    async def send(self, producer: AsyncProducer, *values: bytes, partition: int = 0):
        """Their acknowledgements."""
        sent = [await producer.send("t", value, partition=partition) for value in values]
        return [await delivery for delivery in sent]

    async def begin_unanswered(self, producer: AsyncProducer, value: bytes) -> asyncio.Future:
        """Sends the value; it is stored, and its acknowledgement is lost."""
        self.kafka.loses_answers = True
        self.kafka.answers_lost.clear()
        sending = asyncio.ensure_future(self.send(producer, value))
        await self.kafka.answers_lost.wait()
        return sending

    async def heal(self) -> None:
        self.kafka.loses_answers = False
        await self.kafka.cut()

    async def values(self) -> list[bytes]:
        address = self.running.kafka_address
        return (await asyncio.to_thread(read_stored_values, address, "t", 1))[0]


@asynccontextmanager
async def days_of(directory: Path) -> AsyncIterator[Days]:
    async with TcpProxy.open(0) as kafka, TcpProxy.open(0) as native:
        addresses = [Address(*_parts(proxy.address)) for proxy in (kafka, native)]
        async with in_process(
            directory,
            num_partitions=2,
            advertise=(addresses[0],),
            native_advertise=addresses[1],
        ) as running:
            kafka._port = _parts(running.kafka_address)[1]
            native._port = _parts(running.native_address)[1]
            yield Days(running, kafka, native)


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def test_every_partition_has_a_leased_id(tmp_path: Path) -> None:
    """It holds for a topic that this producer's first record creates, too; sequences begin at 0."""
    async with days_of(tmp_path) as days, days.producer() as producer:
        first = await days.send(producer, b"a", b"b")
        second = await days.send(producer, b"c", partition=1)
        assert [one.sequence for one in (*first, *second)] == [0, 1, 0]
        ids = {one.producer_id for one in (*first, *second)}
        assert len(ids) == 2
        assert all(map(is_leased, ids))


async def test_next_id_comes_before_the_end(tmp_path: Path) -> None:
    """New records go under it from 0, and the old one is never used again."""
    async with days_of(tmp_path) as days, days.producer() as producer:
        (old,) = await days.send(producer, b"a")
        days.now_s += 22 * HOUR_S
        (still,) = await days.send(producer, b"b")
        assert still.producer_id == old.producer_id
        days.now_s += 1.5 * HOUR_S
        await days.send(producer, b"elsewhere", partition=1)  # makes the keeper look at its clock
        (new,) = await days.send(producer, b"c")
        assert new.producer_id != old.producer_id
        assert (new.sequence, new.offset) == (0, 2)
        assert await days.values() == [b"a", b"b", b"c"]


async def test_resend_whose_lease_has_just_ended_keeps_its_id(tmp_path: Path) -> None:
    """The broker remembers the id for longer, and stores nothing twice; what is new takes the next."""
    async with days_of(tmp_path) as days, days.producer() as producer:
        (old,) = await days.send(producer, b"a")
        sending = await days.begin_unanswered(producer, b"b")
        days.now_s += DAY_S + MINUTE_S
        waiting = asyncio.ensure_future(days.send(producer, b"c"))
        await days.heal()
        (resent,) = await sending
        (new,) = await waiting
        assert (resent.producer_id, resent.sequence, resent.offset) == (old.producer_id, 1, 1)
        assert resent.is_duplicate
        assert new.producer_id != old.producer_id
        assert (new.sequence, new.offset) == (0, 2)
        assert await days.values() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("after_failure", AfterFailure)
async def test_resend_long_after_its_lease_is_given_up(tmp_path: Path, after_failure) -> None:
    """Brokers may have forgotten the id: it may be stored, and is never sent again."""
    async with (
        days_of(tmp_path) as days,
        days.producer(after_failure=after_failure) as producer,
    ):
        (old,) = await days.send(producer, b"a")
        sending = await days.begin_unanswered(producer, b"b")
        days.now_s += DAY_S + 31 * MINUTE_S
        waiting = asyncio.ensure_future(days.send(producer, b"c"))
        await days.heal()
        with pytest.raises(DeliveryError, match="lease") as caught:
            await sending
        assert (caught.value.failure, caught.value.may_be_stored) == (Failure.LEASE_OVER, True)
        if after_failure is AfterFailure.STOP:
            with pytest.raises(DeliveryError):
                await waiting
        else:
            (new,) = await waiting
            assert (new.producer_id > old.producer_id, new.sequence) == (True, 0)
            assert await days.values() == [b"a", b"b", b"c"]
        with pytest.raises(DeliveryError):
            await producer.flush()


async def test_nothing_new_is_sent_behind_the_end(tmp_path: Path) -> None:
    """While no id can be leased records wait, and fail in the end as not stored."""
    async with days_of(tmp_path) as days:
        async with days.producer() as producer:
            (old,) = await days.send(producer, b"a")
            days.native.is_down = True
            days.now_s += DAY_S
            waiting = asyncio.ensure_future(days.send(producer, b"b"))
            while not producer._senders["t", 0]._sequencer.is_held:  # noqa: ASYNC110  no event
                await asyncio.sleep(0)
            days.native.is_down = False
            await days.send(producer, b"elsewhere", partition=1)  # the keeper asks again at once
            (new,) = await waiting
            assert (new.producer_id != old.producer_id, new.sequence) == (True, 0)
        days.native.is_down = True
        async with days.producer(delivery_timeout_s=0.05) as producer:
            with pytest.raises(DeliveryError) as caught:
                await days.send(producer, b"c")
            assert (caught.value.failure, caught.value.may_be_stored) == (Failure.TIMED_OUT, False)
            with pytest.raises(DeliveryError):
                await producer.flush()
        assert await days.values() == [b"a", b"b"]


async def test_fenced_id_is_followed_by_another_lease(tmp_path: Path) -> None:
    """Another producer's newer epoch of a leased id does not stop its producer."""
    async with (
        days_of(tmp_path) as days,
        days.producer(after_failure=AfterFailure.NEW_EPOCH) as producer,
    ):
        (old,) = await days.send(producer, b"a")
        taken = PartitionState(
            topic="t", partition=0, producer_id=old.producer_id, producer_epoch=1, next_sequence=0
        )
        state = ProducerState(producer_id=old.producer_id, producer_epoch=1, partitions=(taken,))
        settings = Settings(asks_on_resume=False)
        async with AsyncProducer(days.kafka.address, settings, state=state) as other:
            await days.send(other, b"b")
        with pytest.raises(DeliveryError) as caught:
            await days.send(producer, b"c")
        assert caught.value.failure is Failure.FENCED
        (new,) = await days.send(producer, b"d")
        assert (new.producer_id > old.producer_id, new.sequence) == (True, 0)
        with pytest.raises(DeliveryError):
            await producer.flush()
        assert await days.values() == [b"a", b"b", b"d"]


async def test_partition_that_does_not_exist_gets_no_lease(tmp_path: Path) -> None:
    """Which may change, so it is waited for."""
    async with days_of(tmp_path) as days, days.producer(delivery_timeout_s=0.05) as producer:
        with pytest.raises(DeliveryError, match="not stored"):
            await days.send(producer, b"a", partition=7)
        with pytest.raises(DeliveryError):
            await producer.flush()


async def test_leased_producer_has_no_state(tmp_path: Path) -> None:
    """An id that another follows cannot be resumed from a state that was saved before."""
    async with days_of(tmp_path) as days:
        async with days.producer() as producer:
            with pytest.raises(ProducerError, match="leased"):
                producer.state()
        state = ProducerState(producer_id=1, producer_epoch=0)
        with pytest.raises(ValueError, match="lease_servers"):
            AsyncProducer("127.0.0.1:1", Settings(lease_servers="127.0.0.1:2"), state=state)


def test_blocking_producer_leases_too(echoless):
    """The setting is all that it takes."""
    settings = Settings(lease_servers=echoless.native_address)
    with Producer(echoless.kafka_address, settings) as producer:
        assert is_leased(producer.send("t", b"a", partition=0).result(10).producer_id)
