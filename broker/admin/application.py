"""The HTTP application of the admin port. Imports aiohttp: loaded by the first connection.

Reads the broker's state between two awaits, on the broker's own event loop, so every answer is
consistent. Lists are bounded by `limit` or `n`. `docs/admin.md` shows each answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from echoless.broker.admin.answer import encoded
from echoless.broker.admin.body import BODY_BYTES_MAX, BODY_TIMEOUT_S
from echoless.broker.admin.bounded_accept import BoundedAccept, bounded_tls
from echoless.broker.admin.callers import Caller, authenticate, caller_of
from echoless.broker.admin.console_files import PATH, ConsoleFiles, is_console, wants_page
from echoless.broker.admin.decisions import DecisionPages
from echoless.broker.admin.documents import health_document, ready_document
from echoless.broker.admin.exposition import CONTENT_TYPE, Exposition
from echoless.broker.admin.faults import FaultPages
from echoless.broker.admin.guard import add_safe_headers, guard
from echoless.broker.admin.listeners import ListenerPages
from echoless.broker.admin.peer_reading import read_elsewhere
from echoless.broker.admin.protocol import HttpProtocol
from echoless.broker.admin.readiness import unready
from echoless.broker.admin.readings import Readable, Readings, rows_of
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.trace import TracePages
from echoless.broker.admin.transactions import TransactionPages
from echoless.broker.admin.view import BrokerView
from echoless.broker.descriptors import descriptor_shares
from echoless.protocol.acl import AclOperation

if TYPE_CHECKING:
    from echoless.broker.network.tls_acceptor import TlsAcceptor, TlsSettings

_SHUTDOWN_TIMEOUT_S: Final = 1.0
HEAD_TIMEOUT_S: Final = 20.0
"""The time for the next request to arrive, to the end of its headers; slower clients are closed."""

_logger = logging.getLogger(__name__)


async def serve(
    listener: socket.socket, broker: BrokerView, tls: TlsSettings | None = None
) -> HttpServer:
    """Answers on `listener` until the returned server is stopped."""
    runner = web.AppRunner(
        application(broker),
        shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        handler_cancellation=True,  # notices at once when a client following decisions disconnects
    )
    try:
        await runner.setup()
        return HttpServer(runner, await _listen(listener, runner, tls))
    except BaseException:
        await runner.cleanup()
        raise


class HttpServer:
    """The running server on the port, until it is stopped."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server | TlsAcceptor) -> None:
        self._runner = runner
        self._server = server

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        self._server.close()
        await self._runner.cleanup()


async def _listen(
    listener: socket.socket, runner: web.AppRunner, tls: TlsSettings | None
) -> asyncio.Server | TlsAcceptor:
    assert runner.server is not None
    loop, server = asyncio.get_running_loop(), runner.server
    settings: dict[str, Any] = {
        "access_log": None,
        "logger": _logger,
        "keepalive_timeout": HEAD_TIMEOUT_S,
        "lingering_time": BODY_TIMEOUT_S,
        "auto_decompress": False,  # nothing that can be compressed is accepted
    }
    connections_max = descriptor_shares().admin_connections
    accept = BoundedAccept(
        server, partial(HttpProtocol, server, loop=loop, **settings), connections_max
    )
    if tls is not None:
        return bounded_tls(listener, tls, accept, connections_max)
    return await loop.create_server(accept, sock=listener)


def application(broker: BrokerView) -> web.Application:
    """The routes, bound to one broker."""
    pages = _Pages(broker)
    decisions, faults = DecisionPages(broker), FaultPages(broker)
    app = web.Application(
        middlewares=[
            _refusals_as_json,
            guard(broker.config),
            authenticate(broker),
            _wait_for_start(broker),
        ],
        client_max_size=BODY_BYTES_MAX,
    )
    app.on_shutdown.append(decisions.close)
    app.on_shutdown.append(faults.close)
    app.on_response_prepare.append(add_safe_headers)
    app.add_routes(
        [
            web.get("/", pages.index),
            web.get("/health", pages.health),
            web.get("/ready", pages.ready),
            web.get("/metrics", pages.metrics),
            *(
                web.get(one.path, _answering(broker, name, one))
                for name, one in Readings(broker).all.items()
            ),
            web.get("/decisions", decisions.decisions),
            web.post("/decisions/fences/{name}", decisions.fence),
            *TracePages(broker).routes(),
            *faults.routes(),
            *TransactionPages(broker).routes(),
            *ListenerPages(broker).routes(),
            *ConsoleFiles().routes(),
        ]
    )
    return app


def _wait_for_start(broker: BrokerView) -> Middleware:
    """Makes every page report the progress of the start until requests are answered."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if broker.starting is not None and not is_console(request.path):
            return _unavailable("starting", broker.starting)
        return await handler(request)

    return answer


class _Pages:
    """One method per path."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._exposition = Exposition(broker)

    async def index(self, request: web.Request) -> web.Response:
        """The paths; a browser is sent to the console instead."""
        if wants_page(request):
            return web.Response(status=HTTPStatus.FOUND, headers={hdrs.LOCATION: PATH})
        resources = request.app.router.resources()
        return web.json_response({"paths": sorted(r.canonical for r in resources)})

    async def health(self, request: web.Request) -> web.Response:
        """Whether a restart would help (the disk has failed), and what was found on the disk."""
        caller = caller_of(request)
        if not caller.is_stranger:
            elsewhere = await read_elsewhere(self._broker, request, "health")
            if elsewhere is not None:
                return web.json_response(elsewhere)
        failure = self._broker.logs.failure
        if failure is not None:
            return _unavailable("storage failed", str(failure), caller)
        if caller.is_stranger:
            return web.json_response({"status": "ok"})
        return web.json_response(health_document(self._broker, caller.may_describe))

    async def ready(self, request: web.Request) -> web.Response:
        """Whether clients should be sent here: whether this broker could acknowledge a record now."""
        caller = caller_of(request)
        found = unready(self._broker)
        if found is not None:
            return _unavailable(found.status, found.reason, caller)
        if caller.is_stranger:
            return web.json_response({"status": "ready"})
        return web.json_response(ready_document(self._broker))

    async def metrics(self, request: web.Request) -> web.Response:
        caller_of(request).require_cluster(AclOperation.DESCRIBE)
        elsewhere = await read_elsewhere(self._broker, request, "metrics")
        if elsewhere is not None:
            return web.json_response(elsewhere)
        text = await self._exposition.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def _answering(broker: BrokerView, name: str, readable: Readable) -> Handler:
    """The handler of a path that is read, of this broker or of the one that the query names."""

    async def answer(request: web.Request) -> web.Response:
        document = await read_elsewhere(broker, request, name)
        if document is None:
            names = request.match_info
            document = await readable.read(caller_of(request), request.query, names)
        return await encoded(document, rows_of(document))

    return answer


def _unavailable(status: str, reason: str, caller: Caller | None = None) -> web.Response:
    """Status 503; without the reason for a stranger, since it may name files and hosts."""
    document = {"status": status}
    if caller is None or not caller.is_stranger:
        document["error"] = reason
    return web.json_response(document, status=503)


@web.middleware
async def _refusals_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusalError as error:
        return web.json_response({"error": error.text}, status=error.status, headers=error.headers)
