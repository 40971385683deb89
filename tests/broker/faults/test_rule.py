"""Reading rules: what they may say, and the sentence that refuses the others."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.faults import served
from echoless.broker.faults.action import TYPES, Action
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.groups_named import NAMING_GROUPS
from echoless.broker.faults.match import Match
from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.faults.rule import RuleText
from echoless.broker.faults.schedule import Schedule
from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.native.exchange import HANDLERS as NATIVE_HANDLERS
from echoless.protocol.errors import ErrorCode

EXAMPLES: dict[str, dict[str, Any]] = {
    "delay_request": {"ms": 5},
    "delay_response": {"ms": [5, 9]},
    "error": {"code": 45},
    "error_after": {"code": "REQUEST_TIMED_OUT"},
    "trickle": {"bytes": 1, "ms": 2},
    "cut_replica_link": {"broker_id": 2},
    "expire_member": {"group": "g", "member": "m"},
    "move_coordinator": {"group": "g"},
    "slow_write": {"ms": 5, "path": "*.log"},
    "slow_fsync": {"ms": 5},
    "crash": {"point": "before_response"},
}
_WORDS = [
    *Match.__slots__,
    *Schedule.__slots__,
    *Action.__slots__,
    "rules",
    "name",
    "action",
    "match",
]
MATCHES = {
    "error": {"api": "produce"},
    "error_after": {"api": "produce"},
    "blackhole": {"client_id": "c"},
}


def refusal(**rule: Any) -> str:
    with pytest.raises(RuleError) as error:
        RuleText.read(rule)
    return str(error.value)


@pytest.mark.parametrize("kind", TYPES)
def test_every_action_reads_what_it_shows(kind: str) -> None:
    """The document of an action is one that can be posted again."""
    given = {
        "match": MATCHES.get(kind, {}),
        "action": {"type": kind, **EXAMPLES.get(kind, {})},
    }
    rule = RuleText.read(given)
    shown = {**given, "action": rule.action.document()}
    assert RuleText.read(shown).action == rule.action


def test_a_match_reads_what_it_shows() -> None:
    """Names may be written as Kafka writes them, and sequences as a range."""
    match = {"api": "Produce", "api_version": 9, "topic": "t", "base_sequence": "114-120"}
    rule = RuleText.read({"match": match, "action": "drop_response"})
    assert rule.match.document() == {**match, "api": "produce"}
    assert rule.match.base_sequence == (114, 120)
    rule = RuleText.read({"match": {"base_sequence": 7}, "action": "drop_response"})
    assert rule.match.document() == {"base_sequence": 7}


def test_an_error_may_be_a_name_or_a_number() -> None:
    """Both mean the same."""
    for code in (6, "NOT_LEADER_OR_FOLLOWER", "not_leader_or_follower"):
        action = {"type": "error", "code": code}
        rule = RuleText.read({"match": {"api": "produce"}, "action": action})
        assert rule.action.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_rule_a_list_or_an_object_with_rules() -> None:
    """The three shapes of a body and of a file."""
    rule = {"action": "twice"}
    assert [len(read_rules(one)) for one in (rule, [rule, rule], {"rules": [rule]})] == [1, 2, 1]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({}, "action is missing"),
        ({"action": "lose"}, "action.type takes one of drop_request, .* not 'lose'"),
        ({"action": {"type": "drop_request", "ms": 5}}, "action.ms: there is no such field"),
        ({"action": "delay_request"}, "action.ms is missing: it takes milliseconds"),
        ({"action": {"type": "delay_request", "ms": [5, 2]}}, r"action.ms .* not \[5, 2\]"),
        ({"action": {"type": "delay_request", "ms": True}}, "action.ms .* not True"),
        ({"action": {"type": "drop_request", "later": "x"}}, "takes wait or send, not 'x'"),
        (
            {"action": {"type": "crash", "point": "later"}},
            "action.point takes one of before_append",
        ),
        ({"action": {"type": "fail_write", "errno": "EBIG"}}, "action.errno takes the name"),
        ({"action": "cut_replica_link"}, "action.broker_id is missing"),
        ({"action": {"type": "trickle", "bytes": 0, "ms": 1}}, "action.bytes takes .* not 0"),
        ({"action": "twice", "color": 1}, "color: there is no such field, only"),
        ({"action": "twice", "name": "a b"}, "name takes .* not 'a b'"),
        ({"action": "twice", "match": []}, r"match takes an object, not \[\]"),
        ({"action": "twice", "match": {"topics": "a"}}, "match.topics: there is no such field"),
        ({"action": "twice", "match": {"partition": -1}}, "match.partition takes .* not -1"),
        ({"action": "twice", "match": {"api": "write"}}, "match.api takes one of .*; not 'write'"),
        ({"action": "twice", "match": {"base_sequence": "9-3"}}, "a range of them .* not '9-3'"),
        ({"action": "twice", "match": {"api": "fetch", "producer_id": 1}}, "only produce carries"),
        ({"action": "twice", "match": {"api": "init_producer_id", "topic": "a"}}, "name no topics"),
        ({"action": "twice", "match": {"api": "metadata", "partition": 0}}, "name no partitions"),
        ({"action": "twice", "schedule": {"probability": 2}}, "from 0 to 1, not 2"),
        ({"action": "twice", "schedule": {"times": 0}}, "schedule.times takes .* not 0"),
        ({"action": "twice", "schedule": {"nth": 0}}, "schedule.nth takes .* not 0"),
        ({"action": "twice", "schedule": {"nth": [2, 2]}}, r"schedule.nth takes .* not \[2, 2\]"),
        (
            {"action": "twice", "schedule": {"nth": 2, "probability": 0.5}},
            "schedule.probability: nth picks .*; leave out nth or probability",
        ),
        ({"action": "twice", "schedule": {"nth": 2, "times": 3}}, "leave out nth or times"),
        ({"action": "twice", "schedule": {"nth": 2, "skip": 3}}, "leave out nth or skip"),
        (
            {"action": "twice", "schedule": {"every": 2, "probability": 0.5}},
            "schedule.probability: every picks .*; leave out every or probability",
        ),
        ({"action": "twice", "match": {"api": "produced"}}, r"\(did you mean produce\?\)"),
        (
            {"action": {"type": "error", "code": "NOT_A_LEADER"}, "match": {"api": "produce"}},
            "action.code takes .* not 'NOT_A_LEADER'",
        ),
        (
            {
                "action": {"type": "error", "code": "NOT_LEADER_OR_FOLOWER"},
                "match": {"api": "produce"},
            },
            r"did you mean not_leader_or_follower\?",
        ),
        ({"action": "drop_respond"}, r"did you mean drop_response\?"),
        ({"action": "twice", "optional": "yes"}, "optional takes true or false, not 'yes'"),
        ({"action": "twice", "name": "actions"}, "name 'actions' is a path of its own"),
        ({"action": "twice", "match": {"api": "fetch", "group": "g"}}, "match.group takes match"),
        (
            {"action": "twice", "match": {"group_state": "Stabel"}},
            r"match.group_state takes one of Empty, .* \(did you mean stable\?\)",
        ),
        (
            {"action": "twice", "match": {"api": "fetch", "transaction_state": "Ongoing"}},
            "match.transaction_state takes match.api: .*end_txn",
        ),
        (
            {"action": "drop_request", "match": {"error": 45}},
            "match.error is about the broker's answer, and drop_request takes place before",
        ),
        (
            {"action": "drop_response", "match": {"error": 0}},
            "match.error takes the number .* not 0",
        ),
        ({"action": "blackhole"}, "blackhole takes match: client_id, principal, connection"),
        (
            {"action": "blackhole", "match": {"client_id": "c", "api": "produce"}},
            "match.api: all of a client is lost",
        ),
        (
            {"action": "blackhole", "match": {"client_id": "c"}, "schedule": {"times": 2}},
            "schedule.times: blackhole lasts from its first request on",
        ),
        ({"script": []}, r"script takes a list of 1 to 100 steps, not \[\]"),
        ({"script": ["lose"]}, r"script\[0\].action.type takes one of"),
        ({"script": ["twice"], "action": "twice"}, "action: a rule has an action or a script"),
        ({"script": [7]}, r"script\[0\] takes an action, or an object .* not 7"),
        ({"script": ["twice", "freeze"]}, r"script\[1\].action: freeze has no end"),
        ({"script": ["expire_session"]}, "expire_session is done at once"),
        (
            {"script": ["twice"], "schedule": {"times": 2}},
            "schedule.times: a script takes duration_ms and seed; give times to one of its steps",
        ),
        (
            {"script": [{"action": "twice", "schedule": {"duration_ms": 5}}]},
            r"script\[0\].schedule.duration_ms: the whole script has one",
        ),
        (
            {"script": [{"action": "twice", "optional": True}]},
            r"script\[0\].optional: the whole script has it",
        ),
        (
            {
                "match": {"api": "fetch"},
                "script": [{"action": "twice", "match": {"result": "commit"}}],
            },
            "match.result takes match.api",
        ),
        ({"action": {"type": "error", "code": 0}, "match": {"api": "produce"}}, "not 0"),
        ({"action": {"type": "error", "code": 999}, "match": {"api": "produce"}}, "not 999"),
        ({"action": {"type": "error", "code": 45}}, "error takes match.api: .*; not no match.api"),
        (
            {"action": {"type": "error", "code": 45}, "match": {"api": "await_topic"}},
            "not match.api 'await_topic'",
        ),
        ({"action": "freeze", "match": {"client_id": "p"}}, "freeze takes topic and partition"),
        ({"action": "freeze", "schedule": {"times": 1}}, "schedule.times: freeze lasts until"),
        ({"action": "expire_session", "match": {"topic": "a"}}, "expire_session takes no match"),
        ({"action": "expire_session", "schedule": {"skip": 1}}, "schedule: expire_session"),
        (
            {"action": {"type": "cut_replica_link", "broker_id": 2}, "match": {"topic": "a"}},
            "cut_replica_link takes no match",
        ),
        ({"action": "fail_fsync", "match": {"connection": 1}}, "files know nothing of requests"),
        ({"action": "fail_fsync", "match": {"base_sequence": 1}}, "not one batch"),
        (
            {"action": {"type": "crash", "point": "in_roll"}, "match": {"producer_id": 1}},
            "crash in_roll takes topic and partition",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(rule: dict[str, Any], reason: str) -> None:
    """One sentence that names the field, the value and what it takes."""
    with pytest.raises(RuleError, match=reason):
        read_rules(rule)


def test_a_sentence_is_one_line() -> None:
    """It appears in logs and on terminals."""
    assert "\n" not in refusal(action="lose")


def test_rules_know_every_request_that_is_served() -> None:
    """The names that a rule can match are those of both ports."""
    kafka = set(API_BY_NAME)
    native = {*NATIVE_HANDLERS, "replica_fetch", "replica_wake"} - {"create_topic"}
    assert set(served.APIS) == kafka | native


def test_errors_are_accepted_for_every_kafka_api() -> None:
    """Each has a response that carries an error, and so have most messages of the native port."""
    kafka = set(API_BY_NAME)
    without_errors = {"hello", "await_topic", "note_tree", "admin_read"}
    assert set(served.APIS) - set(served.ERROR_APIS) == without_errors
    assert kafka <= set(served.ERROR_APIS)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5)
    ),
    max_leaves=12,
)
_RULES = st.fixed_dictionaries(
    {"action": st.sampled_from([*TYPES]) | _JSON},
    optional={
        "match": _JSON,
        "schedule": _JSON,
        "name": _JSON,
        "script": st.lists(st.sampled_from([*TYPES]) | _JSON, max_size=3),
    },
)


@given(_JSON | _RULES)
def test_whatever_is_posted_is_read_or_refused(posted: Any) -> None:
    """No JSON leads to anything but rules or a sentence."""
    with contextlib.suppress(RuleError):
        assert read_rules(posted)


def test_a_script_reads_its_steps() -> None:
    """A step has the conditions of the script and its own, and strikes once unless it says otherwise."""
    (script,) = read_rules(
        {
            "match": {"api": "produce", "topic": "t"},
            "script": [
                "drop_response",
                {"type": "delay_response", "ms": 5},
                {
                    "action": "close_after",
                    "match": {"api": "end_txn", "topic": None},
                    "schedule": {"every": 2, "times": 3},
                },
            ],
        }
    )
    lost, late, closed = script.parts
    assert [one.match.document() for one in script.parts] == [
        *[{"api": "produce", "topic": "t"}] * 2,
        {"api": "end_txn"},
    ]
    assert (lost.schedule, late.action.ms) == (Schedule(times=1), (5, 5))
    assert closed.schedule == Schedule(every=2, times=3)


@pytest.mark.parametrize("name", sorted(NAMING_GROUPS))
def test_groups_are_read_of_the_requests_that_name_them(name: str) -> None:
    """A rule about a group is taken for an API only if its requests have a field for one."""
    api = API_BY_NAME[name]
    module = importlib.import_module(f"kio.schema.{name}.v{api.version_max}.request")
    cls = getattr(module, "".join(map(str.capitalize, name.split("_"))) + "Request")
    fields = {one.name for one in dataclasses.fields(cls)}
    assert fields & {"group_id", "groups", "group_ids", "groups_names", "coordinator_keys"}
