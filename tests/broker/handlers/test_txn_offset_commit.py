"""TxnOffsetCommit on one broker, beside what a real Kafka has answered in the same stories."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from echoless.broker.handlers import txn_offset_commit
from echoless.coordinators.groups.prepared_commit import prepare
from echoless.coordinators.groups.requests import TransactionalOffsetCommit
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionAnswered, TransactionAsk
from tests.compatibility.offset_vectors import VECTORS
from tests.compatibility.offsets_in_transactions import (
    PARTITIONS,
    STORIES,
    TOPIC,
    Identity,
    Stage,
    told,
)
from tests.compatibility.test_offsets_in_transactions import DIFFERENCES
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, message

API = txn_offset_commit.API


class Coordinators:
    """The way from the leaders of partitions to the coordinators of transactions, in which a test may take part."""

    def __init__(self, running: Running) -> None:
        self.transactions = running.broker.services.transactions
        self.asks: list[TransactionAsk] = []
        self.code: ErrorCode | None = None
        """The answer instead of the coordinator's."""
        self.held: asyncio.Event | None = None
        """Answers are held back until it is set."""
        self.has_answered = asyncio.Event()
        """Set with the first answer that is held back."""

    async def ask(self, ask: TransactionAsk) -> TransactionAnswered:
        self.asks.append(ask)
        if self.code is not None:
            return TransactionAnswered(self.code)
        answered = await self.transactions.answer(ask)
        if self.held is not None:
            self.has_answered.set()
            await self.held.wait()
        return answered


@pytest.fixture
async def coordinators(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> Coordinators:
    found = Coordinators(running)
    monkeypatch.setattr(running.broker.services.produce, "ask", found.ask)
    await create_topic(kafka, TOPIC, PARTITIONS)
    return found


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.usefixtures("coordinators")
async def test_the_answers_are_those_of_kafka(kafka: RawConnection, name: str) -> None:
    """Line by line, but for what differs on purpose."""
    differences = DIFFERENCES.get(name, {})
    expected = [differences.get(place, line) for place, line in enumerate(VECTORS[name])]
    assert await told(kafka, name) == expected


async def test_version_5_adds_the_partition(
    kafka: RawConnection, coordinators: Coordinators
) -> None:
    """Without AddOffsetsToTxn; also where the group then refuses the member (as in Kafka 4)."""
    stage = Stage(kafka, "s")
    one = await stage.begin("t")
    await stage.commit(one, {0: 5}, version=5, member=(3, "stranger", None))
    await stage.commit(one, {0: 5}, version=5)
    await stage.end(one, is_commit=True)
    await stage.settled()
    assert stage.lines == [
        "commit v5 inputs {0: 5}: {0: 'ILLEGAL_GENERATION'}",
        "commit v5 inputs {0: 5}: {0: 'NONE'}",
        "end v3 commit: NONE",
        "fetch: {0: 5, 1: -1, 2: -1}",
        "fetch stable: {0: 5, 1: -1, 2: -1}",
    ]
    assert [(ask.is_add, ask.client_version) for ask in coordinators.asks] == [(True, 2)] * 2


@pytest.mark.usefixtures("coordinators")
@pytest.mark.parametrize("version", [3, 5])
async def test_a_fenced_instance_hears_of_that_first(kafka: RawConnection, version: int) -> None:
    """Its epoch is older than one that the group's partition knows: 47 (Kafka 4), whatever the group would say."""
    stage = Stage(kafka, "s")
    one, two = await stage.begin("t"), await stage.begin("t")
    await stage.add(two)
    await stage.commit(two, {0: 5})
    await stage.commit(one, {0: 6}, version=version, member=(3, "stranger", None))
    assert stage.lines[-1] == f"commit v{version} inputs {{0: 6}}: {{0: 'INVALID_PRODUCER_EPOCH'}}"


async def test_an_open_transaction_is_not_asked_about(
    kafka: RawConnection, coordinators: Coordinators
) -> None:
    """One question for the first commit on the partition, none for the next."""
    stage = Stage(kafka, "s")
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {0: 5})
    await stage.commit(one, {1: 5})
    assert len(coordinators.asks) == 1


