"""The admin port when it cannot start, and when many connect."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from echoless.broker.admin import application
from tests.broker.admin.admin_client import AdminClient


async def test_a_start_that_fails_is_logged_and_tried_again(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why; the client that connected waits, and is answered in the end."""
    serve, attempts = application.serve, []

    async def fail_once(*arguments: object) -> object:
        attempts.append(arguments)
        if len(attempts) == 1:
            raise OSError("no descriptor for it")
        return await serve(*arguments)

    monkeypatch.setattr("echoless.broker.admin.application.serve", fail_once)
    monkeypatch.setattr("echoless.broker.admin.server.RETRY_S", 0.01)
    assert (await admin.get("/health"))[0] == 200
    assert len(attempts) == 2
    assert "cannot start" in caplog.text
    assert "no descriptor for it" in caplog.text


async def test_idle_connections_make_room_for_new_ones(
    admin_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connect and ask for nothing, the next one is answered."""
    monkeypatch.setattr("echoless.broker.admin.application.descriptor_shares", Few)
    host, _, port = admin_address.rpartition(":")
    streams = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /health HTTP/1.1\r\nHost: {admin_address}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        assert b"200" in await reader.readline()
        with contextlib.suppress(ConnectionError):
            assert await streams[0][0].read() == b""
    for _, one in (*streams, (reader, writer)):
        one.close()


class Few:
    """Shares of a process with few descriptors."""

    admin_connections = 4
