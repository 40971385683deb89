"""One HTTP connection of the admin port: aiohttp's own, except that its errors are JSON too.

aiohttp itself answers bytes that are not HTTP, and requests whose handlers fail, before or after the
application runs. Here those answers look like all others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from echoless.broker.admin.guard import SAFE_HEADERS
from echoless.broker.limited_log import LimitedLog

ANSWER_TIMEOUT_S: Final = 30.0
"""The time for a client to read an answer, or its share of a stream, that does not fit into buffers."""

limited: Final = LimitedLog(logging.getLogger(__name__))
_REASON_MAX = 200
_CLIENT_ERRORS = (HttpProcessingError, web.RequestPayloadError, UnicodeEncodeError)
"""Errors caused by the client: one log line, no traceback. aiohttp repeats some headers in its own
messages, and cannot encode those that are not UTF-8."""


class HttpProtocol(web.RequestHandler):
    """An HTTP connection whose own errors are answered as JSON and logged in one line.

    A client that does not read is disconnected: what it was sent would stay in memory, and the connection
    count against the limit, for as long as it likes.
    """

    __slots__ = ("_connection", "_has_ended", "_unread", "principal")

    principal: str
    """The client's, by its certificate."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._connection = cast("asyncio.Transport", transport)
        self._has_ended = False
        self._unread: asyncio.TimerHandle | None = None
        super().connection_made(transport)

    def pause_writing(self) -> None:
        """Starts the time in which the client has to read what was written."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Notes that the client has read nearly all."""
        super().resume_writing()
        if not self._has_ended:
            self._cancel_unread()

    async def start(self) -> None:
        """Serves the connection's requests; at the end its client gets time to read the last answer."""
        try:
            await super().start()
        finally:
            self._has_ended = True
            if self._connection.get_write_buffer_size():
                self._expect_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """See `asyncio.Protocol`."""
        self._cancel_unread()
        super().connection_lost(exc)

    def _expect_reading(self) -> None:
        if self._unread is None:
            self._unread = self._loop.call_later(ANSWER_TIMEOUT_S, self._disconnect)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _disconnect(self) -> None:
        host, *_ = self._connection.get_extra_info("peername") or ("?",)
        message = "closing an admin connection from %s: it has not read its answer within %g s"
        limited.log(logging.WARNING, host, message, host, ANSWER_TIMEOUT_S)
        self._connection.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends the answer. aiohttp's own errors (404, 405, 417 ...) come here as text."""
        if isinstance(resp, web.HTTPException):
            allowed = {name: resp.headers[name] for name in (hdrs.ALLOW,) if name in resp.headers}
            reason = {"error": resp.text or resp.reason}
            resp = web.json_response(reason, status=resp.status, headers=allowed)
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs what aiohttp could not handle, such as the rest of a body that is not HTTP."""
        error = kw.get("exc_info")
        if isinstance(error, _CLIENT_ERRORS):
            host = str(self.peername[0] if isinstance(self.peername, tuple) else "?")
            limited.log(
                logging.WARNING, host, "a request from %s is not HTTP: %s", host, _short(error)
            )
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's own wording, which contains the bytes
    ) -> web.StreamResponse:
        """The answer to a request that the application did not answer. Closes the connection."""
        host = request.remote or "?"
        if isinstance(exc, _CLIENT_ERRORS):
            status, text = 400, f"this is not HTTP: {_short(exc)}"
            limited.log(logging.WARNING, host, "a request from %s: %s", host, text)
        else:
            text = "the broker failed; its log says why"
            limited.log(logging.ERROR, host, "a request from %s failed", host, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, an error cannot follow it")
        response = web.json_response({"error": text}, status=status, headers=SAFE_HEADERS)
        response.force_close()
        return response


def _short(error: BaseException) -> str:
    """The first line of its message; the others show the bytes."""
    if isinstance(error, UnicodeEncodeError):
        return "a header is not UTF-8"
    text = error.message if isinstance(error, HttpProcessingError) else str(error)
    return ascii((text.splitlines() or [""])[0][:_REASON_MAX])[1:-1]