async def test_a_marker_in_between_makes_the_client_ask_again(
    kafka: RawConnection, other: RawConnection, coordinators: Coordinators
) -> None:
    """The coordinator has said yes to a transaction that has ended since: the batch would leave one open for ever."""
    stage = Stage(kafka, "s")
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {1: 1})
    await stage.end(one, is_commit=True)
    await stage.settled()
    await stage.add(one)
    coordinators.held = asyncio.Event()
    late = asyncio.ensure_future(commit_once(other, one, stage.named("g")))
    await coordinators.has_answered.wait()
    await stage.end(one, is_commit=False)
    await until_ended(kafka, one)
    coordinators.held.set()
    assert await late == ErrorCode.CONCURRENT_TRANSACTIONS
    stage.lines.clear()
    await stage.fetch()
    assert stage.lines[1] == "fetch stable: {0: -1, 1: 1, 2: -1}"


async def test_many_offsets_are_packed_beside_the_loop(
    kafka: RawConnection, coordinators: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a later commit of the connection does not overtake them."""
    threads = []

    def noted(commit: TransactionalOffsetCommit, wall_ms: int) -> TransactionalOffsetCommit:
        threads.append(threading.current_thread())
        return prepare(commit, wall_ms)

    monkeypatch.setattr(txn_offset_commit, "ROWS_PER_TURN", 1)
    monkeypatch.setattr(txn_offset_commit, "prepare", noted)
    stage = Stage(kafka, "s")
    one = await stage.begin("t")
    await stage.add(one)
    for offsets in ({0: 5, 1: 5, 2: 5}, {0: 9}):
        fields = stage.fields(one, stage.named("g"), offsets)
        kafka.send_request(message("txn_offset_commit", 3, "Request")(**fields))
    for _ in range(2):
        await kafka.receive_response("txn_offset_commit", 3)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    await stage.end(one, is_commit=True)
    await stage.settled()
    assert stage.lines[-1] == "fetch stable: {0: 9, 1: 5, 2: 5}"


@pytest.fixture
async def other(running: Running) -> Any:
    connection = await RawConnection.open(running.kafka_address)
    yield connection
    await connection.close()


async def commit_once(connection: RawConnection, one: Identity, group_id: str) -> ErrorCode:
    """The code of a commit that is not sent again."""
    stage = Stage(connection, "")
    response = await connection.call("txn_offset_commit", 3, **stage.fields(one, group_id, {0: 9}))
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def until_ended(kafka: RawConnection, one: Identity) -> None:
    """Returns once the markers are written."""
    while True:
        answer = await kafka.call("list_transactions", 0, state_filters=(), producer_id_filters=())
        states = {row.transactional_id: row.transaction_state for row in answer.transaction_states}
        if states[one.transactional_id] == "CompleteAbort":
            return


@pytest.mark.parametrize("version", range(API.version_min, API.version_max + 1))
@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            {2: "COORDINATOR_LOAD_IN_PROGRESS", 0: "COORDINATOR_NOT_AVAILABLE"},
        ),
        (
            ErrorCode.NETWORK_EXCEPTION,
            {2: "COORDINATOR_LOAD_IN_PROGRESS", 0: "COORDINATOR_NOT_AVAILABLE"},
        ),
        (ErrorCode.PRODUCER_FENCED, {0: "INVALID_PRODUCER_EPOCH"}),
        (ErrorCode.TRANSACTION_ABORTABLE, {4: "TRANSACTION_ABORTABLE", 0: "INVALID_TXN_STATE"}),
        (ErrorCode.CONCURRENT_TRANSACTIONS, {0: "CONCURRENT_TRANSACTIONS"}),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, {0: "INVALID_PRODUCER_ID_MAPPING"}),
    ],
)
async def test_codes_of_the_coordinator(
    kafka: RawConnection,
    coordinators: Coordinators,
    version: int,
    code: ErrorCode,
    answered: dict[int, str],
) -> None:
    """As each version knows them."""
    stage = Stage(kafka, "s")
    one = await stage.begin("t")
    coordinators.code = code
    fields = stage.fields(one, stage.named("g"), {0: 9}, version=version)
    response = await kafka.call("txn_offset_commit", version, **fields)
    wanted = answered[max(since for since in answered if since <= version)]
    assert ErrorCode(response.topics[0].partitions[0].error_code).name == wanted
