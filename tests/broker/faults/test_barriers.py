"""Requests and answers that rules hold until somebody releases them; nothing of it is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from echoless.broker.faults import barrier
from echoless.broker.faults.reading_rules import read_rules
from tests.broker.faults.lab import TOPIC, Lab, answered, batch, produce, send
from tests.broker.faults.test_request_faults import expecting_silence, until
from tests.support.in_process import in_process
from tests.support.raw_client import RawConnection

PRODUCE = {"api": "produce"}


def held(lab: Lab, name: str) -> int:
    (rule,) = [one for one in lab.broker.faults.documents() if one["name"] == name]
    return rule["held"]


def release(lab: Lab, name: str, count: int | None = None) -> int:
    return lab.broker.faults.named(name).parts[0].barrier.release(count)


async def test_a_held_request_is_processed_when_it_is_released(
    lab: Lab, kafka: RawConnection
) -> None:
    """Not before, and what is behind it on its connection keeps its place; other connections go on."""
    name = lab.add("hold_request", PRODUCE, times=1)
    send(kafka, batch(0))
    send(kafka, batch(1))
    await until(lambda: held(lab, name) == 1)
    other = await lab.connect()
    async with expecting_silence(kafka):
        assert await produce(other, batch(0, producer_id=7)) == [0]
    assert lab.counts(name) == (1, 1)
    assert release(lab, name) == 1
    assert [(await kafka.receive_produce(9))[0].error for _ in range(2)] == [0, 0]
    assert [sequence for sequence, _ in lab.verdicts()] == [0, 0, 1]
    assert held(lab, name) == 0


async def test_a_held_response_was_processed_at_once(lab: Lab, kafka: RawConnection) -> None:
    """Its answer, and those behind it, come when it is released."""
    name = lab.add("hold_response", PRODUCE, times=1)
    send(kafka, batch(0))
    send(kafka, batch(1))
    await until(lambda: len(lab.verdicts()) == 2 and held(lab, name) == 1)
    async with expecting_silence(kafka):
        await asyncio.sleep(0)
    release(lab, name)
    assert [(await kafka.receive_produce(9))[0].error for _ in range(2)] == [0, 0]


async def test_the_oldest_are_released_first(lab: Lab) -> None:
    """As many as are asked for; the rule goes on to hold others."""
    name = lab.add("hold_request", PRODUCE)
    connections = [await lab.connect() for _ in range(3)]
    for number, one in enumerate(connections):
        send(one, batch(0, producer_id=number + 1))
        await until(lambda number=number: held(lab, name) == number + 1)
    assert release(lab, name, 2) == 2
    for one in connections[:2]:
        assert [row.error for row in await one.receive_produce(9)] == [0]
    send(connections[0], batch(1, producer_id=1))
    await until(lambda: held(lab, name) == 2)
    assert release(lab, name) == 2


@pytest.mark.parametrize("action", ["hold_request", "hold_response"])
@pytest.mark.parametrize("end", ["removed", "over"])
async def test_the_end_of_a_rule_releases_what_it_holds(
    lab: Lab, kafka: RawConnection, action: str, end: str
) -> None:
    """Removed, or its time over; nothing is held from then on."""
    schedule = {"duration_ms": 60} if end == "over" else {}
    name = lab.add(action, PRODUCE, **schedule)
    send(kafka, batch(0))
    await until(lambda: lab.counts(name) == (1, 1))
    if end == "removed":
        lab.broker.faults.remove(name)
    assert [row.error for row in await kafka.receive_produce(9)] == [0]
    assert await produce(kafka, batch(1)) == [0]


async def test_a_request_whose_client_has_gone_stays_and_comes_late(
    lab: Lab, kafka: RawConnection
) -> None:
    """The retry on another connection is stored; the original, released after it, is the duplicate."""
    name = lab.add("hold_request", PRODUCE, times=1)
    send(kafka, batch(0))
    await until(lambda: held(lab, name) == 1)
    await kafka.close()
    (rule,) = [one for one in lab.broker.faults.documents() if one["name"] == name]
    await until(lambda: lab.broker.faults.documents()[0]["held_requests"][0]["client_gone"] is True)
    assert rule["held_requests"][0]["api"] == "produce"
    other = await lab.connect()
    assert [row.error for row in await answered(other, batch(0))] == [0]
    release(lab, name)
    await until(lambda: len(lab.verdicts()) == 2)
    assert lab.verdicts() == [(0, "append"), (0, "duplicate")]


async def test_an_answer_whose_client_has_gone_is_held_no_longer(
    lab: Lab, kafka: RawConnection
) -> None:
    """Nobody is left to be answered."""
    name = lab.add("hold_response", PRODUCE)
    send(kafka, batch(0))
    await until(lambda: held(lab, name) == 1)
    await kafka.close()
    await until(lambda: held(lab, name) == 0)


@pytest.mark.parametrize("action", ["hold_request", "hold_response"])
async def test_a_broker_that_holds_something_stops_in_order(tmp_path: Path, action: str) -> None:
    """At once: neither a connection nor a task waits for a release that will never come."""
    async with in_process(tmp_path, num_partitions=1) as running:
        lab = Lab(running)
        await lab.create_topic()
        name = lab.add(action, PRODUCE)
        connection = await lab.connect()
        send(connection, batch(0))
        await until(lambda: held(lab, name) == 1)
        began = asyncio.get_running_loop().time()
        lab.broker.begin_stop()
    assert asyncio.get_running_loop().time() - began < 5
    await connection.close()
    left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    assert not [one for one in left if "hold" in repr(one) or "_in_turn" in repr(one)]


async def test_one_rule_holds_a_bounded_number(
    lab: Lab, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further requests are left alone, and not counted."""
    monkeypatch.setattr(barrier, "HELD_MAX", 1)
    name = lab.add("hold_request", PRODUCE)
    send(kafka, batch(0))
    await until(lambda: held(lab, name) == 1)
    other = await lab.connect()
    assert await produce(other, batch(0, producer_id=7)) == [0]
    assert lab.counts(name) == (1, 1)
    release(lab, name)


async def test_a_script_may_hold(lab: Lab, kafka: RawConnection) -> None:
    """First an error, then a barrier; what is held is counted of the whole script."""
    (script,) = lab.broker.faults.add(
        read_rules(
            {
                "name": "s",
                "match": {"api": "produce", "topic": TOPIC},
                "script": [{"type": "error", "code": 6}, "hold_request"],
            }
        )
    )
    assert script["script"][1]["held"] == 0
    assert await produce(kafka, batch(0)) == [6]
    send(kafka, batch(0))
    await until(lambda: lab.broker.faults.documents()[0]["held"] == 1)
    lab.broker.faults.clear()
    assert [row.error for row in await kafka.receive_produce(9)] == [0]
