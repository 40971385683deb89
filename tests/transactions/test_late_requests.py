"""Requests that arrive late or twice, raw, on a broker with its coordinator: hazards H1, H2 and H3."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionAnswered, TransactionAsk
from tests.broker.handlers.one_transaction import (
    ID,
    Identity,
    add,
    begin,
    end,
    init,
    until_state,
)
from tests.broker.until import until
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import TRANSACTIONAL, plain_batch
from tests.support.raw_client import ConnectionEndedError, RawConnection, create_topic
from tests.support.raw_produce import PartitionData

OK = ErrorCode.NONE
COMPLETE = "CompleteAbort"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker that serves transactions."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 2)
        await begin(
            kafka, "another"
        )  # makes the state topic: connections from now on are newer than its election
        await kafka.close()
        yield running


@pytest.fixture
async def two(running: Running) -> AsyncIterator[list[RawConnection]]:
    """An old connection, and a newer one."""
    connections = [await RawConnection.open(running.kafka_address) for _ in range(2)]
    yield connections
    for one in connections:
        await one.close()


def batch(identity: Identity, sequence: int = 0) -> bytes:
    producer_id, epoch = identity
    plain = plain_batch(
        [b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return replace(plain, attributes=TRANSACTIONAL).encode()


async def send(
    kafka: RawConnection, identity: Identity, sequence: int = 0, *, version: int, partition: int = 0
) -> ErrorCode:
    """The code of a batch of one record."""
    rows = [PartitionData("t", partition, batch(identity, sequence))]
    (answer,) = await kafka.produce(version, -1, rows, ID)
    return ErrorCode(answer.error)


def stable(running: Running, partition: int = 0) -> tuple[int, int]:
    """The last stable offset, and the end of the log."""
    found = running.broker.partitions["t", partition]
    return found.last_stable_offset, found.log.log_end_offset


async def test_a_late_end_of_a_transaction_does_not_end_the_next(
    running: Running, two: list[RawConnection]
) -> None:
    """H1 in the first generation, whose epoch stays: its connection tells, and is closed."""
    old, new = two
    identity = await begin(old)
    assert await add(old, identity, {"t": (0,)}) == {("t", 0): OK}
    assert await send(old, identity, version=11) is OK
    assert (await end(old, identity)).error_code == OK
    await until(lambda: stable(running) == (2, 2))
    while await add(new, identity, {"t": (0,)}) != {("t", 0): OK}:
        pass  # the end of the first one is being stored
    assert await send(new, identity, 1, version=11) is OK
    with pytest.raises(ConnectionEndedError):
        await end(old, identity)
    assert stable(running) == (2, 3)
    refused = running.broker.decisions.latest_transactions(1)[0]
    assert (refused.step, refused.transactional_id, refused.error_code) == ("refuse", ID, OK)
    assert refused.reason == "it came on an older connection than the newest of its session"
    assert (await end(new, identity, is_commit=False)).error_code == OK
    await until(lambda: stable(running) == (4, 4))
    ended = running.broker.partitions["t", 0].log.aborted_transactions(0, 4)
    assert [(one.first_offset, one.last_offset) for one in ended] == [(2, 3)]


async def test_a_late_end_of_an_earlier_epoch_is_fenced(
    running: Running, two: list[RawConnection]
) -> None:
    """H1 in the second generation: every end raises the epoch."""
    old, new = two
    first = await begin(old)
    assert await send(old, first, version=12) is OK
    answer = await end(old, first, version=5)
    second = (answer.producer_id, answer.producer_epoch)
    assert second == (first[0], first[1] + 1)
    while (code := await send(new, second, version=12)) is not OK:
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await end(old, first, version=5, is_commit=False)).error_code == 90
    assert stable(running) == (2, 3)
    assert (await end(new, second, version=5)).error_code == OK
    await until(lambda: stable(running) == (4, 4))


async def test_a_late_batch_does_not_join_the_next_transaction(
    running: Running, two: list[RawConnection]
) -> None:
    """H2 in the second generation, also on a partition that has heard of neither: 47."""
    old, new = two
    first = await begin(old)
    assert await send(old, first, version=12) is OK
    answer = await end(old, first, version=5, is_commit=False)
    second = (answer.producer_id, answer.producer_epoch)
    await until_state(new, COMPLETE)
    assert await send(new, second, version=12) is OK
    for partition in (0, 1):
        code = await send(old, first, 1, version=12, partition=partition)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(running, 1) == (0, 0)


@pytest.mark.parametrize(
    ("version", "code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_a_batch_outside_of_the_transaction_opens_none(
    running: Running, two: list[RawConnection], version: int, code: ErrorCode
) -> None:
    """A client of the first generation that forgets AddPartitionsToTxn, or whose transaction has ended meanwhile."""
    kafka, _ = two
    identity = await begin(kafka)
    assert await send(kafka, identity, version=version) is code
    await add(kafka, identity, {"t": (0,)})
    assert await send(kafka, identity, version=version, partition=1) is code
    assert await send(kafka, identity, version=version) is OK
    assert (await end(kafka, identity)).error_code == OK
    await until(lambda: stable(running) == (2, 2))
    await until_state(kafka, "CompleteCommit")
    assert await send(kafka, identity, 1, version=version) is code
    assert stable(running) == (2, 2)
    assert stable(running, 1) == (0, 0)


async def test_a_batch_of_an_empty_transactional_id(
    running: Running, two: list[RawConnection]
) -> None:
    """Kafka's code, 42, also where the coordinator of the id would be on this broker."""
    kafka, _ = two
    rows = [PartitionData("t", 0, batch(await begin(kafka)))]
    (answer,) = await kafka.produce(11, -1, rows, "")
    assert answer.error == ErrorCode.INVALID_REQUEST


async def test_a_batch_that_was_let_in_before_the_abort(
    running: Running, two: list[RawConnection]
) -> None:
    """H3: the coordinator says yes, then the transaction is aborted, then the batch comes to its append."""
    producer, other = two
    may_come, held = asyncio.Event(), list[TransactionAsk]()
    parts = running.broker.services.produce
    ask = parts.ask
    assert ask is not None

    async def hold(one: TransactionAsk) -> TransactionAnswered:
        answered = ask(one)
        if not isinstance(answered, TransactionAnswered):
            answered = await answered
        held.append(one)
        await may_come.wait()
        return answered

    identity = await begin(producer)
    await add(producer, identity, {"t": (0,)})
    parts.ask = lambda one: asyncio.ensure_future(hold(one))
    producer.send_produce(11, -1, [PartitionData("t", 0, batch(identity))], ID)
    await until(lambda: held)
    assert (await init(other)).error_code == OK  # a new instance: what is open is aborted
    await until(lambda: stable(running) == (1, 1))
    may_come.set()
    (answer,) = await producer.receive_produce(11)
    assert answer.error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(running) == (1, 1)
