"""`/faults` over HTTP, on a broker in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

RULE = {"name": "lose", "match": {"api": "produce"}, "action": "drop_response"}
JSON = {"headers": {"Content-Type": "application/json"}}
NO_RULES = {"rules": [], "allowed": True}
SHOWN = {
    **RULE,
    "action": {"type": "drop_response", "later": "wait"},
    "schedule": {},
    "hits": 0,
    "seen": 0,
    "exhausted": False,
}


class FaultsClient:
    """Asks for `/faults` and below it; gives the status and the document."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def __call__(self, method: str, path: str = "", **body: Any) -> tuple[int, Any]:
        async with self._session.request(method, self._url + path, **body) as response:
            return response.status, await response.json()


@pytest.fixture
async def faults(admin_address: str) -> AsyncIterator[FaultsClient]:
    """A client of the running broker's admin port."""
    async with aiohttp.ClientSession() as session:
        yield FaultsClient(session, f"http://{admin_address}/faults")


async def test_rules_are_added_shown_and_removed(faults: FaultsClient) -> None:
    """Each answer has the rules in full, with their counts."""
    assert await faults("GET") == (200, NO_RULES)
    assert await faults("POST", json=RULE) == (201, {"rules": [SHOWN]})
    assert await faults("GET") == (200, {"rules": [SHOWN], "allowed": True})
    assert await faults("DELETE", "/lose") == (200, {"rules": [SHOWN]})
    assert await faults("GET") == (200, NO_RULES)


async def test_rules_get_names(faults: FaultsClient) -> None:
    """fault-1, fault-2 ...; none that is taken."""
    await faults("POST", json={"name": "fault-1", "action": "twice"})
    status, added = await faults("POST", json=[{"action": "twice"}, {"action": "twice"}])
    assert (status, [rule["name"] for rule in added["rules"]]) == (201, ["fault-2", "fault-3"])
    status, removed = await faults("DELETE")
    assert (status, len(removed["rules"])) == (200, 3)


async def test_a_drawn_seed_is_shown(faults: FaultsClient) -> None:
    """A run by chance can be repeated."""
    rule = {"action": "twice", "schedule": {"probability": 0.5}}
    _, added = await faults("POST", json=rule)
    assert added["rules"][0]["schedule"]["seed"] >= 0


async def test_several_rules_are_added_all_or_none(faults: FaultsClient) -> None:
    """One that is refused keeps the others out."""
    status, refused = await faults("POST", json={"rules": [RULE, {"action": "lose"}]})
    assert status == 400
    assert refused["error"].startswith("action.type takes one of")
    assert await faults("GET") == (200, NO_RULES)


@pytest.mark.parametrize(
    ("request_line", "body", "status", "reason"),
    [
        ("POST ", {"data": b"{", **JSON}, 400, "the body is not JSON"),
        ("POST ", {"data": b"\xff", **JSON}, 400, "the body is not JSON"),
        ("POST ", {"data": b"[" * 100_000, **JSON}, 400, "the body is not JSON"),
        ("POST ", {"json": []}, 400, "at least one rule"),
        ("POST ", {"json": [RULE, RULE]}, 409, "name 'lose' is taken"),
        ("DELETE /lose", {}, 404, "there is no rule 'lose'"),
        ("PUT ", {}, 405, "Method Not Allowed"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    faults: FaultsClient, request_line: str, body: Any, status: int, reason: str
) -> None:
    """Bad rules 400, used names 409, unknown ones 404."""
    answered, document = await faults(*request_line.split(" "), **body)
    assert answered == status
    assert reason in document["error"]
