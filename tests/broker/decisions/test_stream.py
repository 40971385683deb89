"""The queue between the broker and one reader of its decisions."""

from __future__ import annotations

import asyncio

from echoless.broker.decisions.events import FaultedBatch, FaultHit, RequestSeen, SeenBatch
from echoless.broker.decisions.stream import (
    EVERYTHING,
    RECORD_BYTES_MAX,
    DecisionStream,
    Selection,
)
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch


def _hit(number: int, *batches: tuple[int, str, int]) -> FaultHit:
    faulted = tuple(FaultedBatch(t, p, producer_id, 0, 0, 1) for producer_id, t, p in batches)
    return FaultHit(number, 0, "rule", "drop_response", "produce", 1, 1, None, "?", faulted)


async def test_slow_reader_loses_events_and_is_told_how_many() -> None:
    """Events that find the queue full are counted; earlier ones are kept, in order."""
    stream = DecisionStream(capacity=2)
    for number in range(5):
        stream.offer(_hit(number))
    waiting = await stream.take()
    assert waiting is not None
    assert ([event.number for event in waiting.events], waiting.lost) == ([0, 1], 3)


async def test_reader_that_has_caught_up_gets_everything_again() -> None:
    """Losing ends with the reading: the queue is empty, and there is room."""
    stream = DecisionStream(capacity=1)
    stream.offer(_hit(0))
    stream.offer(_hit(1))
    await stream.take()
    stream.offer(_hit(2))
    waiting = await stream.take()
    assert waiting is not None
    assert ([event.number for event in waiting.events], waiting.lost) == ([2], 0)


async def test_reader_waits_until_there_is_something() -> None:
    """An empty queue answers when the first event comes, not before."""
    stream = DecisionStream()
    taking = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    assert not taking.done()
    stream.offer(_hit(7))
    waiting = await taking
    assert waiting is not None
    assert [event.number for event in waiting.events] == [7]


async def test_closed_stream_gives_what_waits_and_then_ends() -> None:
    """Closing loses nothing that was offered before, and takes nothing after."""
    stream = DecisionStream()
    stream.offer(_hit(1))
    stream.close()
    stream.offer(_hit(2))
    waiting = await stream.take()
    assert waiting is not None
    assert [event.number for event in waiting.events] == [1]
    assert await stream.take() is None


def test_selection_takes_a_request_with_any_batch_that_fits() -> None:
    """All given fields must hold for one and the same batch."""
    hit = _hit(1, (7, "orders", 0), (7, "bills", 1))
    assert EVERYTHING.includes(hit)
    assert Selection(7, "bills", 1).includes(hit)
    assert not Selection(7, "orders", 1).includes(hit)
    assert not Selection(producer_id=8).includes(hit)


def test_fault_without_batches_concerns_everybody() -> None:
    """A frozen broker is shown to followers of a single producer, too."""
    assert Selection(producer_id=8).includes(_hit(1))


async def test_unwanted_events_take_no_room() -> None:
    """A busy producer cannot push out the events of the one that is followed."""
    stream = DecisionStream(Selection(producer_id=7), capacity=1)
    for _ in range(3):
        stream.offer(_hit(1, (8, "orders", 0)))
    stream.offer(_hit(2, (7, "orders", 0)))
    waiting = await stream.take()
    assert waiting is not None
    assert ([event.number for event in waiting.events], waiting.lost) == ([2], 0)


def _request(number: int, records: bytes) -> RequestSeen:
    header = read_header(build_batch([Record(0, 0, None, b"value")], producer_id=7))
    batches = (SeenBatch("orders", 0, header, records),)
    return RequestSeen(
        number, 0, "produce", 9, 100, None, "?", "User:a", 1, number, None, -1, batches
    )


async def test_requests_are_for_those_who_ask_for_them() -> None:
    """Everyone else is shown decisions only; the other filters hold for requests, too."""
    request = _request(1, b"")
    assert not EVERYTHING.includes(request)
    assert Selection(producer_id=7, requests=True).includes(request)
    assert not Selection(producer_id=8, requests=True).includes(request)


async def test_records_in_the_queue_are_bounded() -> None:
    """By their bytes; what is lost is counted, and a reader that has caught up gets everything again."""
    stream = DecisionStream(Selection(requests=True, records=True))
    half = bytes(RECORD_BYTES_MAX // 2)
    for number in range(4):
        stream.offer(_request(number, half))
    waiting = await stream.take()
    assert waiting is not None
    assert (len(waiting.events), waiting.lost) == (2, 2)
    stream.offer(_request(4, half))
    waiting = await stream.take()
    assert waiting is not None
    assert (len(waiting.events), waiting.lost) == (1, 0)
