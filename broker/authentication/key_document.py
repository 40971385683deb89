"""Reads the document with an issuer's keys, from a file or over HTTP, in a thread of its own.

The thread does not keep the process alive, and the wait for it is bounded. At most one is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from echoless.broker.threads import OutOfThreadsError, start_thread

READ_S: Final = 10.0
"""The time that reading may take."""
_SOCKET_S: Final = 5.0
DOCUMENT_BYTES_MAX: Final = 1 << 20


class KeyDocumentError(Exception):
    """The document cannot be read; the message says why."""


class KeyDocument:
    """One document, wherever it is."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_file = url.startswith("file:")
        self._under_way: asyncio.Future[bytes | KeyDocumentError] | None = None
        self._abandon: Callable[[], None] = _nothing

    async def read(self) -> bytes:
        """Raises `KeyDocumentError`."""
        reading = self._under_way
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = self._under_way = loop.create_future()
            try:
                start_thread("token keys", self._read_in_thread, loop, reading)
            except OutOfThreadsError as error:
                self._under_way = None
                raise KeyDocumentError(str(error)) from error
        try:
            async with asyncio.timeout(READ_S):
                found = await asyncio.shield(reading)
        except TimeoutError:
            self._abandon()
            raise KeyDocumentError(f"no whole answer within {READ_S:.0f} s") from None
        if isinstance(found, KeyDocumentError):
            raise found
        return found

    def _read_in_thread(
        self, loop: asyncio.AbstractEventLoop, reading: asyncio.Future[bytes | KeyDocumentError]
    ) -> None:
        found: bytes | KeyDocumentError
        try:
            found = self.read_now()
        except KeyDocumentError as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(self._finish, reading, found)

    def _finish(
        self,
        reading: asyncio.Future[bytes | KeyDocumentError],
        found: bytes | KeyDocumentError,
    ) -> None:
        self._under_way, self._abandon = None, _nothing
        if not reading.done():
            reading.set_result(found)

    def read_now(self) -> bytes:
        """Waits for the disk or the server. Raises `KeyDocumentError`."""
        try:
            return self._read_file() if self.is_file else self._get()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise KeyDocumentError(str(error) or type(error).__name__) from error

    def _read_file(self) -> bytes:
        with open(url2pathname(urlsplit(self.url).path), "rb") as file:  # noqa: PTH123
            return _bounded(file.read(DOCUMENT_BYTES_MAX + 1))

    def _get(self) -> bytes:
        parts = urlsplit(self.url)
        connection = _connection(parts.scheme, parts.hostname or "", parts.port)

        def abandon() -> None:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

        self._abandon = abandon
        with contextlib.closing(connection):
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise KeyDocumentError(f"the server answered {answer.status}")
            return _bounded(answer.read(DOCUMENT_BYTES_MAX + 1))


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_SOCKET_S)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, port, timeout=_SOCKET_S, context=context)


def _bounded(data: bytes) -> bytes:
    if len(data) > DOCUMENT_BYTES_MAX:
        raise KeyDocumentError(f"it is larger than {DOCUMENT_BYTES_MAX} bytes")
    return data


def _nothing() -> None:
    pass
