"""Random rules and scripts, played by several clients: what strikes is exactly what a plain model foretells."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.faults.action import InjectionPoint
from echoless.broker.faults.match import Part, RequestFacts
from echoless.broker.faults.port import FaultyPort
from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.faults.request_actions import RequestActions
from echoless.broker.faults.requests import ReadRequest, finished
from echoless.broker.faults.rules import Rules
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode
from tests.broker.faults.lab import TOPIC, Lab, batch, produce
from tests.broker.faults.model import Model

_ERRORS = ("NOT_LEADER_OR_FOLLOWER", "OUT_OF_ORDER_SEQUENCE_NUMBER")
_CLIENTS = ("shop", "billing", "audit")
_ANSWER = (b"answer",)


class _Port:
    """A server, its requests and its hits: a request is what it says about itself."""

    route = None
    connections = ()

    def __init__(self) -> None:
        self.struck: list[str] = []

    def dispatch(self, _frame: Any, _peer: Any) -> Any:
        return _ANSWER

    def api_of(self, frame: Any) -> str | None:
        return frame["api"] if frame["is_read_at_a_glance"] else None

    def takes_long(self, _frame: Any) -> bool:
        return False

    def read(self, frame: Any, peer: Peer) -> ReadRequest:
        parts = () if frame["topic"] is None else (Part(frame["topic"], 0),)
        facts = RequestFacts(frame["api"], 9, frame["client_id"], 1, parts)
        return ReadRequest(facts, frame, peer, frame["errors"])

    def codes_in(self, request: ReadRequest, _answer: Any) -> frozenset[ErrorCode]:
        return frozenset(ErrorCode[one] for one in request.inside)

    def divides(self, _request: ReadRequest) -> bool:
        return False

    def on_request(self, rule: Any, _request: Any, _parts: Any) -> None:
        self.struck.append(rule.name)


@st.composite
def _schedules(draw: Any) -> dict[str, Any]:
    kind = draw(st.sampled_from(["always", "nth", "times", "every", "chance"]))
    counted = {
        name: draw(numbers)
        for name, numbers in {"skip": st.integers(0, 3), "times": st.integers(1, 3)}.items()
        if draw(st.booleans())
    }
    match kind:
        case "always":
            return counted
        case "nth":
            few = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)
            return {"nth": draw(st.integers(1, 6) | few)}
        case "every":
            return {**counted, "every": draw(st.integers(1, 4))}
        case "chance":
            return {
                **counted,
                "probability": draw(st.sampled_from([0.3, 0.7])),
                "seed": draw(_SEEDS),
            }
    return {**counted, "times": 2}


_SEEDS = st.integers(0, 1000)
_MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "api": st.sampled_from(["produce", "fetch"]),
        "topic": st.sampled_from(["a", "b"]),
        "client_id": st.sampled_from(_CLIENTS),
    },
)
_ON_ANSWERS = st.fixed_dictionaries({"error": st.sampled_from([*_ERRORS, "any"])})
_BEFORE = st.just({"type": "drop_request", "later": "send"})
_BEHIND = st.just({"type": "drop_response", "later": "send"})


@st.composite
def _whats(draw: Any) -> dict[str, Any]:
    """A match, a schedule and an action: of a rule, or of a step."""
    match, action = draw(_MATCHES), draw(_BEFORE | _BEHIND)
    if action["type"] == "drop_response" and draw(st.booleans()):
        match |= draw(_ON_ANSWERS)
    return {"match": match, "schedule": draw(_schedules()), "action": action}


_SCRIPTS = st.fixed_dictionaries(
    {"match": _MATCHES, "script": st.lists(_whats() | _BEFORE, min_size=1, max_size=4)}
)
_REQUESTS = st.fixed_dictionaries(
    {
        "api": st.sampled_from(["produce", "fetch", "metadata"]),
        "topic": st.sampled_from(["a", "b", None]),
        "client_id": st.sampled_from(_CLIENTS),
        "errors": st.lists(st.sampled_from(_ERRORS), max_size=2, unique=True),
        "is_read_at_a_glance": st.booleans(),
    }
)


def _named(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**rule, "name": f"rule-{number}"} for number, rule in enumerate(rules)]


@given(
    st.lists(_whats() | _SCRIPTS, min_size=1, max_size=5).map(_named),
    st.lists(_REQUESTS, max_size=40),
)
def test_strikes_are_exactly_those_that_the_model_foretells(
    posted: list[dict[str, Any]], requests: list[dict[str, Any]]
) -> None:
    """The rule that strikes and the counts of all are foretold, too; a second run does the same."""
    model = Model(posted)
    foretold = [model.struck_by(request) for request in requests]
    struck, counts = asyncio.run(_played(posted, requests))
    assert struck == foretold
    assert counts == model.counts()
    assert asyncio.run(_played(posted, requests)) == (struck, counts)


async def _played(
    posted: list[dict[str, Any]], requests: list[dict[str, Any]]
) -> tuple[list[str | None], dict[str, tuple[int, int]]]:
    """The rule that strikes each request, and the counts in the end."""
    fake: Any = _Port()
    rules = Rules(Random(1), lambda: None, lambda: 0)
    rules.add(read_rules(posted))
    actions = RequestActions(fake.dispatch, fake, _no_crash, fake)
    port = FaultyPort(fake, fake, fake, actions, fake)
    port.use(rules.of(InjectionPoint.REQUEST))
    peers = {name: Peer(number, f"127.0.0.1:{number}") for number, name in enumerate(_CLIENTS, 1)}
    struck: list[str | None] = []
    for frame in requests:
        peer = peers[frame["client_id"]]
        before = len(fake.struck)
        if port.concerns(frame):
            await finished(port.plan(port.read(frame, peer), frame, peer).process())
        struck.append(fake.struck[before] if len(fake.struck) > before else None)
    parts = rules.of(InjectionPoint.REQUEST)
    return struck, {rule.name: (rule.turns.seen, rule.turns.hits) for rule in parts}


def _no_crash(_rule: Any) -> None:
    raise AssertionError("no rule crashes")


@pytest.mark.parametrize("seed", range(3))
async def test_several_clients_of_a_real_broker(lab: Lab, seed: int) -> None:
    """Three connections send in a random order; each answer is what the model foretells."""
    random = Random(seed)
    connections = [await lab.connect() for _ in range(3)]
    refused = {"type": "error", "code": "NOT_LEADER_OR_FOLLOWER"}
    posted = [
        {
            "name": "script",
            "match": {"api": "produce"},
            "script": [
                {"action": refused, "match": {"partition": 1}, "schedule": {"nth": [2, 3]}},
                {"action": refused, "schedule": {"skip": 2, "every": 2, "times": 2}},
                refused,
            ],
        },
        {
            "name": "chance",
            "match": {"api": "produce", "partition": 0},
            "schedule": {"probability": 0.4, "seed": seed},
            "action": refused,
        },
        {
            "name": "every-third",
            "match": {"api": "produce", "topic": TOPIC},
            "schedule": {"every": 3},
            "action": refused,
        },
    ]
    lab.broker.faults.add(read_rules(posted))
    model, codes, foretold = Model(posted), [], []
    for number in range(40):
        partition = random.randrange(2)
        request = {"api": "produce", "topic": TOPIC, "partition": partition}
        foretold.append(6 if model.struck_by(request) else 0)
        row = batch(0, partition, producer_id=1000 + number)
        codes += await produce(random.choice(connections), row)
    assert codes == foretold
    assert {6, 0} == set(codes)
    struck = [hit.rule for hit in lab.hits()]
    counted = {name: hits for name, (_, hits) in model.counts().items() if hits}
    assert {name: struck.count(name) for name in counted} == counted
    for one in connections:
        await one.close()
