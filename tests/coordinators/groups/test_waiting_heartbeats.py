"""Heartbeats of the consumer protocol that come while something of their group is being stored.

One with a flaw of its own is refused at once; the others are processed in their turn as those that never waited.
"""

from __future__ import annotations

import pytest

from echoless.coordinators.groups.consumer import assignment, backlog
from echoless.coordinators.groups.consumer.assignors import DEFAULT_ASSIGNOR
from echoless.coordinators.groups.records import packed
from echoless.coordinators.groups.requests import DeleteGroup
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import MemberValue
from echoless.protocol.state_records.group_keys import MemberKey, read_key
from tests.coordinators.groups.consumers import GROUP, ConsumerShell

FLAWS = [
    ({"assignor": "x"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"assignor": "x" * 40_000}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"member_id": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
    ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"instance_id": "€" * 20_000}, ErrorCode.INVALID_REQUEST),
    ({"rack_id": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
    ({"client_id": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
    ({"topic_regex": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
    ({"topic_names": ("x" * 2_000_000,)}, ErrorCode.INVALID_REQUEST),
    ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
    ({"owned": None}, ErrorCode.INVALID_REQUEST),
    ({"rebalance_timeout_ms": -2}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
]


@pytest.fixture(params=["an append", "a target"])
def shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ConsumerShell:
    """m1 is joining: an append of its group, or a target in the making, is waited for."""
    shell = ConsumerShell()
    if request.param == "a target":
        monkeypatch.setattr(assignment, "WORK_AT_ONCE", -1)
        shell.holds_assignments = True
    else:
        shell.holds_appends = True
    assert shell.send(shell.heartbeat_request("m1", 0)) not in shell.answers
    return shell


def go_on(shell: ConsumerShell) -> None:
    """End what is waited for."""
    shell.holds_appends = shell.holds_assignments = False
    shell.assign_all()
    shell.commit_all()


@pytest.mark.parametrize(("fields", "code"), FLAWS)
def test_a_flaw_is_refused_before_anything_waits(shell, fields, code):
    """With the code that it has when nothing is being stored; the group goes on without it."""
    requests = [
        shell.heartbeat_request(member_id, 0)._replace(**fields) for member_id in ("m2", "m3")
    ]
    for request in requests:
        assert shell.ask(request).error_code == code
    go_on(shell)
    assert list(shell.assigned()) == ["m1"]
    assert shell.ask(requests[0]).error_code == code


def test_a_flawed_heartbeat_does_not_prolong_a_session(shell):
    """It counts as none, as when nothing is being stored."""
    go_on(shell)
    shell.pass_time(40_000)
    shell.holds_appends = True
    shell.send(shell.heartbeat_request("m2", 0))
    shell.send(shell.heartbeat_request("m1", 1, assignor="x"))
    shell.pass_time(6_000)
    go_on(shell)
    assert list(shell.assigned()) == ["m2"]


def test_a_member_in_another_epoch_is_fenced_in_its_turn(shell):
    """The epoch is compared with the group as it is then."""
    known = shell.send(shell.heartbeat_request("m1", 7))
    unknown = shell.send(shell.heartbeat_request("m2", 1))
    go_on(shell)
    assert shell.answers[known].error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert shell.answers[unknown].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_with_a_new_regular_expression_waits_for_its_topics(shell):
    """As it does when nothing is being stored: its first answer has its partitions."""
    shell.topics.set("u", 2)
    shell.holds_regexes = True
    waits = shell.send(shell.heartbeat_request("m2", 0, topics=(), topic_regex="u"))
    go_on(shell)
    assert waits not in shell.answers
    shell.holds_regexes = False
    shell.resolve_all()
    assert shell.answers[waits].assignment == shell.topics.ids("u")


def test_topics_are_kept_for_a_join_that_still_waits(shell, monkeypatch):
    """Another turn does not forget them because no member has the expression yet: they would be looked for again."""
    monkeypatch.setattr(backlog, "_HEARTBEATS_PER_TURN", 1)
    go_on(shell)
    shell.holds_regexes = True
    waits = shell.send(shell.heartbeat_request("m2", 0, topics=(), topic_regex="t"))
    shell.holds_appends = True
    for member_id in ("m3", "m4"):
        shell.send(shell.heartbeat_request(member_id, 0))
    shell.holds_regexes = False
    shell.resolve_all()
    shell.holds_regexes = True
    go_on(shell)
    assert shell.answers[waits].error_code == ErrorCode.NONE
    assert not shell.asked


def test_a_member_does_not_join_a_group_that_is_being_deleted(shell):
    """The deletion has waited before it: the member would be gone with the group, and never be missed."""
    go_on(shell)
    shell.holds_appends = True
    shell.send(shell.heartbeat_request("m1", -1))
    deletes = shell.send(DeleteGroup(GROUP))
    joins = shell.send(shell.heartbeat_request("m2", 0))
    shell.commit()
    assert shell.answers[joins].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    go_on(shell)
    assert shell.answers[deletes].error_code == ErrorCode.NONE
    assert shell.coordinator.member_count == 0
    assert shell.beat("m2", 0).member_epoch == 1


def test_who_waits_for_topics_is_refused_when_the_group_is_deleted(shell):
    """Else no one would answer: the topics are found for a group that is gone."""
    go_on(shell)
    shell.beat("m1", -1)
    shell.holds_regexes = True
    joins = shell.send(shell.heartbeat_request("m2", 0, topics=(), topic_regex="t"))
    assert shell.ask(DeleteGroup(GROUP)).error_code == ErrorCode.NONE
    assert shell.answers[joins].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.resolve_all()
    assert shell.code("m2", 0) == ErrorCode.NONE


def test_a_vote_for_an_unknown_assignor_counts_as_none():
    """An earlier version has stored one. The group is loaded, and served, and a line says so."""
    shell = ConsumerShell()
    shell.beat("m1", 0)
    shell.log = [_voting_for_x(record) for record in shell.log]
    shell.notes.clear()
    shell.load()
    assert [note for note in shell.notes if "'x'" in note and "m1" in note]
    assert shell.describe().assignor == DEFAULT_ASSIGNOR
    assert shell.code("m2", 0, assignor="range") == ErrorCode.NONE
    shell.settle("m1", "m2")
    assert shell.code("m2", -1) == ErrorCode.NONE
    shell.settle("m1")
    assert shell.assigned() == {"m1": shell.topics.all()}


def _voting_for_x(record):
    key = read_key(record.key)
    if not isinstance(key, MemberKey):
        return record
    value = MemberValue(None, None, "c", "/127.0.0.1", ("t",), None, 30_000, "x")
    return packed((key, value))
