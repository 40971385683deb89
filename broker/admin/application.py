"""The HTTP application of the admin port. Imports aiohttp: loaded by the first connection.

Reads the broker's state between two awaits, on the broker's own event loop, so every answer is one
consistent moment. Lists are bounded by `limit` or `n`. `docs/admin.md` shows each answer.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from broker.admin.decisions import LIST_MAX, DecisionPages
from broker.admin.documents import producer_document, ready_document, topics_document
from broker.admin.exposition import CONTENT_TYPE, Exposition
from broker.admin.faults import FaultPages
from broker.admin.query import read_count, read_optional
from broker.admin.view import BrokerView, PartitionView

_LIMIT_DEFAULT: Final = 1000
_SHUTDOWN_TIMEOUT_S: Final = 1.0

_logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _ClientErrors(logging.Filter):
    """Bytes that are no HTTP are the client's doing: a warning of one line, without a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.exc_info = None
            record.msg, record.args = f"{record.getMessage()}: {error.message}", ()
        return True


_logger.addFilter(_ClientErrors())


async def serve(listener: socket.socket, broker: BrokerView) -> web.AppRunner:
    """Answers on `listener` until the returned runner is cleaned up."""
    runner = web.AppRunner(
        application(broker),
        access_log=None,
        logger=_logger,
        shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        handler_cancellation=True,  # whoever follows decisions and goes is noticed at once
    )
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


def application(broker: BrokerView) -> web.Application:
    """The routes, bound to one broker."""
    pages = _Pages(broker)
    decisions = DecisionPages(broker)
    app = web.Application(middlewares=[_errors_as_json])
    app.on_shutdown.append(decisions.close)
    app.add_routes(
        [
            web.get("/", pages.index),
            web.get("/health", pages.health),
            web.get("/ready", pages.ready),
            web.get("/metrics", pages.metrics),
            web.get("/topics", pages.topics),
            web.get("/producers/{topic}/{partition}", pages.producers),
            web.get("/decisions", decisions.decisions),
            *FaultPages(broker).routes(),
        ]
    )
    return app


class _Pages:
    """One method per path."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._exposition = Exposition(broker)

    async def index(self, request: web.Request) -> web.Response:
        resources = request.app.router.resources()
        return web.json_response({"paths": sorted(r.canonical for r in resources)})

    async def health(self, _: web.Request) -> web.Response:
        """Whether a restart would help: the disk has failed."""
        failure = self._broker.logs.failure
        if failure is not None:
            return _unavailable("storage failed", str(failure))
        return web.json_response({"status": "ok"})

    async def ready(self, _: web.Request) -> web.Response:
        """Whether clients should be sent here."""
        failure = self._broker.logs.failure
        if failure is not None:
            return _unavailable("storage failed", str(failure))
        return web.json_response(ready_document(self._broker))

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    async def topics(self, _: web.Request) -> web.Response:
        return web.json_response({"topics": topics_document(self._broker)})

    async def producers(self, request: web.Request) -> web.Response:
        topic, partition_text = request.match_info["topic"], request.match_info["partition"]
        partition = self._partition(topic, partition_text)
        limit = read_count(request.query, "limit", _LIMIT_DEFAULT, least=1, most=LIST_MAX)
        wanted = read_optional(request.query, "producer_id")
        producers = partition.log.producers
        if wanted is None:
            listed = list(islice(producers.items(), limit))
        else:
            entry = producers.get(wanted)
            listed = [] if entry is None else [(wanted, entry)]
        return web.json_response(
            {
                "topic": topic,
                "partition": int(partition_text),
                "count": len(producers),
                "producers": [producer_document(*item) for item in listed],
            }
        )

    def _partition(self, topic: str, index: str) -> PartitionView:
        partition = None
        if index.isdecimal():
            partition = self._broker.partitions.get((topic, int(index)))
        if partition is None:
            raise web.HTTPNotFound(text=f"there is no partition {topic}-{index} on this broker")
        return partition


def _unavailable(status: str, reason: str) -> web.Response:
    return web.json_response({"status": status, "error": reason}, status=503)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is a JSON object, whoever raised it."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        fields: dict[str, Any] = {"error": error.text or error.reason}
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return web.json_response(fields, status=error.status, headers=headers)
