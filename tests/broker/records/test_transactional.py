"""Produce with a transactional id: when the coordinator is asked, and what its answer becomes; the coordinator is a fake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.transactional import QUESTIONS_MAX
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionAnswered, TransactionAsk
from echoless.protocol.record_batch import read_header
from echoless.protocol.state_records.transaction_records import TransactionPartition
from tests.broker.until import until
from tests.support.in_process import Running
from tests.support.raw_batches import TRANSACTIONAL, plain_batch
from tests.support.raw_client import RawConnection, create_topic, topic_id
from tests.support.raw_produce import PartitionData

P = 7
YES = ErrorCode.NONE
NOT_ENOUGH = ErrorCode.NOT_ENOUGH_REPLICAS
LARGE = 20_000
"""Records of a batch that is opened in a thread."""


class Coordinator:
    """Answers when it is let, with the next of its answers, or the last one for ever."""

    def __init__(self) -> None:
        self.asked: list[TransactionAsk] = []
        self.answers = [in_transaction(0)]
        self.go = asyncio.Event()
        self.go.set()

    def ask(self, ask: TransactionAsk) -> asyncio.Future[TransactionAnswered]:
        self.asked.append(ask)
        return asyncio.ensure_future(self._answer())

    async def _answer(self) -> TransactionAnswered:
        await self.go.wait()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def in_transaction(number: int) -> TransactionAnswered:
    return TransactionAnswered(ErrorCode.NONE, number, (ErrorCode.NONE,))


def not_in(code: ErrorCode) -> TransactionAnswered:
    return TransactionAnswered(ErrorCode.NONE, 0, (code,))


def batch(sequence: int = 0, *, epoch: int = 5, producer_id: int = P, count: int = 1) -> bytes:
    plain = plain_batch(
        [b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return replace(plain, attributes=TRANSACTIONAL).encode()


class Producing:
    """A producer with a transactional id, on a connection of its own."""

    def __init__(self, running: Running, kafka: RawConnection) -> None:
        self.running = running
        self.kafka = kafka
        self.coordinator = Coordinator()
        running.broker.services.produce.ask = self.coordinator.ask

    @property
    def partition(self) -> Partition:
        return self.running.broker.partitions["t", 0]

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset

    async def send(self, records: bytes, version: int = 11) -> ErrorCode:
        """The code for one batch."""
        (answer,) = await self.kafka.produce(version, -1, [PartitionData("t", 0, records)], "txn")
        return ErrorCode(answer.error)

    def end_transaction(self, number: int, *, epoch: int = 5) -> None:
        marker = EndMarker(MarkerType.ABORT, 0, number)
        stored = build_marker(marker, P, epoch, 0)
        self.partition.append_for_coordinator(stored, read_header(stored), 0)


@pytest.fixture
async def producing(running: Running, kafka: RawConnection) -> Producing:
    await create_topic(kafka, "t", 3)
    return Producing(running, kafka)


@pytest.mark.parametrize(("version", "is_add"), [(3, False), (11, False), (12, True)])
async def test_the_coordinator_is_asked_once_in_a_transaction(
    producing: Producing, version: int, is_add: bool
) -> None:
    """Before its first batch; and again after its marker."""
    for sequence in range(3):
        assert await producing.send(batch(sequence), version) is YES
    wanted = TransactionPartition("t", 0, producing.partition.topic_id.bytes)
    ask = TransactionAsk("txn", P, 5, is_add, 2 if is_add else 0, (wanted,))
    assert producing.coordinator.asked == [ask]
    producing.end_transaction(0)
    producing.coordinator.answers = [in_transaction(1)]
    assert await producing.send(batch(3), version) is YES
    assert producing.coordinator.asked == [ask, ask]
    assert producing.partition.last_stable_offset == 4


async def test_version_13_names_topics_by_id(producing: Producing) -> None:
    """As their other batches do."""
    named = await topic_id(producing.kafka, "t")
    rows = [PartitionData(named, 0, batch())]
    (answer,) = await producing.kafka.produce(13, -1, rows, "txn")
    assert answer.error == YES
    assert producing.coordinator.asked[0].is_add


@pytest.mark.parametrize(
    ("code", "v10", "v11", "v12"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, NOT_ENOUGH, NOT_ENOUGH, 51),
        (ErrorCode.NETWORK_EXCEPTION, NOT_ENOUGH, NOT_ENOUGH, NOT_ENOUGH),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOT_ENOUGH, NOT_ENOUGH, NOT_ENOUGH),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_ENOUGH, NOT_ENOUGH, NOT_ENOUGH),
        (ErrorCode.NOT_COORDINATOR, NOT_ENOUGH, NOT_ENOUGH, NOT_ENOUGH),
        (ErrorCode.PRODUCER_FENCED, 47, 47, 47),
        (ErrorCode.TRANSACTION_ABORTABLE, 48, 120, 120),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 49, 49, 49),
        (ErrorCode.INVALID_TXN_STATE, 48, 48, 48),
        (ErrorCode.INVALID_REQUEST, 42, 42, 42),
    ],
)
async def test_the_coordinators_code_becomes_that_of_the_request(
    producing: Producing, code: ErrorCode, v10: int, v11: int, v12: int
) -> None:
    """By its version, whether the code is of the transaction or of the partition; and nothing is stored."""
    for answer in (TransactionAnswered(code), not_in(code)):
        producing.coordinator.answers = [answer]
        found = [await producing.send(batch(), version) for version in (10, 11, 12)]
        assert found == [v10, v11, v12]
    assert producing.end == 0


async def test_an_old_epoch_is_refused_without_a_question(producing: Producing) -> None:
    """47, not 48: applications end at the latter (KAFKA-19690)."""
    assert await producing.send(batch(epoch=6)) is YES
    producing.end_transaction(0, epoch=6)
    assert await producing.send(batch(epoch=5)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(producing.coordinator.asked) == 1


async def test_a_repetition_in_its_transaction_is_one(producing: Producing) -> None:
    """It gets the offset of the first, and no question."""
    rows = [PartitionData("t", 0, batch())]
    for _ in range(2):
        (answer,) = await producing.kafka.produce(11, -1, rows, "txn")
        assert (answer.error, answer.base_offset) == (0, 0)
    assert producing.end == len(producing.coordinator.asked) == 1


async def test_the_batches_of_a_request_ask_together(producing: Producing) -> None:
    """Before the first of them is answered."""
    producing.coordinator.go.clear()
    rows = [PartitionData("t", index, batch()) for index in range(3)]
    producing.kafka.send_produce(12, -1, rows, "txn")
    await until(lambda: len(producing.coordinator.asked) == 3)
    producing.coordinator.go.set()
    answers = await producing.kafka.receive_produce(12)
    assert [one.error for one in answers] == [0, 0, 0]


async def test_later_requests_of_the_connection_wait(producing: Producing) -> None:
    """So the batches of a producer stay in sequence; those after the first need no question."""
    producing.coordinator.go.clear()
    for sequence in range(5):
        producing.kafka.send_produce(12, -1, [PartitionData("t", 0, batch(sequence))], "txn")
    await until(lambda: producing.coordinator.asked)
    producing.coordinator.go.set()
    for sequence in range(5):
        (answer,) = await producing.kafka.receive_produce(12)
        assert (answer.error, answer.base_offset) == (0, sequence)
    assert len(producing.coordinator.asked) == 1


async def test_a_large_batch_is_opened_and_then_asked_about(producing: Producing) -> None:
    assert await producing.send(batch(count=LARGE)) is YES
    assert producing.end == LARGE
    assert len(producing.coordinator.asked) == 1


# --- between question and append ---


async def during_the_question(
    producing: Producing, act: Callable[[], None], version: int = 11
) -> ErrorCode:
    """The code of a batch; `act` is called when the coordinator has been asked."""
    producing.coordinator.go.clear()
    producing.kafka.send_produce(version, -1, [PartitionData("t", 0, batch())], "txn")
    await until(lambda: producing.coordinator.asked)
    act()
    producing.coordinator.go.set()
    (answer,) = await producing.kafka.receive_produce(version)
    return ErrorCode(answer.error)


@pytest.mark.parametrize(
    ("version", "code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_verified_then_aborted(producing: Producing, version: int, code: ErrorCode) -> None:
    """H3: the marker comes before the batch, so the yes is of a transaction that has ended."""
    found = await during_the_question(producing, lambda: producing.end_transaction(0), version)
    assert found is code
    assert producing.end == producing.partition.last_stable_offset == 1
    assert len(producing.coordinator.asked) == 1


async def test_the_next_transaction_may_have_begun(producing: Producing) -> None:
    """H2 in the first generation: the epoch is the same, but the coordinator has named the transaction that has ended."""

    def end_and_begin() -> None:
        producing.end_transaction(0)
        records = batch(1)
        producing.partition.append_for_coordinator(records, read_header(records), 0)

    producing.coordinator.answers = [in_transaction(0), in_transaction(1)]
    code = await during_the_question(producing, end_and_begin)
    assert code is ErrorCode.TRANSACTION_ABORTABLE
    assert producing.end == 2


async def test_a_transaction_that_begins_during_the_question_counts(producing: Producing) -> None:
    """The marker of the one before has come meanwhile; what the coordinator has named has not ended."""
    producing.coordinator.answers = [in_transaction(1)]
    code = await during_the_question(producing, lambda: producing.end_transaction(0))
    assert code is YES
    assert producing.end == 2
    assert len(producing.coordinator.asked) == 1


async def test_a_ghost_of_an_ended_epoch_is_fenced(producing: Producing) -> None:
    """H2 in the second: the marker has raised the epoch."""
    code = await during_the_question(
        producing, lambda: producing.end_transaction(0, epoch=6), version=12
    )
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producing.end == 1


async def test_questions_end(producing: Producing) -> None:
    """A coordinator that says yes to a transaction which has ended here is asked a few times; the client may try again."""
    producing.end_transaction(3)
    producing.coordinator.answers = [in_transaction(3)]
    assert await producing.send(batch()) is NOT_ENOUGH
    assert len(producing.coordinator.asked) == QUESTIONS_MAX
    assert producing.end == 1


async def test_a_missing_marker_holds_the_next_transaction_up(producing: Producing) -> None:
    """The next marker would end both: an abort that a commit turns into its opposite."""
    assert await producing.send(batch(epoch=5)) is YES
    producing.coordinator.answers = [in_transaction(1)]
    assert await producing.send(batch(epoch=6)) is NOT_ENOUGH
    producing.end_transaction(0, epoch=6)
    assert await producing.send(batch(epoch=6)) is YES


async def test_another_leader_is_found_out(producing: Producing) -> None:
    state = LeaderAndIsr(2, producing.partition.leader_epoch + 1, (2,), node_version=1000)
    code = await during_the_question(producing, lambda: producing.partition.update(state, (1, 2)))
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_too_few_replicas_are_found_out(producing: Producing) -> None:
    def raise_minimum() -> None:
        partition = producing.partition
        partition.rules = replace(partition.rules, min_insync_replicas=2)

    assert await during_the_question(producing, raise_minimum) is NOT_ENOUGH
    assert producing.end == 0


# --- refused without a question ---


async def test_an_unknown_producer_begins_with_0(producing: Producing) -> None:
    """45 from version 12 on: its batches before have been lost."""
    code = await producing.send(batch(3), version=12)
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producing.end == 0


async def test_a_request_has_one_producer(producing: Producing) -> None:
    """49 for all of it."""
    rows = [PartitionData("t", index, batch(producer_id=P + index)) for index in range(2)]
    answers = await producing.kafka.produce(11, -1, rows, "txn")
    assert [one.error for one in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    rows = [PartitionData("t", index, batch(epoch=index)) for index in range(2)]
    answers = await producing.kafka.produce(11, -1, rows, "txn")
    assert [one.error for one in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not producing.coordinator.asked


@pytest.mark.parametrize("count", [1, 2])
async def test_a_transactional_batch_needs_an_id(producing: Producing, count: int) -> None:
    """53 for the whole request."""
    rows = [PartitionData("t", index, batch()) for index in range(count)]
    answers = await producing.kafka.produce(11, -1, rows)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [one.error for one in answers] == [refused] * count


async def test_a_transactional_batch_needs_a_producer(producing: Producing) -> None:
    plain = replace(plain_batch([b"v"]), attributes=TRANSACTIONAL).encode()
    assert await producing.send(plain) is ErrorCode.INVALID_RECORD


async def test_other_batches_of_a_request_with_an_id_are_plain(producing: Producing) -> None:
    """As in Kafka: the id alone makes no transaction."""
    assert await producing.send(plain_batch([b"v"]).encode()) is YES
    assert not producing.coordinator.asked
    assert producing.partition.last_stable_offset == 1
