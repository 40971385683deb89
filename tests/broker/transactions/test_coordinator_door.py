"""The way of a leader's questions to coordinators: what goes together, and that each is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from echoless.broker.cluster.stand_alone import StandAlone
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.transactions import coordinator_door
from echoless.broker.transactions.coordinator_door import IN_FLIGHT_MAX, CoordinatorDoor
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.codec import encode_message, locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.transactions import (
    AddOrVerify,
    TransactionAnswered,
    TransactionAsk,
    to_add_or_verify_answer,
)
from echoless.protocol.state_records.transaction_records import TransactionPartition
from tests.broker.until import until

HERE, THERE = 1, 2
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
NOT_AVAILABLE = TransactionAnswered(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def asking(transactional_id: str, *indexes: int, epoch: int = 0) -> TransactionAsk:
    partitions = tuple([TransactionPartition("orders", index, b"o" * 16) for index in indexes])
    return TransactionAsk(transactional_id, 7, epoch, True, 2, partitions)


def judged(ask: TransactionAsk, *, number: int = 5) -> TransactionAnswered:
    """Accepts even partitions, so that a code in the wrong place shows."""
    codes = [ABORTABLE if one.partition % 2 else ErrorCode.NONE for one in ask.partitions]
    return TransactionAnswered(ErrorCode.NONE, number, tuple(codes))


class Coordinators(StandAlone):
    """This broker coordinates ids that begin with "h", another one all others; it answers when it is let."""

    def __init__(self) -> None:
        self.asked_here: list[TransactionAsk] = []
        self.messages: list[Sequence[TransactionAsk]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.failure: Exception | None = None
        self.unknown: set[str] = set()
        self.known_at_once: TransactionAnswered | None = None
        self.door = CoordinatorDoor(HERE, self, self.coordinator_of, self.ask_here, self.look_here)

    def look_here(self, ask: TransactionAsk) -> TransactionAnswered | None:
        return self.known_at_once if ask.transactional_id.startswith("h") else None

    def coordinator_of(self, transactional_id: str) -> int:
        if transactional_id in self.unknown:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return HERE if transactional_id.startswith("h") else THERE

    async def ask_here(self, ask: TransactionAsk) -> TransactionAnswered:
        self.asked_here.append(ask)
        await self.go.wait()
        return judged(ask)

    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        assert (broker_id, timeout_s) == (THERE, coordinator_door.ANSWERED_S)
        read = AddOrVerify.read(Fields(message["type"], locate_fields(encode_message(message))))
        assert read.broker_id == HERE
        self.messages.append(read.transactions)
        await self.go.wait()
        if self.failure is not None:
            raise self.failure
        answer = to_add_or_verify_answer([judged(one) for one in read.transactions])
        error = {"code": 0, "name": "NONE", "message": "", "retriable": False}
        return {"type": message["type"], "error": error, **answer}


async def test_what_comes_in_one_turn_is_one_message_with_one_row_per_transaction() -> None:
    two = Coordinators()
    answers = [
        two.door.ask(one)
        for one in (
            asking("a", 0),
            asking("b", 1, 2),
            asking("a", 3, 0),
            asking("a", 4, epoch=1),
        )
    ]
    found = await asyncio.gather(*answers)
    (rows,) = two.messages
    assert list(rows) == [asking("a", 0, 3), asking("b", 1, 2), asking("a", 4, epoch=1)]
    assert [one.partition_codes for one in found] == [
        (ErrorCode.NONE,),
        (ABORTABLE, ErrorCode.NONE),
        (ABORTABLE, ErrorCode.NONE),
        (ErrorCode.NONE,),
    ]
    assert {one.number for one in found} == {5}


async def test_a_coordinator_here_is_asked_without_a_socket() -> None:
    two = Coordinators()
    found = await asyncio.gather(two.door.ask(asking("h", 0)), two.door.ask(asking("h", 1)))
    assert two.asked_here == [asking("h", 0, 1)]
    assert not two.messages
    assert [one.partition_codes for one in found] == [(ErrorCode.NONE,), (ABORTABLE,)]


async def test_questions_gather_while_as_many_as_may_be_are_on_their_way() -> None:
    two = Coordinators()
    two.go.clear()
    answers = []
    for number in range(IN_FLIGHT_MAX):
        answers.append(two.door.ask(asking(f"a{number}", 0)))
        await until(lambda: len(two.messages) == number + 1)  # noqa: B023 - called now
    answers += [two.door.ask(asking("late", index)) for index in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(two.messages) == IN_FLIGHT_MAX
    two.go.set()
    found = await asyncio.gather(*answers)
    assert list(two.messages[-1]) == [asking("late", *range(50))]
    assert len(two.messages) == IN_FLIGHT_MAX + 1
    assert [one.partition_codes[0] for one in found[-2:]] == [ErrorCode.NONE, ABORTABLE]


async def test_a_message_and_a_row_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_door, "PARTITIONS_PER_ROW", 2)
    monkeypatch.setattr(coordinator_door, "ROWS_BYTES", 200)
    two = Coordinators()
    await asyncio.gather(*[two.door.ask(asking("a", index)) for index in range(9)])
    rows = [[len(row.partitions) for row in message] for message in two.messages]
    assert rows == [[2, 2, 2], [2, 1]]


@pytest.mark.parametrize(
    "failure", [PeerError("is away"), KafkaError(ErrorCode.UNSUPPORTED_VERSION)]
)
async def test_a_broker_that_does_not_answer_is_not_available(failure: Exception) -> None:
    two = Coordinators()
    two.failure = failure
    assert await two.door.ask(asking("a", 0)) == NOT_AVAILABLE
    two.failure = None
    assert (await two.door.ask(asking("a", 0))).error_code is ErrorCode.NONE


async def test_a_look_at_an_id_of_this_broker_is_answered_at_once() -> None:
    """Unless its coordinator has to wait; what adds a partition always goes with others."""
    two = Coordinators()
    look = asking("h", 0)._replace(is_add=False)
    assert isinstance(two.door.ask(look), asyncio.Future)
    two.known_at_once = judged(look)
    assert two.door.ask(look) == judged(look)
    for other in (asking("h", 0), asking("a", 0)._replace(is_add=False)):
        assert isinstance(two.door.ask(other), asyncio.Future)
    await two.door.close()


async def test_an_id_without_a_known_coordinator_is_answered_at_once() -> None:
    two = Coordinators()
    two.unknown.add("a")
    assert two.door.ask(asking("a", 0)) == NOT_AVAILABLE


async def test_a_client_that_is_gone_does_not_keep_others_from_their_answer() -> None:
    two = Coordinators()
    gone, there = two.door.ask(asking("a", 0)), two.door.ask(asking("a", 1))
    gone.cancel()
    assert (await there).partition_codes == (ABORTABLE,)


async def test_closing_answers_everything() -> None:
    two = Coordinators()
    two.go.clear()
    answers = [two.door.ask(asking(f"{place}{number}", 0)) for place in "ha" for number in "12"]
    await until(lambda: bool(two.messages) and len(two.asked_here) == 2)
    answers += [two.door.ask(asking("queued", 0))]
    await two.door.close()
    assert [one.result() for one in answers] == [NOT_AVAILABLE] * 5
