"""Answers that an event makes ready: in order, in one write, and gone with their client."""

from __future__ import annotations

import asyncio

import pytest

from echoless.broker.metrics import Metrics
from echoless.broker.network.connection import Connection
from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import CloseConnectionError
from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from tests.broker.network.fed_connection import RecordingTransport, framed, receive

FRAME_SIZE_MAX = 1_000_000


class Echo(Promise):
    """Answers with the bytes of its request, when the test says so."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self.payload = payload
        self.is_abandoned = False

    def keep(self) -> None:
        self._become_ready()

    def abandon(self) -> None:
        self.is_abandoned = not self.is_ready

    def _result(self) -> bytes:
        if self.payload == b"bug":
            raise KeyError(self.payload)
        if self.payload == b"close":
            raise CloseConnectionError("as asked")
        return self.payload


class Poll(Echo):
    """Waits for others than the broker."""

    waits_for_others = True


class Fed:
    """A connection whose requests are answered by promises; "now" and "later" by other means."""

    def __init__(self) -> None:
        self.promises: list[Echo] = []
        self.later: asyncio.Future[tuple[bytes]] = asyncio.get_running_loop().create_future()
        self.budget, self.unsent = MemoryBudget(FRAME_SIZE_MAX), UnsentAnswers(UNSENT_BYTES_MAX)
        self.metrics = Metrics()
        self.connection = Connection(
            self.dispatch,
            connection_id=1,
            frame_size_max=FRAME_SIZE_MAX,
            budget=self.budget,
            unsent=self.unsent,
            connections=set(),
            metrics=self.metrics,
        )
        self.transport = RecordingTransport()
        self.connection.connection_made(self.transport)

    def dispatch(self, frame, _peer):
        payload = bytes(frame)
        if payload == b"now":
            return (framed(payload),)
        if payload == b"later":
            return self.later
        self.promises.append((Poll if payload.startswith(b"poll") else Echo)(payload))
        return self.promises[-1].then(framed).then(lambda answer: (answer,))

    async def send(self, *payloads: bytes) -> None:
        """Feeds requests as one read, and lets the loop turn."""
        receive(self.connection, b"".join(map(framed, payloads)))
        await asyncio.sleep(0)

    async def keep(self, *numbers: int) -> None:
        """Makes these promises ready in one event, and lets the loop turn."""
        for number in numbers:
            self.promises[number].keep()
        await asyncio.sleep(0)


@pytest.fixture
async def fed(monkeypatch):
    monkeypatch.setattr(LOOP_TURN, "clock", lambda: 0.0)  # a slow machine ends no turn
    one = Fed()
    yield one
    if one.connection.host:
        one.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert one.unsent.total == 0
    assert one.budget.used == 0
    assert one.budget.waiting.total == 0


async def test_answers_that_one_event_makes_ready_leave_in_one_write(fed):
    """A flush covers many appends; a system call for each answer costs more than the rest."""
    await fed.send(b"1", b"2", b"3")
    await fed.keep(0, 1, 2)
    assert fed.transport.writes == [framed(b"1") + framed(b"2") + framed(b"3")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
async def test_promises_keep_the_order_of_requests(fed, order):
    """Any of them may be ready first, alone or together, with answers of other kinds between them."""
    await fed.send(b"1", b"now", b"2", b"later", b"3", b"now")
    for number in order:
        await fed.keep(number)
    fed.later.set_result((framed(b"later"),))
    for _ in range(3):
        await asyncio.sleep(0)
    answers = [b"1", b"now", b"2", b"later", b"3", b"now"]
    assert b"".join(fed.transport.writes) == b"".join(map(framed, answers))


async def test_a_client_that_reads_nothing_gets_its_answers_when_it_reads_again(fed):
    """They are counted as unsent meanwhile."""
    await fed.send(b"1", b"2")
    fed.connection.pause_writing()
    await fed.keep(1, 0)
    assert fed.transport.writes == []
    assert fed.unsent.total == len(framed(b"1") + framed(b"2"))
    fed.connection.resume_writing()
    assert b"".join(fed.transport.writes) == framed(b"1") + framed(b"2")
    assert fed.unsent.total == 0


async def test_the_memory_of_a_large_request_is_free_while_its_promise_waits(fed):
    """A produce may wait long for its replicas."""
    await fed.send(b"x" * FRAME_SIZE_MAX)
    assert fed.budget.used == 0


async def test_an_answer_that_closes_the_connection_is_no_bug(fed, caplog):
    """A request that may be a copy of one that was answered has no other answer."""
    await fed.send(b"1", b"close")
    await fed.keep(0, 1)
    assert fed.transport.writes == [framed(b"1"), b"closed"]
    assert fed.metrics.requests_failed_total == 0
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_lost_client_abandons_its_promises(fed):
    """Their waits end; one that is ready already is dropped."""
    await fed.send(b"1", b"2")
    fed.promises[0].keep()
    fed.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert [one.is_abandoned for one in fed.promises] == [False, True]
    assert fed.transport.writes == []
    fed.connection.host = ""


async def test_a_bug_in_an_answer_ends_the_connection_that_asked(fed, caplog):
    """Not the event that made it ready, which belongs to everyone."""
    await fed.send(b"1", b"bug")
    await fed.keep(0, 1)
    assert fed.transport.writes == [framed(b"1"), b"closed"]
    assert fed.metrics.requests_failed_total == 1
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


async def test_a_drain_waits_for_promises(fed):
    """A stop answers what is in flight."""
    await fed.send(b"1")
    drained = asyncio.ensure_future(fed.connection.drain())
    await asyncio.sleep(0)
    assert not drained.done()
    await fed.keep(0)
    assert fed.transport.writes[0] == framed(b"1")
    fed.connection.connection_lost(None)
    await asyncio.wait_for(drained, 60)
    fed.connection.host = ""


async def test_a_drain_ends_with_its_client(fed):
    """A promise of a client that is gone holds up no stop."""
    await fed.send(b"1")
    drained = asyncio.ensure_future(fed.connection.drain())
    await asyncio.sleep(0)
    fed.connection.connection_lost(None)
    await asyncio.wait_for(drained, 60)
    fed.connection.host = ""


async def test_a_promise_can_be_awaited():
    """As faults and merged answers do; cancelling the wait abandons it."""
    kept, dropped = Echo(b"kept"), Echo(b"dropped")
    kept.keep()
    assert await kept.then(bytes.upper) == b"KEPT"
    waiting = asyncio.ensure_future(dropped)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert dropped.is_abandoned


async def test_what_waits_for_others_counts_as_waiting(fed):
    """From many connections such requests could take all memory; what waits for a flush is answered soon."""
    waiting = fed.budget.waiting
    await fed.send(b"1", b"poll 1", b"poll 2")
    assert waiting.total == len(b"poll 1") + len(b"poll 2")
    await fed.keep(1)
    assert waiting.total == len(b"poll 2")
    await fed.keep(0, 2)
    assert waiting.total == 0
    assert b"".join(fed.transport.writes) == b"".join(map(framed, (b"1", b"poll 1", b"poll 2")))


async def test_beyond_the_bound_a_waiting_connection_is_not_read(fed):
    """It continues when the request that it has is answered."""
    fed.budget.waiting.bytes_max = 2 * len(b"poll 1")
    await fed.send(b"poll 1", b"poll 2")
    assert len(fed.promises) == 1
    await fed.keep(0)
    assert len(fed.promises) == 2
    fed.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert fed.promises[1].is_abandoned
    assert fed.budget.waiting.total == 0
