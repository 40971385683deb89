"""`/faults`: shows the rules as one document, and adds and removes rules if that is allowed.

`broker/faults/` defines what a rule may say; `docs/faults.md` documents it.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from importlib import import_module
from json import dumps
from typing import Final

from aiohttp import web

from echoless.broker.admin.body import read_json
from echoless.broker.admin.callers import caller_of, note_change
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.faults.faults import import_rules
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.permission import refusal
from echoless.broker.faults.rule import read_rules
from echoless.broker.faults.rules import NameTakenError
from echoless.broker.network.turns import in_thread
from echoless.protocol.acl import AclOperation

encode: Final = partial(dumps, separators=(",", ":"))


class FaultPages:
    """The paths, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def routes(self) -> list[web.RouteDef]:
        """The routes of the methods below."""
        return [
            web.get("/faults/actions", self.actions),
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

    async def clear(self, request: web.Request) -> web.Response:
        """Removes all rules and shows their final state."""
        self._check_allowed()
        cleared = self._broker.faults.clear()
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
