"""`/faults`: shows the rules as one document, and adds and removes rules if that is allowed.

`broker/faults/` defines what a rule may say; `docs/faults.md` documents it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from importlib import import_module
from json import dumps
from typing import Any, Final

from aiohttp import web

from echoless.broker.admin.body import read_json
from echoless.broker.admin.callers import caller_of, note_change
from echoless.broker.admin.query import read_count, read_fact
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.faults.faults import import_rules
from echoless.broker.faults.fields import RuleError, RuleFields
from echoless.broker.faults.permission import refusal
from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.faults.rules import AnyRule, NameTakenError
from echoless.broker.network.turns import in_thread
from echoless.protocol.acl import AclOperation

WITHIN_MS_MAX: Final = 600_000
_WITHIN_MS: Final = 30_000
_COUNT_MAX: Final = 2**31 - 1

encode: Final = partial(dumps, separators=(",", ":"))


class FaultPages:
    """The paths, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._closing = asyncio.Event()

    async def close(self, _: web.Application) -> None:
        """Ends all waits, so that stopping the port need not wait for them."""
        self._closing.set()

    def routes(self) -> list[web.RouteDef]:
        """The routes of the methods below."""
        return [
            web.get("/faults/actions", self.actions),
            web.get("/faults/{name}", self.one),
            web.post("/faults/{name}/release", self.release),
            web.post("/faults", self.add),
            web.delete("/faults", self.clear),
            web.delete("/faults/{name}", self.remove),
        ]

    async def actions(self, request: web.Request) -> web.Response:
        """Lists what rules can do, and the fields of each action."""
        caller_of(request).require_cluster(AclOperation.DESCRIBE)
        catalogue = await in_thread(partial(import_module, "echoless.broker.faults.catalogue"))
        return web.json_response(catalogue.document())

    async def add(self, request: web.Request) -> web.Response:
        """Adds one rule or several: all of them, or none, with the reason."""
        self._check_allowed()
        given = await read_json(request)
        await in_thread(import_rules)
        try:
            added = self._broker.faults.add(read_rules(given))
        except NameTakenError as error:
            raise RefusalError(HTTPStatus.CONFLICT, str(error)) from error
        except RuleError as error:
            raise RefusalError(HTTPStatus.BAD_REQUEST, str(error)) from error
        note_change(request, encode(added))
        return web.json_response({"rules": added}, status=201)

    async def one(self, request: web.Request) -> web.Response:
        """Shows one rule, once it has acted `hits` times and holds `held` requests. 408 if it does not in time."""
        caller_of(request).require_cluster(AclOperation.DESCRIBE)
        query = request.query
        hits, held = [
            read_count(query, one, 0, least=0, most=_COUNT_MAX) for one in ("hits", "held")
        ]
        within_ms = read_count(query, "within_ms", _WITHIN_MS, least=0, most=WITHIN_MS_MAX)
        document = await self._when(request.match_info["name"], hits, held, within_ms / 1000)
        return web.json_response({"rules": [document]})

    async def _when(self, name: str, hits: int, held: int, within_s: float) -> dict[str, Any]:
        """The document of the rule, once its counts are as high."""
        rule = self._named(name)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + within_s
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while True:
                changed = asyncio.ensure_future(rule.changes.next())
                document = rule.document(loop.time())
                if document["hits"] >= hits and document.get("held", 0) >= held:
                    changed.cancel()
                    return document
                left_s = max(0.0, ends_at - loop.time())
                await asyncio.wait(
                    (changed, closing), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not changed.done() or closing.done():
                    changed.cancel()
                    raise RefusalError(
                        HTTPStatus.REQUEST_TIMEOUT,
                        f"within {within_s:g} s {name} has not come to {hits} hits and {held} held: "
                        f"{encode(document)}",
                    )
        finally:
            closing.cancel()

    async def release(self, request: web.Request) -> web.Response:
        """Releases requests that a rule holds: the `count` oldest, or all."""
        self._check_allowed()
        name = request.match_info["name"]
        count = await _read_release(request)
        rule = self._named(name)
        barriers = [part.barrier for part in rule.parts if part.barrier is not None]
        if not barriers:
            raise RefusalError(
                HTTPStatus.BAD_REQUEST, f"{name} holds nothing: hold_request and hold_response do"
            )
        released = 0
        for barrier in barriers:
            released += barrier.release(None if count is None else max(0, count - released))
        document = rule.document(asyncio.get_running_loop().time())
        note_change(request, encode(document))
        return web.json_response({"released": released, "rules": [document]})

    def _named(self, name: str) -> AnyRule:
        try:
            return self._broker.faults.named(name)
        except KeyError as error:
            raise RefusalError(HTTPStatus.NOT_FOUND, f"there is no rule {name!r}") from error

    async def clear(self, request: web.Request) -> web.Response:
        """Removes all rules and shows their final state; `forget=true` forgets those that never struck, too."""
        self._check_allowed()
        is_forgetful = read_fact(request.query, "forget")
        cleared = self._broker.faults.clear()
        if is_forgetful:
            self._broker.faults.forget_removed()
        note_change(request, encode(cleared))
        return web.json_response({"rules": cleared})

    async def remove(self, request: web.Request) -> web.Response:
        """Removes one rule and shows its final state."""
        self._check_allowed()
        name = request.match_info["name"]
        try:
            removed = self._broker.faults.remove(name)
        except KeyError as error:
            raise RefusalError(HTTPStatus.NOT_FOUND, f"there is no rule {name!r}") from error
        note_change(request, encode(removed))
        return web.json_response({"rules": [removed]})

    def _check_allowed(self) -> None:
        refused = refusal(self._broker.config)
        if refused is not None:
            raise RefusalError(HTTPStatus.FORBIDDEN, refused)


async def _read_release(request: web.Request) -> int | None:
    """The count in the body; None if there is no body, or it does not say."""
    if not request.can_read_body:
        return None
    try:
        fields = RuleFields("", await read_json(request))
        count = fields.integer("count", least=1, most=_COUNT_MAX)
        fields.close()
    except RuleError as error:
        raise RefusalError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return count
