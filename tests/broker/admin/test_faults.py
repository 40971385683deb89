"""`/faults` over HTTP, on a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

RULE = {"name": "lose", "match": {"api": "produce"}, "action": "drop_response"}
JSON = {"headers": {"Content-Type": "application/json"}}
NO_RULES = {"rules": [], "never_struck": [], "allowed": True}
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
    status, listed = await faults("GET")
    assert (status, listed["rules"], listed["allowed"]) == (200, [SHOWN], True)
    (missed,) = listed["never_struck"]
    assert missed == {**SHOWN, "added_ms": missed["added_ms"], "removed": False}
    assert await faults("DELETE", "/lose") == (200, {"rules": [SHOWN]})
    _, listed = await faults("GET")
    assert listed["rules"] == []
    assert listed["never_struck"] == [{**missed, "removed": True}]
    await faults("DELETE", "?forget=true")
    assert await faults("GET") == (200, NO_RULES)


async def test_optional_rules_need_not_strike(faults: FaultsClient) -> None:
    """They are in no list of rules that never struck, whether they are there or removed."""
    status, _ = await faults("POST", json={**RULE, "optional": True})
    assert status == 201
    _, listed = await faults("GET")
    assert (listed["rules"][0]["optional"], listed["never_struck"]) == (True, [])
    await faults("DELETE", "/lose")
    assert await faults("GET") == (200, NO_RULES)


async def test_a_script_has_not_struck_before_its_last_step_has(faults: FaultsClient) -> None:
    """Each step is shown with its counts."""
    script = {"name": "s", "match": {"api": "produce"}, "script": ["drop_response", "close_after"]}
    _, added = await faults("POST", json=script)
    (rule,) = added["rules"]
    assert [step["action"]["type"] for step in rule["script"]] == ["drop_response", "close_after"]
    assert (rule["hits"], rule["seen"], rule["exhausted"]) == (0, 0, False)
    _, listed = await faults("GET")
    assert [one["name"] for one in listed["never_struck"]] == ["s"]


async def test_a_rule_is_waited_for(faults: FaultsClient) -> None:
    """Until it has acted so often, or holds so much; 408 with the rule if that takes too long."""
    await faults("POST", json={"name": "h", "action": "hold_request", "match": {"api": "produce"}})
    status, shown = await faults("GET", "/h?hits=0&held=0")
    assert (status, shown["rules"][0]["held"]) == (200, 0)
    status, late = await faults("GET", "/h?held=1&within_ms=5")
    assert (status, "h has not come to 0 hits and 1 held" in late["error"]) == (408, True)
    status, refused = await faults("GET", "/h?held=x")
    assert (status, refused["error"].startswith("held:")) == (400, True)
    assert (await faults("GET", "/nobody"))[0] == 404
    waiting = asyncio.ensure_future(faults("GET", "/h?hits=1"))
    await asyncio.sleep(0)
    await faults("DELETE", "/h")
    waiting.cancel()


async def test_what_is_held_is_released(faults: FaultsClient) -> None:
    """All of it or some; a rule that holds nothing is refused."""
    await faults("POST", json=[{"name": "h", "action": "hold_request"}, RULE])
    status, released = await faults("POST", "/h/release")
    assert (status, released["released"], released["rules"][0]["name"]) == (200, 0, "h")
    assert (await faults("POST", "/h/release", json={"count": 1}))[0] == 200
    status, refused = await faults("POST", "/h/release", json={"count": 0})
    assert (status, "count takes" in refused["error"]) == (400, True)
    status, refused = await faults("POST", "/lose/release")
    assert (status, "lose holds nothing" in refused["error"]) == (400, True)
    assert (await faults("POST", "/nobody/release"))[0] == 404


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
