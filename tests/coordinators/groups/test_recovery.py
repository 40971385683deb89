"""A bug in a step costs the state of one group at most, and that is loaded again from what is durable."""

from __future__ import annotations

import random
import struct
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.coordinators.events import AppendCommitted, Requested
from echoless.coordinators.groups import recovery
from echoless.coordinators.groups.consumer import groups
from echoless.coordinators.groups.consumer.admission import Admission
from echoless.coordinators.groups.consumer.requests import ConsumerHeartbeat
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.pending_appends import PendingAppends
from echoless.coordinators.groups.requests import CommittedPartition, OffsetCommit, OffsetFetch
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import DecodeError, ErrorCode
from tests.coordinators.groups.bugs import BugError
from tests.coordinators.groups.consumer_history import ConsumerHistory
from tests.coordinators.groups.consumers import GROUP, ConsumerShell
from tests.coordinators.groups.history import History
from tests.coordinators.groups.shell import Shell

STEPS = 80
SEEDS = range(100)
ONE_IN = 8
CHANGES_MAX = 30
known_hand_over = PendingAppends.hand_over


class BuggyConsumerHistory(ConsumerHistory):
    """A history in which steps raise after some of their changes."""

    may_fail = True

    def check(self) -> None:
        if self.may_fail:
            plant(self.choices, self.shell)
        super().check()

    def calm(self) -> None:
        self.may_fail, self.shell.bugs.left = False, None
        super().calm()


class BuggyHistory(History):
    """The same for the classic protocol."""

    may_fail = True
    recoveries = 0

    def check(self) -> None:
        if self.may_fail:
            plant(self.choices, self.shell)
        if self.shell.recoveries > self.recoveries:
            self.recoveries = self.shell.recoveries
            self.read_log()
            if self.stored is not None:  # as after a fail-over
                self.gone -= {one.member_id for one in self.stored.members}
        super().check()

    def calm(self) -> None:
        self.may_fail, self.shell.bugs.left = False, None
        super().calm()


def _load_at_once(store: GroupStore, group: Group) -> bool:
    if group.group_id not in store.reloading:
        return False
    store.reloading.remove(group.group_id)
    return store.live.pop(group.group_id) is group


def _keep_all(self: PendingAppends, group: Group, _last_token: int) -> None:
    known_hand_over(self, group, self.last_token)


def plant(choices: random.Random, shell: Shell) -> None:
    if choices.randrange(ONE_IN) == 0:
        shell.bugs.left = choices.randrange(CHANGES_MAX)


@given(st.randoms(use_true_random=False))
def test_no_bug_breaks_an_invariant_of_a_consumer_group(choices: random.Random) -> None:
    """Acknowledged state survives it anywhere: what was answered is kept, and the group becomes stable in the end."""
    history = BuggyConsumerHistory(choices)
    with history.shell.bugs.planted():
        history.play(STEPS)


@given(st.randoms(use_true_random=False))
def test_no_bug_breaks_an_invariant_of_a_classic_group(choices: random.Random) -> None:
    """The same."""
    history = BuggyHistory(choices)
    with history.shell.bugs.planted():
        history.play(STEPS)


def break_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next heartbeat raise when half of it is done."""
    known = Admission.admit

    def admit(self: Admission, request: ConsumerHeartbeat) -> None:
        monkeypatch.setattr(Admission, "admit", known)
        known(self, request)
        raise BugError

    monkeypatch.setattr(Admission, "admit", admit)


def test_a_bug_costs_the_group_of_its_step_alone(monkeypatch):
    """Its requests are refused, to be sent again; what was stored of it is there, and others notice nothing."""
    shell = ConsumerShell()
    shell.beat("m1", 0)
    shell.holds_appends = True
    other = shell.send(OffsetCommit("other", -1, "", None, (CommittedPartition("t", 0, 7),)))
    waits = [shell.send(shell.heartbeat_request(member_id, 0)) for member_id in ("m2", "m3")]
    break_next_heartbeat(monkeypatch)
    shell.holds_appends = False
    shell.commit_all()
    assert shell.answers[other].error_codes == (ErrorCode.NONE,)
    for reply_id in waits:
        assert shell.answers[reply_id].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert sorted(shell.assigned()) == ["m1", "m2"]
    assert shell.coordinator.member_count == 2
    shell.settle("m1", "m2")


def test_a_group_is_served_again_when_its_appends_have_ended(monkeypatch):
    """Else it would go on from what is out of date; it is refused until then."""
    shell = ConsumerShell()
    shell.beat("m1", 0)
    shell.holds_appends = True
    rows = (CommittedPartition("t", 0, 7),)
    commits = [
        shell.send(OffsetCommit(GROUP, 1, "m1", None, rows, knows_missing_groups=True))
        for _ in range(2)
    ]
    break_next_heartbeat(monkeypatch)
    shell.send(shell.heartbeat_request("m1", 1, topics=("u",)))
    for reply_id in commits:
        (code,) = shell.answers[reply_id].error_codes
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shell.commit()
    assert shell.code("m1", 1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shell.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.describe().members[0].value.topic_names == ("t",)
    shell.holds_appends = False
    assert shell.code("m1", 1) == ErrorCode.NONE
    (row,) = shell.ask(OffsetFetch(GROUP, None)).partitions
    assert row.offset == 7


def test_a_record_that_cannot_be_packed_is_never_appended(monkeypatch):
    """Its append was never carried out, so nothing waits for its outcome."""
    shell = ConsumerShell()
    shell.beat("m1", 0)
    monkeypatch.setattr(groups, "flaw", lambda *_: None)
    monkeypatch.setattr(shell.bugs, "kind", struct.error)
    shell.send(shell.heartbeat_request("x" * 40_000, 0))
    assert shell.recoveries == 1
    assert shell.code("m1", 1) == ErrorCode.NONE
    assert shell.coordinator.member_count == 1


def test_a_bug_while_a_group_is_loaded_again_is_not_hidden(monkeypatch):
    """More than a group is in doubt then: the shell makes the coordinator again."""
    shell = ConsumerShell()
    shell.beat("m1", 0)
    monkeypatch.setattr(ConsumerState, "contradiction", lambda _: "a bug")
    with pytest.raises(DecodeError):
        shell.coordinator.recover(Requested(9, shell.heartbeat_request("m1", 1)), shell.now)


def test_an_append_whose_records_are_not_applied_leaves_more_in_doubt(monkeypatch):
    """The durable state of any group may be half changed."""
    shell = ConsumerShell()
    shell.holds_appends = True
    shell.send(shell.heartbeat_request("m1", 0))
    monkeypatch.setattr(DurableGroups, "put", raise_bug)
    event = AppendCommitted(shell.held[0].token)
    with pytest.raises(BugError):
        shell.coordinator.step(event, shell.now)
    assert shell.coordinator.recover(event, shell.now) is None


def raise_bug(*_: object) -> None:
    raise BugError


GUARDS = {
    "appends are waited for": (recovery, "may_load", _load_at_once),
    "appends never carried out are forgotten": (PendingAppends, "hand_over", _keep_all),
    "members are counted anew": (GroupStore, "recount", lambda _: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS)
def test_histories_miss_a_guard(guard: str) -> None:
    """Some seed breaks an invariant without it."""
    with patch.object(*GUARDS[guard]):
        for seed in SEEDS:
            for kind in (BuggyConsumerHistory, BuggyHistory):
                history = kind(random.Random(seed))
                try:
                    with history.shell.bugs.planted():
                        history.play(STEPS)
                except (AssertionError, KeyError):
                    return
    pytest.fail("no history breaks anything")
