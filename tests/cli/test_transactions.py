"""`echoless transactions`, against a broker in this process that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.cli import open_transactions
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_transaction import (
    ID,
    Identity,
    add,
    begin,
    end,
    init,
    state,
    until_state,
)
from tests.broker.until import until
from tests.cli.command import Command, Ran
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection, create_topic
from tests.support.transactions_by_hand import HandMadeTransactions


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A broker with the topic `t` of two partitions."""
    async with in_process(tmp_path) as running:
        monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", running.kafka_address)
        yield running


@pytest.fixture
async def kafka(running: Running) -> AsyncIterator[RawConnection]:
    connection = await RawConnection.open(running.kafka_address)
    await create_topic(connection, "t", 2)
    yield connection
    await connection.close()


class Transactions:
    """Runs `echoless transactions` in a thread, as the broker needs the loop."""

    def __init__(self, echoless: Command) -> None:
        self._echoless = echoless

    async def __call__(self, *arguments: object) -> Ran:
        return await asyncio.to_thread(self._echoless, "transactions", *arguments)

    async def names(self, *options: object) -> list[str]:
        listed = (await self("list", *options, "--json")).json
        return [one["transactional_id"] for one in listed]


@pytest.fixture
def transactions(echoless: Command) -> Transactions:
    return Transactions(echoless)


async def open_one(kafka: RawConnection, name: str = ID) -> Identity:
    """A transaction of partition 1 of `t`."""
    identity = await begin(kafka, name)
    while await add(kafka, identity, {"t": (1,)}, name=name) != {("t", 1): ErrorCode.NONE}:
        pass
    return identity


async def test_ids_are_listed_by_state(kafka: RawConnection, transactions: Transactions) -> None:
    """All of them; those in a state; those whose transaction is open for long."""
    producer_id, _ = await open_one(kafka)
    await begin(kafka, "idle")
    listed = (await transactions("list", "--json")).json
    assert listed[1] == {
        "transactional_id": ID,
        "state": "Ongoing",
        "producer_id": producer_id,
        "coordinator": 1,
    }
    assert await transactions.names() == ["idle", ID]
    assert await transactions.names("--state", "empty") == ["idle"]
    assert await transactions.names("--state", "Empty", "--state", "ongoing") == ["idle", ID]
    assert await transactions.names("--longer-than", 60) == []
    await asyncio.sleep(0.002)
    assert await transactions.names("--longer-than", 0) == [ID]
    assert "2 transactional ids" in (await transactions("list")).out


async def test_an_id_is_described(kafka: RawConnection, transactions: Transactions) -> None:
    """With the partitions of its transaction, and without one."""
    producer_id, epoch = await open_one(kafka)
    found = (await transactions("describe", ID, "--json")).json
    assert found.pop("start_ms") > 0
    assert found == {
        "transactional_id": ID,
        "state": "Ongoing",
        "coordinator": 1,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "partitions": [{"topic": "t", "partition": 1}],
    }
    assert f"{ID}: Ongoing, begun 20" in (await transactions("describe", ID)).out
    await begin(kafka, "idle")
    idle = (await transactions("describe", "idle", "--json")).json
    assert (idle["state"], idle["start_ms"], idle["partitions"]) == ("Empty", None, [])
    missing = await transactions("describe", "nobody")
    assert missing.err == (
        "echoless: nobody: TRANSACTIONAL_ID_NOT_FOUND (echoless transactions list shows what there is)\n"
    )


async def test_an_abort_fences_the_producer(
    kafka: RawConnection, transactions: Transactions
) -> None:
    """The id keeps its timeout; without an open transaction nothing is fenced."""
    identity = await open_one(kafka)
    aborted = await transactions("abort", ID)
    assert (aborted.code, aborted.err) == (
        0,
        f"aborted the transaction of {ID}, and fenced its producer\n",
    )
    assert await state(kafka) == "CompleteAbort"
    refused = await end(kafka, identity)
    assert refused.error_code == ErrorCode.PRODUCER_FENCED
    found = (await transactions("describe", ID, "--json")).json
    assert found["timeout_ms"] == 60_000
    again = await transactions("abort", ID)
    assert again.err == f"echoless: {ID}: has no open transaction, it is CompleteAbort\n"
    assert (await transactions("describe", ID, "--json")).json == found


async def test_an_unknown_id_is_not_made_by_aborting_it(
    kafka: RawConnection, transactions: Transactions
) -> None:
    """InitProducerId alone would."""
    await begin(kafka)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in (await transactions("abort", "nobody")).err
    assert await transactions.names() == [ID]


