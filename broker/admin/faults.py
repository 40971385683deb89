"""`/faults`: the rules as one document, adding to them, and removing them.

What a rule may say is `broker/faults/`'s business; `docs/faults.md` shows it.
"""

from __future__ import annotations

import json

from aiohttp import web

from broker.admin.view import BrokerView
from broker.faults.fields import RuleError
from broker.faults.rule import read_rules
from broker.faults.rules import NameTakenError


class FaultPages:
    """The paths, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def routes(self) -> list[web.RouteDef]:
        """Where each of the methods below answers."""
        return [
            web.get("/faults", self.show),
            web.post("/faults", self.add),
            web.delete("/faults", self.clear),
            web.delete("/faults/{name}", self.remove),
        ]

    async def show(self, _: web.Request) -> web.Response:
        """All rules with their counts."""
        return web.json_response({"rules": self._broker.faults.documents()})

    async def add(self, request: web.Request) -> web.Response:
        """One rule or several: all of them, or none and the reason."""
        try:
            texts = read_rules(json.loads(await request.read()))
            added = self._broker.faults.add(texts)
        except (ValueError, RecursionError) as error:  # also what is not UTF-8, or nested too deep
            raise web.HTTPBadRequest(text=f"the body is not JSON: {error}") from error
        except NameTakenError as error:
            raise web.HTTPConflict(text=str(error)) from error
        except RuleError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return web.json_response({"rules": added}, status=201)

    async def clear(self, _: web.Request) -> web.Response:
        """Removes all rules, and shows them as they were at their end."""
        return web.json_response({"rules": self._broker.faults.clear()})

    async def remove(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            removed = self._broker.faults.remove(name)
        except KeyError as error:
            raise web.HTTPNotFound(text=f"there is no rule {name!r}") from error
        return web.json_response({"rules": [removed]})
