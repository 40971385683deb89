"""Transactions that no coordinator knows: found, asked about, and aborted by the leader of their partition."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.transactions.hanging import (
    SLACK_MS,
    CoordinatorsQuestion,
    HangingTransactions,
)
from echoless.protocol.control_records import NO_NUMBER, EndMarker, MarkerType, read_marker
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.codec import decode_message, encode_message, locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.find_transactions import (
    PRODUCERS_MAX,
    FindTransactions,
    ProducerPartition,
    TransactionsFound,
    read_transactions_found,
)
from tests.broker.handlers.one_transaction import add, begin, end
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, create_topic
from tests.support.transactions_by_hand import NOW_MS, HandMadeTransactions

P = 2**40
"""A producer of no coordinator."""
TIMEOUT_MS = 1000
LATE_MS = NOW_MS + TIMEOUT_MS + SLACK_MS + 1
"""The first moment at which a batch that was appended at `NOW_MS` is old enough."""


class Hanging:
    """A broker whose coordinators all answer, and a clock that stands."""

    def __init__(self, running: Running) -> None:
        self.broker = running.broker
        self.now_ms = LATE_MS
        clock: Any = SimpleNamespace(steady_ms=lambda: self.now_ms)
        services = self.broker.services
        self.question = CoordinatorsQuestion(
            self.broker.config.broker_id, services.cluster, services.transactions
        )
        self.asked: list[Sequence[int]] = []
        ask = self.question.open_of

        async def open_of(producer_ids: Sequence[int]) -> frozenset[ProducerPartition] | None:
            self.asked.append(producer_ids)
            found = await ask(producer_ids)
            self.meanwhile()
            return found

        self.question.open_of = open_of  # type: ignore[method-assign]
        held = self.broker.partitions
        self.hanging = HangingTransactions(
            held, clock, self.question, services.markers, timeout_max_ms=TIMEOUT_MS
        )

    def meanwhile(self) -> None:
        """Happens while the coordinators are asked."""

    @property
    def partition(self) -> Partition:
        return self.broker.partitions["t", 0]

    async def round(self) -> None:
        self.hanging.note_changed([("t", 0)])
        await self.hanging.round()

    @property
    def is_open(self) -> bool:
        return self.partition.last_stable_offset < self.partition.log.log_end_offset


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with in_process(tmp_path) as running:
        yield running


@pytest.fixture
async def one(running: Running, kafka: RawConnection) -> Hanging:
    """With a transaction of `P` on partition 0, and coordinators that know nothing of it."""
    await create_topic(kafka, "t", 1)
    await begin(kafka)
    one = Hanging(running)
    HandMadeTransactions(one.partition).write(P, b"v")
    return one


async def test_what_no_coordinator_knows_is_aborted(
    one: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """By a marker without a number; and it is said."""
    assert one.is_open
    with caplog.at_level(logging.WARNING):
        await one.round()
    assert not one.is_open
    assert one.asked == [[P]]
    marker = read_marker(one.partition.log.read(1, 1, 2))
    assert marker == EndMarker(MarkerType.ABORT, 0, NO_NUMBER)
    assert f"no coordinator knows the transaction of producer id {P}" in caplog.text
    await one.round()
    assert one.asked == [[P]], "nothing is open any more"


async def test_nothing_is_asked_before_it_is_late(one: Hanging) -> None:
    one.now_ms -= 1
    await one.round()
    assert not one.asked
    assert one.is_open


async def test_a_transaction_that_a_coordinator_knows_stays(
    one: Hanging, kafka: RawConnection
) -> None:
    """Until it has ended there: then its marker should have come."""
    identity = await begin(kafka, "other")
    await add(kafka, identity, {"t": (0,)}, name="other")
    await one.round()  # ends that of P
    HandMadeTransactions(one.partition).write(identity[0], b"w")
    await one.round()
    assert one.is_open
    assert one.asked[-1] == [identity[0]]
    found = await one.broker.services.transactions.find_open([identity[0], P])
    assert found.open == {ProducerPartition(identity[0], "t", 0)}
    assert (await end(kafka, identity, name="other")).error_code == 0


@pytest.mark.parametrize("what", ["appended", "deposed", "ended"])
async def test_what_has_changed_meanwhile_stays(one: Hanging, what: str) -> None:
    """A transaction that goes on is not hanging; and another leader looks for itself."""
    hand = HandMadeTransactions(one.partition)

    def meanwhile() -> None:
        if what == "appended":
            hand.write(P, b"more")
        elif what == "deposed":
            one.partition.leader_epoch += 1
        else:
            hand.end(P, MarkerType.COMMIT)

    one.meanwhile = meanwhile  # type: ignore[method-assign]
    await one.round()
    end_offset = 1 if what == "deposed" else 2
    assert one.partition.log.log_end_offset == end_offset


async def test_nothing_is_done_without_a_coordinator(
    one: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while one loads, is away, or answers what cannot be read; nor without the topic of their state."""
    transactions = one.broker.services.transactions
    every = await transactions.find_open([])
    most = TransactionsFound(every.state_partitions - {3}, frozenset())

    async def find_most(_ids: Sequence[int]) -> TransactionsFound:
        return most

    failures = [PeerError("away"), DecodeError("odd"), KafkaError(ErrorCode.NOT_COORDINATOR)]

    async def fail(_ids: Sequence[int]) -> TransactionsFound:
        raise failures.pop()

    monkeypatch.setattr(transactions, "find_open", find_most)
    await one.round()
    assert one.is_open
    monkeypatch.setattr(transactions, "find_open", fail)
    while failures:
        await one.round()
        assert one.is_open
    monkeypatch.undo()
    monkeypatch.setattr(type(transactions.topic), "partition_count", property(lambda _topic: None))
    await one.round()
    assert one.is_open


