"""The test vectors 1 to 16 and 31 to 35 of the groups specification: JoinGroup, dynamic and static."""

from __future__ import annotations

import pytest

from echoless.coordinators.events import TimerFired
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.requests import Heartbeat, LeaveGroup, LeavingMember
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.shell import RANGE, Shell

ROUND_ROBIN = (("roundrobin", b""),)
OTHER_METADATA = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x01u"),)


@pytest.fixture
def shell():
    return Shell()


def code(shell: Shell, reply_id: int) -> ErrorCode:
    return shell.answers[reply_id].error_code


def static(instance_id: str, **fields) -> dict:
    return {"group_instance_id": instance_id} | fields


def stable_static(shell: Shell, *instance_ids: str) -> list[str]:
    """The ids of static members of a stable group, the leader first."""
    joins = [shell.join(**static(instance_id)) for instance_id in instance_ids]
    shell.pass_time(6_000)
    ids = [shell.answers[join].member_id for join in joins]
    given = tuple((member_id, member_id.encode()) for member_id in ids)
    for member_id, instance_id in reversed(list(zip(ids, instance_ids, strict=True))):
        shell.sync(member_id, 1, group_instance_id=instance_id, assignments=given)
    assert shell.state() == "Stable"
    return ids


def test_vector_1_an_id_that_no_group_knows_is_unknown(shell):
    """No group; Join with an id: 25, and no group is made."""
    assert code(shell, shell.join("x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.live == {}


def test_vector_2_a_first_member_without_kip_394_waits_for_others(shell):
    """No group; Join v3: waits 3 s, then leads generation 1."""
    join = shell.join(requires_known_member_id=False)
    shell.pass_time(2_999)
    assert join not in shell.answers
    shell.pass_time(1)
    answer = shell.answers[join]
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.leader == answer.member_id
    assert [member.member_id for member in answer.members] == [answer.member_id]
    assert shell.state() == "CompletingRebalance"


def test_the_initial_delay_grows_while_members_come_up_to_the_rebalance_timeout(shell):
    """A member during each delay prolongs it, until the rebalance timeout is over."""
    first = shell.join(requires_known_member_id=False, rebalance_timeout_ms=8_000)
    for _ in range(3):
        shell.pass_time(2_500)
        assert first not in shell.answers
        shell.join(requires_known_member_id=False, rebalance_timeout_ms=8_000)
    shell.pass_time(500)
    assert len(shell.answers[first].members) == 4


def test_vector_3_a_dynamic_member_is_given_its_id_first(shell):
    """No group; Join v4 without an id: 79 and the id, which is pending."""
    answer = shell.answers[shell.join()]
    assert answer.error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "c-0001"
    assert list(shell.live["g"].pending_members) == ["c-0001"]


def test_vector_4_a_pending_member_joins_with_its_id(shell):
    """Pending m; Join m: waits; Preparing."""
    _, join = shell.new_member()
    assert join not in shell.answers
    assert shell.state() == "PreparingRebalance"


def test_vector_5_an_id_that_was_not_used_in_time_is_unknown(shell):
    """Pending m, its session ends; Join m: 25, and the group is gone."""
    member_id = shell.answers[shell.join(session_timeout_ms=10_000)].member_id
    shell.pass_time(10_000)
    assert shell.live == {}
    assert code(shell, shell.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("end", ["joins", "leaves", "leaves as an instance", "expires"])
def test_vector_6_the_join_phase_waits_for_a_pending_member(shell, end):
    """Preparing, all wait, one is pending: completes when it joins, leaves or expires."""
    (leader,) = shell.stable()
    pending = shell.answers[shell.join()].member_id
    join = shell.join(leader)
    assert shell.state() == "PreparingRebalance"
    match end:
        case "joins":
            shell.join(pending)
        case "leaves":
            shell.send(LeaveGroup("g", (LeavingMember(pending),)))
        case "leaves as an instance":
            shell.send(LeaveGroup("g", (LeavingMember(pending, "never heard of"),)))
        case "expires":
            shell.pass_time(10_000)
    assert shell.answers[join].generation_id == 2


@pytest.mark.parametrize("flaw", [{"protocol_type": ""}, {"protocols": ()}])
def test_vector_7_a_first_member_names_a_type_and_protocols(shell, flaw):
    """Empty; Join without type or protocols: 23."""
    refused = shell.join(requires_known_member_id=False, **flaw)
    assert code(shell, refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shell.live == {}


def test_vector_8_a_group_has_one_protocol_type(shell):
    """Type consumer; Join type connect: 23."""
    shell.stable()
    assert code(shell, shell.join(protocol_type="connect")) is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


def test_vector_9_all_members_have_a_protocol_in_common(shell):
    """A has range; B joins with roundrobin: 23, and nothing changes."""
    (leader,) = shell.stable()
    assert code(shell, shell.join(protocols=ROUND_ROBIN)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shell.state() == "Stable"
    assert list(shell.live["g"].members) == [leader]
    assert not shell.live["g"].pending_members


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_vector_10_the_session_timeout_is_bounded(shell, session_timeout_ms):
    """Session of 5999 or 1800001 ms: 26."""
    refused = shell.join(session_timeout_ms=session_timeout_ms)
    assert code(shell, refused) is ErrorCode.INVALID_SESSION_TIMEOUT


def test_vector_11_a_full_group_takes_no_one(shell):
    """Stable, 2 of at most 2; Join without an id: 81, and no id."""
    shell = Shell(GroupCoordinatorConfig(group_max_size=2))
    shell.stable(2)
    answer = shell.answers[shell.join()]
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_vector_12_a_follower_that_rejoins_unchanged_gets_the_generation_again(shell):
    """Stable; follower joins unchanged: same generation, no members; Stable."""
    _, follower = shell.stable(2)
    answer = shell.answers[shell.join(follower)]
    assert (answer.generation_id, answer.members) == (1, ())
    assert shell.state() == "Stable"


def test_vector_13_a_leader_that_rejoins_rebalances(shell):
    """Stable; leader joins unchanged: waits; Preparing."""
    leader, _ = shell.stable(2)
    assert shell.join(leader) not in shell.answers
    assert shell.state() == "PreparingRebalance"


def test_vector_14_a_follower_that_changes_rebalances(shell):
    """Stable; follower with other metadata: waits; Preparing."""
    _, follower = shell.stable(2)
    assert shell.join(follower, protocols=OTHER_METADATA) not in shell.answers
    assert shell.state() == "PreparingRebalance"


def completing(shell: Shell) -> tuple[str, str]:
    """Leader and follower of generation 1, which has no assignment yet."""
    members = [shell.new_member() for _ in range(2)]
    shell.pass_time(6_000)
    assert shell.state() == "CompletingRebalance"
    return members[0][0], members[1][0]


def test_vector_15_a_leader_that_lost_its_answer_gets_it_again(shell):
    """Completing; leader joins unchanged: the same generation with the members."""
    leader, follower = completing(shell)
    answer = shell.answers[shell.join(leader)]
    assert answer.generation_id == 1
    assert [member.member_id for member in answer.members] == [leader, follower]
    assert shell.state() == "CompletingRebalance"


def test_vector_16_a_new_member_ends_the_wait_for_an_assignment(shell):
    """Completing, Syncs wait; a new member: the Syncs get 27; Preparing."""
    _, follower = completing(shell)
    sync = shell.sync(follower, 1)
    shell.new_member()
    assert code(shell, sync) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.state() == "PreparingRebalance"


def test_vector_31_a_static_follower_that_returns_keeps_the_generation(shell):
    """Stable, follower i=m1; Join without an id, i: a new id, the same generation; Stable."""
    leader, old = stable_static(shell, "l", "i")
    answer = shell.answers[shell.join(**static("i"))]
    assert answer.error_code is ErrorCode.NONE
    assert answer.member_id not in (old, leader)
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, ())
    assert shell.state() == "Stable"
    sync = shell.sync(answer.member_id, 1, group_instance_id="i")
    assert shell.answers[sync].assignment == old.encode()


@pytest.mark.parametrize("can_skip_assignment", [True, False])
def test_vector_32_a_static_leader_that_returns_does_not_assign(shell, can_skip_assignment):
    """Stable, leader i=m1; Join: v9 leads, skips, sees the members; v5 is given the old leader."""
    old, follower = stable_static(shell, "i", "f")
    join = shell.join(**static("i", can_skip_assignment=can_skip_assignment))
    answer = shell.answers[join]
    assert answer.skip_assignment is can_skip_assignment
    if can_skip_assignment:
        assert answer.leader == answer.member_id
        assert [one.member_id for one in answer.members] == [answer.member_id, follower]
    else:
        assert (answer.leader, answer.members) == (old, ())
    assert shell.live["g"].leader == answer.member_id


def test_vector_33_the_replaced_static_member_is_fenced(shell):
    """After 31; Heartbeat (m1, i): 82, and 25 without the instance id."""
    _, old = stable_static(shell, "l", "i")
    shell.join(**static("i"))
    assert shell.ask(Heartbeat("g", 1, old, "i")).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert shell.ask(Heartbeat("g", 1, old, None)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert any("is fenced" in note for note in shell.notes)


def test_vector_34_a_static_member_that_returns_before_the_assignment_rebalances(shell):
    """Completing; Join i: the old Sync gets 82; Preparing."""
    shell.join(**static("l"))
    join = shell.join(**static("i"))
    shell.pass_time(6_000)
    sync = shell.sync(shell.answers[join].member_id, 1, group_instance_id="i")
    again = shell.join(**static("i"))
    assert code(shell, sync) is ErrorCode.FENCED_INSTANCE_ID
    assert again not in shell.answers
    assert shell.state() == "PreparingRebalance"


def test_a_static_member_that_returns_while_it_waits_in_join_fences_itself(shell):
    """Preparing; Join i twice: the first gets 82, the second waits."""
    first, second = shell.join(**static("i")), shell.join(**static("i"))
    assert code(shell, first) is ErrorCode.FENCED_INSTANCE_ID
    assert second not in shell.answers


def test_vector_35_an_absent_static_member_is_kept(shell):
    """Preparing, static absent, timer: kept; Completing."""
    leader, absent = stable_static(shell, "l", "i")
    join = shell.join(leader, **static("l"), session_timeout_ms=1_800_000)
    shell.live["g"].members[absent].session_deadline_ms = 10**9
    shell.pass_time(60_000)
    assert [one.member_id for one in shell.answers[join].members] == [leader, absent]
    assert shell.state() == "CompletingRebalance"


def test_a_static_member_whose_choice_of_protocol_changes_rebalances(shell):
    """Stable; Join i with protocols of which another one is chosen: waits; Preparing."""
    both = (RANGE[0], ("sticky", b""))
    joins = [shell.join(**static(name, protocols=both)) for name in ("l", "i")]
    shell.pass_time(6_000)
    leader = shell.answers[joins[0]].member_id
    shell.sync(leader, 1, group_instance_id="l")
    assert shell.live["g"].protocol_name == "range"
    join = shell.join(**static("i", protocols=(("sticky", b""),)))
    assert join not in shell.answers
    assert shell.state() == "PreparingRebalance"


def test_a_new_static_id_that_could_not_be_stored_is_taken_back(shell):
    """Stable; Join i, its record is refused: an error, and the old member goes on."""
    _, old = stable_static(shell, "l", "i")
    shell.holds_appends = True
    join = shell.join(**static("i"))
    shell.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code(shell, join) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.ask(Heartbeat("g", 1, old, "i")).error_code is ErrorCode.NONE


def test_a_rebalance_while_a_static_id_is_stored_keeps_its_join_waiting(shell):
    """Stable; Join i, and the leader rejoins before the record is committed: both end up in generation 2."""
    leader, _ = stable_static(shell, "l", "i")
    shell.holds_appends = True
    join = shell.join(**static("i"))
    again = shell.join(leader, **static("l"))
    shell.commit_all()
    assert shell.answers[join].generation_id == shell.answers[again].generation_id == 2


def test_a_protocol_is_chosen_by_votes_and_the_leader_decides_a_tie(shell):
    """Each votes for its first of the protocols that all have; on a tie it is the leader's first."""
    a, b, c = ("a", b""), ("b", b""), ("c", b"")
    for preferences, chosen in (
        (((a, b, c), (b, a), (b, a)), "b"),
        (((b, a, c), (a, b)), "b"),
        (((c, a, b), (a, b), (b, a)), "a"),
    ):
        fresh = Shell()
        joins = [fresh.new_member(protocols=one)[1] for one in preferences]
        fresh.pass_time(6_000)
        assert {fresh.answers[join].protocol_name for join in joins} == {chosen}


def test_absent_static_members_with_a_tiny_timeout_do_not_keep_the_timer_busy(shell):
    """Preparing, only static members, none of which waits, rebalance timeout 1 ms: the timer is set a second ahead."""
    patient = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1}
    shell = Shell(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0))
    join = shell.join(**static("i", **patient))
    shell.pass_time(0)
    member_id = shell.answers[join].member_id
    shell.sync(member_id, 1, group_instance_id="i")
    shell.new_member()
    (dynamic,) = [one for one in shell.live["g"].members if one != member_id]
    shell.send(LeaveGroup("g", (LeavingMember(dynamic),)))
    assert shell.state() == "PreparingRebalance"
    fired = 0
    step = shell.coordinator.step

    def count(event, now):
        nonlocal fired
        fired += isinstance(event, TimerFired)
        assert fired <= 30, "the timer fires again and again"
        return step(event, now)

    shell.coordinator.step = count
    shell.pass_time(80_000)  # the join phase began with the timeout of the dynamic member, a minute
    assert fired > 10


def test_a_static_member_that_returns_in_its_first_join_waits_as_long_as_any(shell):
    """Preparing; a new static member joins twice; a slow member holds up the group for longer than its session."""
    shell.stable(session_timeout_ms=30_000, rebalance_timeout_ms=30_000)
    first, second = shell.join(**static("i")), shell.join(**static("i"))
    assert code(shell, first) is ErrorCode.FENCED_INSTANCE_ID
    shell.pass_time(29_000)  # nearly three of its sessions
    assert second not in shell.answers
    shell.pass_time(32_000)
    assert code(shell, second) is ErrorCode.NONE


def test_a_long_reason_is_cut_in_the_log(shell):
    """The reason of a join or leave comes from the client: a log line quotes its beginning, in one line."""
    shell.join(requires_known_member_id=False, reason="x\n" * 100_000)
    assert max(map(len, shell.notes)) < 1_000
    assert "\n" not in "".join(shell.notes)
