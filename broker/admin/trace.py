"""`/trace.svg`, `/trace.mmd` and `/trace.jsonl`: what the broker remembers, as a sequence diagram.

Drawn by the same code as `echoless trace`, which is imported when a diagram is first asked for, in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from echoless.broker.admin.callers import caller_of
from echoless.broker.admin.documents import event_document
from echoless.broker.admin.peer_reading import read_elsewhere
from echoless.broker.admin.query import read_choice, read_count, read_optional, read_selection
from echoless.broker.admin.view import BrokerView
from echoless.broker.network.turns import ADMIN_PORT, for_client, work_in_turns

if TYPE_CHECKING:
    from types import ModuleType

LAST_DEFAULT: Final = 60
LAST_MAX: Final = 3000
"""The number of events that the broker remembers."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""A picture in a tab of its own has its colours in it; nothing else may be loaded or run."""
_THEMES: Final = ("auto", "light", "dark")

Draw = Callable[["ModuleType", list[dict[str, Any]]], str]


class TracePages:
    """The paths, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def routes(self) -> list[web.RouteDef]:
        """The routes of the methods below."""
        return [
            web.get("/trace.svg", self.svg),
            web.get("/trace.mmd", self.mermaid),
            web.get("/trace.jsonl", self.lines),
        ]

    async def svg(self, request: web.Request) -> web.Response:
        """The picture; `theme` chooses the colours, otherwise the viewer does."""
        theme = read_choice(request.query, "theme", _THEMES)
        title = f"Broker {request.query.get('broker', self._broker.config.broker_id)}"

        def draw(diagram: ModuleType, events: list[dict[str, Any]]) -> str:
            text: str = diagram.render_svg(events, title, theme=None if theme == "auto" else theme)
            return text

        answer = await self._drawn(request, "image/svg+xml", draw)
        answer.headers["Content-Security-Policy"] = _POLICY
        return answer

    async def mermaid(self, request: web.Request) -> web.Response:
        """The same as Mermaid text."""
        return await self._drawn(
            request, "text/plain", lambda diagram, events: diagram.render_mermaid(events)
        )

    async def lines(self, request: web.Request) -> web.Response:
        """The events themselves, one a line, for `echoless trace FILE`."""
        work = partial(_lines, await self._events(request))
        return web.Response(
            text=await for_client(ADMIN_PORT, work), content_type="application/x-ndjson"
        )

    async def _drawn(self, request: web.Request, content_type: str, draw: Draw) -> web.Response:
        work = partial(_draw, draw, await self._events(request))
        return web.Response(text=await for_client(ADMIN_PORT, work), content_type=content_type)

    async def _events(self, request: web.Request) -> list[dict[str, Any]]:
        """The events that are asked for, the oldest first: `last` of them, not before `since_ms`."""
        elsewhere = await read_elsewhere(self._broker, request, "events")
        last = read_count(request.query, "last", LAST_DEFAULT, least=1, most=LAST_MAX)
        since_ms = read_optional(request.query, "since_ms") or 0
        if elsewhere is not None:
            broker_id = int(request.query["broker"])
            events = elsewhere["events"][-last:]
        else:
            broker_id = self._broker.config.broker_id
            selection = read_selection(request.query, caller_of(request).may_see)
            latest = self._broker.decisions.latest_events(last, selection)
            events = []
            await work_in_turns(map(events.append, map(event_document, latest)))
        return [
            {"broker_id": broker_id, **event} for event in events if event["time_ms"] >= since_ms
        ]


def _draw(draw: Draw, events: list[dict[str, Any]]) -> str:
    return draw(import_module("echoless.diagram"), events)


def _lines(events: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)