async def test_another_broker_is_asked_by_a_message(
    running: Running, kafka: RawConnection, native: NativeConnection
) -> None:
    """Its answer has every partition whose ids are known."""
    await create_topic(kafka, "t", 2)
    identity = await begin(kafka)
    await add(kafka, identity, {"t": (1,)})
    answer = await native.call("find_transactions", broker_id=2, producer_ids=[identity[0], P])
    found = read_transactions_found(answer)
    assert found.state_partitions == set(
        range(running.broker.config.transaction_state_log_num_partitions)
    )
    assert found.open == {ProducerPartition(identity[0], "t", 1)}


def sent(fields: dict[str, Any]) -> Fields:
    return Fields("message", locate_fields(encode_message(fields)))


def test_the_message_and_its_answer_are_read_as_written() -> None:
    message = FindTransactions(3, [1, 2**60])
    assert FindTransactions.read(sent(message.to_message())) == message
    found = TransactionsFound(frozenset({0, 7}), frozenset({ProducerPartition(5, "t", 1)}))
    error = {"code": 0, "name": "NONE", "message": "", "retriable": False}
    answer = decode_message(encode_message({"error": error, **found.to_answer()}))
    assert read_transactions_found(answer) == found


@pytest.mark.parametrize("ids", [[-1], ["a"], [True], [1] * (PRODUCERS_MAX + 1)])
def test_other_producer_ids_are_refused(ids: list[Any]) -> None:
    message = {"broker_id": 1, "producer_ids": ids}
    with pytest.raises(KafkaError, match="producer_ids"):
        FindTransactions.read(sent(message))


@pytest.mark.parametrize(
    "odd", [{"state_partitions": [-1]}, {"open": [[1, "t"]]}, {"open": ["t"]}, {"open": None}]
)
def test_other_answers_are_refused(odd: dict[str, Any]) -> None:
    error = {"code": 0, "name": "NONE", "message": "", "retriable": False}
    with pytest.raises(DecodeError):
        read_transactions_found({"error": error, "state_partitions": [], "open": [], **odd})
