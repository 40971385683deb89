"""The test vectors 17 to 30 and 49 of the groups specification: SyncGroup, Heartbeat, LeaveGroup, fail-over."""

from __future__ import annotations

import pytest

from echoless.coordinators.events import AppendCommitted, AppendFailed
from echoless.coordinators.groups.answers import refusal
from echoless.coordinators.groups.requests import Heartbeat, LeaveGroup, LeavingMember, SyncGroup
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.shell import Shell

STORE_FAILURES = [
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
]


@pytest.fixture
def shell():
    return Shell()


def code(shell: Shell, reply_id: int) -> ErrorCode:
    return shell.answers[reply_id].error_code


def heartbeat(shell: Shell, member_id: str, generation_id: int) -> ErrorCode:
    return shell.ask(Heartbeat("g", generation_id, member_id, None)).error_code


def completing(shell: Shell, count: int = 2) -> list[str]:
    """The members of generation 1, the leader first; it has no assignment yet."""
    members = [shell.new_member()[0] for _ in range(count)]
    shell.pass_time(6_000)
    assert shell.state() == "CompletingRebalance"
    return members


def test_vector_17_the_leaders_assignment_reaches_all(shell):
    """Completing; Sync of the follower, then of the leader: both assigned; Stable."""
    leader, follower = completing(shell)
    waiting = shell.sync(follower, 1)
    assert waiting not in shell.answers
    given = ((leader, b"1"), (follower, b"2"))
    answered = shell.sync(leader, 1, assignments=given)
    assert shell.answers[waiting].assignment == b"2"
    assert shell.answers[answered].assignment == b"1"
    assert shell.state() == "Stable"


def test_vector_18_a_member_that_the_leader_leaves_out_has_an_empty_assignment(shell):
    """Completing; the leader's Sync omits B: B gets no bytes; Stable."""
    leader, follower = completing(shell)
    waiting = shell.sync(follower, 1)
    shell.sync(leader, 1, assignments=((leader, b"1"), ("stranger", b"3")))
    assert shell.answers[waiting].assignment == b""
    assert shell.state() == "Stable"


