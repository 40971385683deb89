"""kio's classes of an API's version are imported when it is first used: beside the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from echoless.protocol import registry
from echoless.protocol.registry import Api
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, message

_SLOW, _KNOWN = 4, 1
"""A version of ListOffsets that was not used yet, and one that is imported."""


class Held:
    """An import that waits."""

    def __init__(self) -> None:
        self.is_asked, self.may_import = threading.Event(), threading.Event()
        self.thread: int | None = None


@contextmanager
def held_import(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Keeps `_SLOW` from being imported until `may_import` is set."""
    monkeypatch.setattr(registry, "_DECODABLE", registry._DECODABLE - {("list_offsets", _SLOW)})
    held, prepare = Held(), Api.prepare_decoding

    def prepare_held(api: Api, version: int) -> None:
        if (api.name, version) == ("list_offsets", _SLOW):
            held.thread = threading.get_ident()
            held.is_asked.set()
            held.may_import.wait()
        prepare(api, version)

    monkeypatch.setattr(Api, "prepare_decoding", prepare_held)
    try:
        yield held
    finally:
        held.may_import.set()


def list_offsets(version: int) -> object:
    fields = {"isolation_level": 0} if version >= 2 else {}
    return message("list_offsets", version, "Request")(replica_id=-1, topics=(), **fields)


async def test_others_are_served_while_an_import_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 200 ms the first time and 10 ms for each of a hundred versions: a thread does it."""
    async with in_process(tmp_path) as running:
        await call_known(running)
        first = await RawConnection.open(running.kafka_address)
        with held_import(monkeypatch) as held:
            first.send_request(list_offsets(_SLOW))
            assert await asyncio.to_thread(held.is_asked.wait, 30)
            await call_known(running)
            held.may_import.set()
            assert (await first.receive_response("list_offsets", _SLOW)).topics == ()
        assert held.thread != threading.get_ident()
        await first.close()


async def call_known(running: Running) -> None:
    connection = await RawConnection.open(running.kafka_address)
    await connection.call("list_offsets", _KNOWN, replica_id=-1, topics=())
    await connection.close()


async def test_requests_of_a_connection_keep_their_order_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later request is not even begun: a pipelined change must not overtake another."""
    async with in_process(tmp_path) as running:
        await call_known(running)
        connection = await RawConnection.open(running.kafka_address)
        begun = running.broker.metrics.requests["list_offsets"]
        with held_import(monkeypatch) as held:
            connection.send_request(list_offsets(_SLOW))
            assert await asyncio.to_thread(held.is_asked.wait, 30)
            connection.send_request(list_offsets(_KNOWN))
            await call_known(running)  # has been read after what was sent before it
            assert running.broker.metrics.requests["list_offsets"] == begun + 1
            held.may_import.set()
            await connection.receive_response("list_offsets", _SLOW)
            await connection.receive_response("list_offsets", _KNOWN)
        assert running.broker.metrics.requests["list_offsets"] == begun + 3
        await connection.call("list_offsets", _KNOWN, replica_id=-1, topics=())
        await connection.close()


async def test_pipelined_first_messages_are_answered_in_order(tmp_path: Path) -> None:
    """The native port imports all its messages with the first."""
    async with in_process(tmp_path) as running:
        connection = await NativeConnection.open(running.native_address)
        for number in range(3):
            connection.send(type="hello", version=1, correlation_id=number)
        answers = [await connection.receive() for _ in range(3)]
        assert [answer["correlation_id"] for answer in answers] == [0, 1, 2]
        assert not any(answer["error"]["code"] for answer in answers)
        await connection.close()


def test_no_broker_imports_hypothesis() -> None:
    """kio would, wherever it is installed, with the first request: 130 ms and 14 MB."""
    script = (
        "import sys; from echoless.broker.handlers.list_offsets import API;"
        "API.prepare_decoding(3);"
        "sys.exit('kio' not in sys.modules or 'hypothesis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
