"""Targets that take long are made in steps, between which other groups are served and their own waits."""

from __future__ import annotations

import itertools
import random

import pytest

from echoless.coordinators.groups.consumer import assignment
from echoless.coordinators.groups.consumer.assignors import ASSIGNORS, assigned_at_once
from echoless.coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber
from echoless.coordinators.groups.requests import CommittedPartition, DeleteGroup, OffsetCommit
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.consumers import GROUP, ConsumerShell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> ConsumerShell:
    """A group whose first member waits for its target."""
    monkeypatch.setattr(assignment, "WORK_AT_ONCE", -1)
    shell = ConsumerShell()
    shell.holds_assignments = True
    return shell


def test_a_large_group_is_assigned_in_steps_of_its_own() -> None:
    """Its subscriptions and partitions together decide, so a small group is answered at once."""
    for partitions, is_large in (
        (assignment.WORK_AT_ONCE - 1, False),
        (assignment.WORK_AT_ONCE, True),
    ):
        shell = ConsumerShell(t=partitions)
        shell.holds_assignments = True
        reply = shell.send(shell.heartbeat_request("m1", 0))
        assert bool(shell.assigning) is is_large
        assert (reply in shell.answers) is not is_large


def test_what_comes_meanwhile_waits_for_the_target(shell: ConsumerShell) -> None:
    """A second member, a commit and a deletion: each is answered from what the target has changed."""
    first = shell.send(shell.heartbeat_request("m1", 0))
    second = shell.send(shell.heartbeat_request("m2", 0))
    row = CommittedPartition("t", 0, 7)
    commit = shell.send(OffsetCommit(GROUP, 1, "m1", None, (row,), knows_missing_groups=True))
    deletion = shell.send(DeleteGroup(GROUP))
    assert not shell.answers.keys() & {first, second, commit, deletion}
    shell.holds_assignments = False
    shell.assign_all()
    assert shell.answers[first].member_epoch == 1
    assert shell.answers[first].assignment == shell.topics.all()
    assert shell.answers[second].member_epoch == 2
    assert shell.answers[commit].error_codes == (ErrorCode.NONE,)
    assert shell.answers[deletion].error_code == ErrorCode.NON_EMPTY_GROUP


def test_another_group_is_served_meanwhile(shell: ConsumerShell) -> None:
    """Its requests do not wait, nor does what it stores."""
    shell.send(shell.heartbeat_request("m1", 0))
    row = CommittedPartition("t", 0, 7)
    answer = shell.ask(OffsetCommit("other", -1, "", None, (row,), knows_missing_groups=True))
    assert answer.error_codes == (ErrorCode.NONE,)


def test_a_topic_that_grows_meanwhile_gives_a_further_epoch(shell: ConsumerShell) -> None:
    """The target has the topics as they were when its epoch began."""
    before = shell.topics.all()
    first = shell.send(shell.heartbeat_request("m1", 0))
    shell.topics.set("t", 9)
    shell.holds_assignments = False
    shell.assign_all()
    assert shell.answers[first].assignment == before
    answer = shell.beat("m1", 1, before)
    assert answer.assignment == shell.topics.all()
    assert answer.member_epoch == 2


def test_a_target_for_a_group_that_was_loaded_again_is_dropped(shell: ConsumerShell) -> None:
    """Nothing of its epoch was stored; the member joins anew."""
    shell.send(shell.heartbeat_request("m1", 0))
    (late,) = shell.assigning
    shell.load()
    shell.holds_assignments = False
    shell.beat("m1", 0)
    log = list(shell.log)
    shell.assigning.append(late)
    shell.assign_all()
    assert shell.log == log


def test_a_session_that_ends_meanwhile_ends_after_it(shell: ConsumerShell) -> None:
    """Its member has asked within its session; the answer begins a new one."""
    first = shell.send(shell.heartbeat_request("m1", 0))
    shell.pass_time(60_000)
    shell.holds_assignments = False
    shell.assign_all()
    assert shell.answers[first].error_code == ErrorCode.NONE
    assert shell.beat("m1", 1, shell.topics.all()).error_code == ErrorCode.NONE


def test_partitions_given_up_in_time_are_given_up_though_the_target_takes_longer(
    shell: ConsumerShell,
) -> None:
    """The member has asked before its time was over; one that has not is removed when the target is made."""
    shell.holds_assignments = False
    shell.beat("m1", 0, rebalance_timeout_ms=5_000)
    held = shell.beat("m1", 1, shell.topics.all()).assignment or shell.topics.all()
    shell.beat("m2", 0)
    kept = shell.beat("m1", 1, held).assignment
    assert kept is not None
    assert kept < held
    shell.pass_time(4_000)
    shell.holds_assignments = True
    third = shell.send(shell.heartbeat_request("m3", 0))
    given_up = shell.send(shell.heartbeat_request("m1", 1, kept))
    shell.pass_time(1_500)
    shell.holds_assignments = False
    shell.assign_all()
    assert shell.answers[third].error_code == ErrorCode.NONE
    assert shell.answers[given_up].error_code == ErrorCode.NONE


def test_partitions_that_are_not_given_up_end_the_member_when_the_target_is_made(
    shell: ConsumerShell,
) -> None:
    """Requests of others in the group do not put it off."""
    shell.holds_assignments = False
    shell.beat("m1", 0, rebalance_timeout_ms=5_000)
    shell.beat("m2", 0)
    shell.beat("m1", 1, shell.topics.all())
    shell.pass_time(4_000)
    shell.holds_assignments = True
    shell.send(shell.heartbeat_request("m3", 0))
    shell.send(shell.heartbeat_request("m2", 2, frozenset()))
    shell.pass_time(1_500)
    shell.holds_assignments = False
    shell.assign_all()
    assert shell.code("m1", 1, shell.topics.all()) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("name", ASSIGNORS)
def test_very_mixed_subscriptions_take_many_steps(name: str) -> None:
    """A step for each topic at least, and the same target whatever is served in between."""
    choices = random.Random(7)
    topics = [AssignedTopic(f"t{n:03}", n.to_bytes(16), 2) for n in range(200)]
    names = [one.name for one in topics]
    members = [
        Subscriber(f"m{n}", None, frozenset(choices.sample(names, 60)), frozenset())
        for n in range(50)
    ]
    steps = ASSIGNORS[name](members, topics)
    assert sum(1 for _ in itertools.islice(steps, 10_000)) >= len(topics)


def test_one_member_of_many_gives_away_what_it_has() -> None:
    """Each topic has other subscribers, so each has a ranking of its own: nothing grows with moves times rankings."""
    choices = random.Random(8)
    topics = [AssignedTopic(f"t{n:03}", n.to_bytes(16), 4) for n in range(100)]
    names = frozenset(one.name for one in topics)
    everything = frozenset((one.topic_id, index) for one in topics for index in range(4))
    members = [Subscriber("a", None, names, everything)] + [
        Subscriber(f"m{n}", None, frozenset(choices.sample(sorted(names), 50)), frozenset())
        for n in range(39)
    ]
    target = assigned_at_once("uniform", members, topics)
    shares = [len(partitions) for partitions in target.values()]
    assert (min(shares), max(shares), sum(shares)) == (10, 10, 400)