def test_vector_19_without_the_leader_there_is_no_assignment(shell):
    """Completing; the leader's session ends: the followers' Syncs get 27; Preparing."""
    _, follower = completing(shell)
    waiting = shell.sync(follower, 1)
    shell.pass_time(10_000)
    assert code(shell, waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.state() == "PreparingRebalance"


def test_vector_20_a_member_that_does_not_sync_is_removed(shell):
    """Completing; B is silent for the rebalance timeout, but for heartbeats: B removed; Preparing."""
    leader, silent = completing(shell)
    shell.sync(leader, 1)
    for _ in range(12):
        assert heartbeat(shell, silent, 1) is ErrorCode.NONE
        assert heartbeat(shell, leader, 1) is ErrorCode.NONE
        shell.pass_time(5_000)
    assert list(shell.live["g"].members) == [leader]
    assert shell.state() == "PreparingRebalance"


def test_vector_21_a_sync_of_a_stable_group_is_answered_at_once(shell):
    """Stable; Sync of an older generation: 22; right: the stored bytes."""
    leader, follower = shell.stable(2)
    assert code(shell, shell.sync(follower, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert shell.answers[shell.sync(follower, 1)].assignment == follower.encode()
    assert shell.answers[shell.sync(leader, 1)].assignment == leader.encode()


def test_vector_22_a_sync_during_the_join_phase_is_to_rejoin(shell):
    """Preparing; Sync: 27."""
    leader, follower = shell.stable(2)
    shell.join(leader)
    assert code(shell, shell.sync(follower, 1)) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "names",
    [
        {"names_protocol": True},
        {"names_protocol": True, "protocol_type": "consumer"},
        {"protocol_type": "consumer", "protocol_name": "sticky"},
        {"protocol_type": "connect", "protocol_name": "range"},
    ],
)
def test_vector_23_a_sync_names_the_protocol_of_the_group(shell, names):
    """Sync v5 without a name, or with a wrong one: 23."""
    (leader,) = shell.stable()
    refused = shell.sync(leader, 1, **names)
    assert code(shell, refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("failure", "answered"), STORE_FAILURES)
def test_vector_24_an_assignment_that_is_not_stored_reaches_no_one(shell, failure, answered):
    """Sync store fails with 19, 6, 7, 10: 15, 16, 27, -1; Preparing."""
    leader, follower = completing(shell)
    waiting = shell.sync(follower, 1)
    shell.holds_appends = True
    sync = shell.sync(leader, 1, assignments=((leader, b"1"),))
    shell.refuse(failure)
    assert code(shell, sync) is code(shell, waiting) is answered
    assert shell.state() == "PreparingRebalance"
    assert shell.answers[sync].assignment == b""


def test_vector_25_heartbeats_of_a_stable_group(shell):
    """Stable; right: 0, older generation: 22, other id: 25."""
    (leader,) = shell.stable()
    assert heartbeat(shell, leader, 1) is ErrorCode.NONE
    assert heartbeat(shell, leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert heartbeat(shell, "other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.ask(Heartbeat("none", 1, leader, None)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.ask(Heartbeat("", 1, leader, None)).error_code is ErrorCode.INVALID_GROUP_ID


def test_vector_26_heartbeats_during_a_rebalance_extend_the_session(shell):
    """Preparing: 27; Completing: 0; both reset the session."""
    leader, follower = shell.stable(2)
    join = shell.join(leader)
    for _ in range(3):
        shell.pass_time(9_000)
        assert heartbeat(shell, follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = shell.join(follower)
    assert shell.answers[join].generation_id == shell.answers[again].generation_id == 2
    for _ in range(3):
        shell.pass_time(9_000)
        assert heartbeat(shell, follower, 2) is ErrorCode.NONE
        assert heartbeat(shell, leader, 2) is ErrorCode.NONE
    assert shell.state() == "CompletingRebalance"


def test_vector_27_refusals_while_loading(shell):
    """Loading; Heartbeat, Sync and Join are answered with any code, each in its own form."""
    assert refusal(Heartbeat("g", 1, "m", None), ErrorCode.NONE).error_code is ErrorCode.NONE
    sync = refusal(SyncGroup("g", 1, "m", None, ()), ErrorCode.REBALANCE_IN_PROGRESS)
    assert (sync.error_code, sync.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")
    join = refusal(shell.join_request("m"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert (join.error_code, join.member_id, join.generation_id) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "m",
        -1,
    )


def test_vector_28_members_of_no_group_cannot_leave(shell):
    """No group; Leave [a, b]: 0, each 25."""
    answer = shell.ask(LeaveGroup("g", (LeavingMember("a"), LeavingMember("b"))))
    assert answer.error_code is ErrorCode.NONE
    assert [one.error_code for one in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_vector_29_a_member_that_leaves_rebalances_the_rest(shell):
    """Stable A, B; Leave B: 0; Preparing."""
    leader, follower = shell.stable(2)
    answer = shell.ask(LeaveGroup("g", (LeavingMember(follower), LeavingMember(follower))))
    assert [one.error_code for one in answer.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert shell.state() == "PreparingRebalance"
    assert list(shell.live["g"].members) == [leader]


def test_vector_30_an_administrator_removes_a_static_member_by_its_instance(shell):
    """Static i=m1; Leave (m2, i): 82; ("", i): 0; ("", unknown): 25."""
    join = shell.join(group_instance_id="i")
    shell.pass_time(6_000)
    shell.sync(shell.answers[join].member_id, 1, group_instance_id="i")
    rows = (LeavingMember("m2", "i"), LeavingMember("", "x"), LeavingMember("", "i"))
    answer = shell.ask(LeaveGroup("g", rows))
    assert [one.error_code for one in answer.members] == [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert shell.live == {}  # empty, as it is stored


def test_vector_49_a_generation_that_was_cut_short_is_not_issued_again(shell):
    """Killed in Completing, generation 6; new coordinator, next join: a higher generation."""
    (leader,) = shell.stable()
    for generation_id in range(2, 7):
        join = shell.join(leader)
        assert shell.answers[join].generation_id == generation_id
        if generation_id < 6:
            shell.sync(leader, generation_id)
    assert shell.state() == "CompletingRebalance"
    shell.load()
    assert shell.state() == "PreparingRebalance"
    assert heartbeat(shell, leader, 6) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.answers[shell.join(leader)].generation_id == 7


def test_a_generation_is_answered_only_once_it_is_stored(shell):
    """Killed between the end of the join phase and its record: the number reaches others, who are the first."""
    (leader,) = shell.stable()
    shell.holds_appends = True
    join = shell.join(leader)
    assert join not in shell.answers
    shell.load()
    shell.holds_appends = False
    assert shell.state() == "Stable"
    assert shell.answers[shell.join(leader)].generation_id == 2


@pytest.mark.parametrize(("failure", "answered"), STORE_FAILURES)
def test_a_generation_that_is_not_stored_is_answered_to_no_one(shell, failure, answered):
    """The members rejoin, and share a later number."""
    (leader,) = shell.stable()
    shell.holds_appends = True
    join = shell.join(leader)
    shell.refuse(failure)
    timed_out = failure is ErrorCode.REQUEST_TIMED_OUT
    assert code(shell, join) is (ErrorCode.COORDINATOR_NOT_AVAILABLE if timed_out else answered)
    assert shell.state() == "PreparingRebalance"
    shell.holds_appends = False
    assert shell.answers[shell.join(leader)].generation_id == 3


def test_members_that_come_while_a_generation_is_stored_share_the_next(shell):
    """Many joins cost one more generation, not one each."""
    (leader,) = shell.stable()
    shell.holds_appends = True
    first = shell.join(leader)
    others = [shell.join(requires_known_member_id=False) for _ in range(5)]
    shell.commit_all()
    assert {shell.answers[join].generation_id for join in [first, *others]} == {3}


def test_a_join_phase_whose_time_is_over_ends_once_the_generation_before_is_stored(shell):
    """The rebalance timer fires while a record is under way: nothing is lost, and no member is dropped twice."""
    leader, follower = shell.stable(2)
    shell.holds_appends = True
    first, again = shell.join(leader), shell.join(follower)
    third = shell.join(requires_known_member_id=False)
    shell.join(session_timeout_ms=1_800_000)  # a pending member, which never joins
    shell.pass_time(100_000)
    assert {first, again, third}.isdisjoint(shell.answers)
    shell.commit_all()
    assert {shell.answers[join].generation_id for join in (first, again, third)} == {3}


def test_an_assignment_that_times_out_and_is_committed_all_the_same_is_no_assignment(shell):
    """7 with the record in the log: members rejoin; the record changes what is stored, and nothing else."""
    leader, follower = completing(shell)
    shell.holds_appends = True
    sync = shell.sync(leader, 1, assignments=((leader, b"1"),))
    append = shell.held.pop(0)
    shell.step(AppendFailed(append.token, ErrorCode.REQUEST_TIMED_OUT, may_commit=True))
    assert code(shell, sync) is ErrorCode.REBALANCE_IN_PROGRESS
    shell.log += append.records
    shell.step(AppendCommitted(append.token))
    assert shell.state() == "PreparingRebalance"
    assert not shell.held
    assert heartbeat(shell, follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_late_timer_removes_no_one(shell):
    """H6: a timer of an earlier deadline only sets itself again."""
    (leader,) = shell.stable()
    late = dict(shell.timers)
    shell.pass_time(9_000)
    heartbeat(shell, leader, 1)
    for key in late:
        shell.timers[key] = shell.ms
    shell.pass_time(0)
    assert heartbeat(shell, leader, 1) is ErrorCode.NONE
    shell.pass_time(9_999)
    assert heartbeat(shell, leader, 1) is ErrorCode.NONE
    shell.pass_time(10_000)
    assert heartbeat(shell, leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ends_empties_the_group_and_stores_it(shell):
    """The last member's session ends: Empty, in a new generation, also after a fail-over."""
    (leader,) = shell.stable()
    shell.pass_time(10_000)
    assert any("session expire" in note for note in shell.notes)
    shell.load()
    _, join = shell.new_member()
    shell.pass_time(6_000)
    assert shell.answers[join].generation_id == 3
    assert heartbeat(shell, leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fail_over_keeps_members_generation_and_assignments(shell):
    """Loaded stable: heartbeats go on, a Sync reads its assignment, all sessions begin anew."""
    leader, follower = shell.stable(2)
    shell.pass_time(9_000)
    shell.load()
    shell.pass_time(9_000)
    assert heartbeat(shell, leader, 1) is ErrorCode.NONE
    assert shell.answers[shell.sync(follower, 1)].assignment == follower.encode()
    assert shell.state() == "Stable"


def test_a_client_before_kip_394_that_goes_away_in_join_leaves_no_ghost(shell):
    """Its member does not know its id: it would hold up the group for five minutes."""
    (leader,) = shell.stable()
    ghost = shell.join(requires_known_member_id=False)
    join = shell.join(leader)
    assert shell.answers[join].generation_id == 2
    shell.sync(leader, 2)
    shell.join(requires_known_member_id=False)
    shell.abandon(ghost)  # it was answered: nothing happens
    ghost = shell.join(requires_known_member_id=False)
    assert len(shell.live["g"].members) == 4
    shell.abandon(ghost)
    assert len(shell.live["g"].members) == 3