async def test_partitions_that_are_late_are_named(
    running: Running,
    kafka: RawConnection,
    transactions: Transactions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The abort is decided, and a commit can no longer be changed, while a leader does not answer."""
    monkeypatch.setattr(open_transactions, "ABORT_TIMEOUT_S", 0.3)
    hold_markers(running, monkeypatch)
    identity = await open_one(kafka)
    late = await transactions("abort", ID)
    assert late.err == f"echoless: {ID}: PrepareAbort after 0.3 s; waiting for t-1\n"
    identity = await open_one(kafka, "other")
    ending = asyncio.ensure_future(end(kafka, identity, name="other"))
    watch = await RawConnection.open(running.kafka_address)
    await until_state(watch, "PrepareCommit", "other")
    await watch.close()
    refused = await transactions("abort", "other")
    assert refused.err == "echoless: other: is being committed, which cannot be changed\n"
    ending.cancel()


def hold_markers(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the leaders of this broker never answer a coordinator."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(running.broker.services.markers, "write", never)


async def test_a_hanging_transaction_is_aborted_at_its_leader(
    running: Running, kafka: RawConnection, transactions: Transactions, echoless: Command
) -> None:
    """At the offset that `echoless producers` shows."""
    await begin(kafka)
    partition = running.broker.partitions["t", 0]
    hanging = HandMadeTransactions(partition)
    hanging.write(7, b"a")
    start = hanging.write(8, b"b")
    shown = (await asyncio.to_thread(echoless, "producers", "t", "--json")).json
    assert [(one["producer_id"], one["transaction_start_offset"]) for one in shown] == [
        (7, 0),
        (8, start),
    ]
    place = ("--topic", "t", "--partition", 0, "--start-offset")
    wrong = await transactions("abort", *place, 5)
    assert wrong.err == (
        "echoless: t-0: no open transaction begins at offset 5; there are some at 0, 1\n"
    )
    done = await transactions("abort", *place, start)
    assert (done.code, done.err) == (0, "aborted the transaction at 1 of t-0\n")
    assert (partition.last_stable_offset, partition.log.log_end_offset) == (0, 3)
    await transactions("abort", *place, 0)
    await until(lambda: partition.last_stable_offset == 4)
    none = await transactions("abort", *place, 0)
    assert none.err.endswith("begins at offset 0, nor at another one\n")


async def test_a_transaction_that_a_coordinator_knows_does_not_hang(
    running: Running, kafka: RawConnection, transactions: Transactions
) -> None:
    """A marker on one of its partitions would tear it."""
    producer_id, _ = await open_one(kafka)
    partition = running.broker.partitions["t", 1]
    HandMadeTransactions(partition).write(producer_id, b"a")
    refused = await transactions(*("abort", "--topic", "t", "--partition", 1, "--start-offset", 0))
    assert refused.err == (
        "echoless: t-1: this transaction does not hang, it is Ongoing at its coordinator: "
        f"echoless transactions abort {ID}\n"
    )
    assert partition.last_stable_offset == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "pass an id, or --topic, --partition and --start-offset"),
        (
            ("x", "--topic", "t", "--partition", 0, "--start-offset", 0),
            "pass an id, or --topic, --partition and --start-offset",
        ),
        (
            ("--topic", "t"),
            "a transaction that hangs takes --topic, --partition and --start-offset",
        ),
    ],
)
def test_an_abort_needs_one_of_two(
    echoless: Command, arguments: tuple[object, ...], said: str
) -> None:
    """Before any broker is asked."""
    assert echoless("transactions", "abort", *arguments).err == f"echoless: {said}\n"


async def test_a_partition_that_does_not_exist(
    kafka: RawConnection,
    transactions: Transactions,
) -> None:
    """Named as it was typed."""
    refused = await transactions(*("abort", "--topic", "t", "--partition", 2, "--start-offset", 0))
    assert refused.err == "echoless: t has 2 partitions, none of number 2\n"


async def test_a_transaction_without_a_timeout(
    tmp_path: Path, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two-phase commit: it is named as such, and can be aborted like any other."""
    async with in_process(tmp_path / "two", transaction_two_phase_commit_enable=True) as running:
        monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", running.kafka_address)
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        await begin(kafka)
        answer = await init(kafka, 6, phases=(True, False))
        await add(kafka, (answer.producer_id, answer.producer_epoch), {"t": (0,)})
        described = await transactions("describe", ID)
        assert "no timeout (two-phase commit)" in described.out
        assert (await transactions("abort", ID)).code == 0
        await until_state(kafka, "CompleteAbort")
        await kafka.close()
