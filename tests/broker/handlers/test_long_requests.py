"""Requests that take long to read: they are read beside the event loop, in the order of their connection."""

from __future__ import annotations

import asyncio
import io
import struct
import threading
from typing import Any

import pytest
from kio.serial import entity_writer

from echoless.broker.handlers import dispatch
from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.network.turns import FOR_CLIENTS, for_client, in_thread
from echoless.protocol.request_fields import ELEMENTS_AT_ONCE
from tests.hostile.steps.shapes import shaped
from tests.support.in_process import Running
from tests.support.kio_requests import smallest_request
from tests.support.raw_client import RawConnection

LONG = ["list_offsets", "metadata", "offset_commit", "fetch", "produce"]
"""Read by kio, by hand, and with records that stay in the frame."""


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each body that is read as a long one, whether that was beside the loop's thread."""
    seen: list[bool] = []
    read = dispatch._body

    def noted(*arguments: Any) -> Any:
        seen.append(threading.current_thread() is not threading.main_thread())
        return read(*arguments)

    monkeypatch.setattr(dispatch, "_body", noted)
    return seen


def body_of(name: str, *, long: bool) -> bytes:
    """A request of the newest version, of one row or of as many as a request may have."""
    if long:
        api = API_BY_NAME[name]
        return shaped(api, api.version_max, "many").body
    out = io.BytesIO()
    entity = smallest_request(name, API_BY_NAME[name].version_max, elements=1)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("name", LONG)
async def test_a_long_request_is_read_in_a_thread_and_a_short_one_is_not(
    running: Running, threads: list[bool], name: str
) -> None:
    """Its answer precedes those of the later requests of its connection, which are of the same kind here."""
    api = API_BY_NAME[name]
    connection = await RawConnection.open(running.kafka_address)
    connection.send(api.key, api.version_max, body_of(name, long=False), flexible=True)
    short = await connection.receive()
    assert not threads
    for is_long in (True, False):
        body = body_of(name, long=is_long)
        connection.send(api.key, api.version_max, body, flexible=True)
    answers = [await connection.receive(), await connection.receive()]
    assert threads == [True]
    assert len(answers[0]) > ELEMENTS_AT_ONCE
    assert len(answers[1]) == len(short)
    await connection.close()


async def test_what_the_broker_needs_itself_does_not_wait_for_clients(running: Running) -> None:
    """A load or an import has its thread; another address waits for one piece of work of each."""
    del running
    gate, order = threading.Event(), list[str]()
    first = asyncio.ensure_future(for_client("a", gate.wait))
    rest = [asyncio.ensure_future(for_client("a", lambda: order.append("a"))) for _ in range(3)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(for_client("b", lambda: order.append("b")))
    assert await in_thread(lambda: struct.calcsize(">i")) == 4
    assert not first.done()
    gate.set()
    await asyncio.gather(first, *rest, other)
    assert order.index("b") <= 1
    assert await FOR_CLIENTS.run("c", lambda: 7) == 7
