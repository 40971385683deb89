"""Bounds on what clients can make a coordinator hold, and on what it does in one step."""

from __future__ import annotations

import pytest

from coordinators.groups.config import GroupConfig
from coordinators.groups.effects import Append
from coordinators.groups.requests import (
    CommittedPartition,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
)
from protocol.errors import ErrorCode
from tests.coordinators.groups.shell import RANGE, Shell

LONG = "x" * 1_025
DAY_MS = 24 * 3_600_000


def refused(shell: Shell, **fields) -> ErrorCode:
    """The code of a JoinGroup that is answered at once."""
    return shell.answers[shell.join(**fields)].error_code


def commit(shell: Shell, group_id: str, *places: tuple[str, int]) -> tuple[ErrorCode, ...]:
    partitions = tuple(CommittedPartition(topic, partition, 1) for topic, partition in places)
    return shell.ask(OffsetCommit(group_id, -1, "", None, partitions)).error_codes


@pytest.mark.parametrize(
    ("fields", "answered"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"client_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocols": ((LONG, b""),)}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (("p", bytes(2 << 20)),)}, ErrorCode.INVALID_REQUEST),
        ({"protocols": tuple((str(n), b"") for n in range(21))}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_join_that_is_too_large_is_refused(fields, answered):
    """Ids, names and metadata are held and stored; nothing is held of a refused one."""
    shell = Shell()
    assert refused(shell, **fields) is answered
    assert shell.live == {}


def test_ids_that_are_handed_out_are_bounded():
    """A client that only ever asks for ids gets as many as the group may have members; they expire."""
    shell = Shell(GroupConfig(group_max_size=3))
    codes = [refused(shell) for _ in range(5)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    shell.pass_time(10_000)
    assert shell.coordinator.member_count == 0
    assert refused(shell) is ErrorCode.MEMBER_ID_REQUIRED


def test_members_of_all_groups_together_are_bounded():
    """Many groups of few members each are no way around the bound; members that leave make room."""
    shell = Shell(GroupConfig(members_max=2))
    for group_id in ("a", "b"):
        shell.join(group_id=group_id, requires_known_member_id=False)
    assert refused(shell, group_id="c") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "c" not in shell.live
    (member_id,) = shell.live["a"].members
    shell.send(LeaveGroup("a", (LeavingMember(member_id),)))
    assert refused(shell, group_id="c") is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    "config", [GroupConfig(group_bytes_max=250), GroupConfig(bytes_max=250)], ids=["group", "all"]
)
def test_metadata_of_all_members_together_is_bounded(config):
    """Metadata that a member replaces counts once; one more member of the same size does not fit."""
    shell = Shell(config)
    large = {"protocols": (("range", bytes(200)),), "requires_known_member_id": False}
    join = shell.join(**large)
    shell.pass_time(6_000)
    member_id = shell.answers[join].member_id
    assert refused(shell, **large) is ErrorCode.GROUP_MAX_SIZE_REACHED
    other = (("range", b"x" * 200),)
    assert refused(shell, member_id=member_id, protocols=other) is ErrorCode.NONE
    larger = (("range", bytes(260)),)
    assert refused(shell, member_id=member_id, protocols=larger) is (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )


def test_groups_are_bounded():
    """One that exists is served; a new one is refused, by Join and by Commit."""
    shell = Shell(GroupConfig(groups_max=2))
    assert commit(shell, "a", ("t", 0)) == commit(shell, "b", ("t", 0)) == (ErrorCode.NONE,)
    assert commit(shell, "c", ("t", 0)) == (ErrorCode.POLICY_VIOLATION,)
    assert refused(shell, group_id="c") is ErrorCode.POLICY_VIOLATION
    assert commit(shell, "a", ("t", 1)) == (ErrorCode.NONE,)
    shell.load()
    assert commit(shell, "c", ("t", 0)) == (ErrorCode.POLICY_VIOLATION,)


def test_reads_and_refused_requests_make_no_group():
    """A scan of random group ids leaves nothing in memory."""
    shell = Shell()
    for number in range(100):
        shell.ask(OffsetFetch(f"g{number}", None))
        shell.sync("x", 1)
        assert refused(shell, group_id=f"g{number}", protocols=()) is (
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        )
    assert shell.live == {}


def test_an_assignment_that_is_too_large_is_not_stored():
    """Refused before it is packed: -1, and the group rebalances."""
    shell = Shell(GroupConfig(group_bytes_max=1_000))
    member_id, _ = shell.new_member()
    shell.pass_time(6_000)
    sync = shell.sync(member_id, 1, assignments=((member_id, bytes(1_000)),))
    assert shell.answers[sync].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert shell.state() == "PreparingRebalance"


def test_expiry_and_forgetting_go_in_slices():
    """No item of the walk removes more than 1,000 offsets, and every one of them is removed."""
    shell = Shell()
    for topic in ("t", "u"):
        places = [(topic, partition) for partition in range(2_500)]
        commit(shell, "g", *places)
    commit(shell, "h", ("t", 0))
    sizes = []
    for effects in shell.coordinator.forget_topic("t", shell.now):
        sizes.append(sum(len(one.records) for one in effects if isinstance(one, Append)))
        shell.perform(effects)
    assert sizes == [1_000, 1_000, 500, 1]
    shell.wall_skew_ms = 8 * DAY_MS
    sizes = []
    for effects in shell.coordinator.expire_offsets(shell.now):
        sizes.append(sum(len(one.records) for one in effects if isinstance(one, Append)))
        shell.perform(effects)
    assert max(sizes) == 1_000
    assert shell.coordinator._groups.durable.groups == {}
    assert shell.live == {}


def test_steps_between_the_slices_of_an_expiry_are_seen():
    """An offset that is committed again while the walk goes on is not removed."""
    shell = Shell()
    places = [("t", partition) for partition in range(2_500)]
    commit(shell, "g", *places)
    shell.wall_skew_ms = 8 * DAY_MS
    walk = shell.coordinator.expire_offsets(shell.now)
    shell.perform(next(walk))
    commit(shell, "g", ("t", 2_400))
    for effects in walk:
        shell.perform(effects)
    (left,) = shell.ask(OffsetFetch("g", None)).partitions
    assert left.partition == 2_400


def test_protocols_that_are_named_twice_count_once():
    """A member with the same name twice does not stand for two supporters."""
    shell = Shell()
    twice = (RANGE[0], ("range", b"other"))
    first = shell.join(requires_known_member_id=False, protocols=twice)
    second = shell.join(requires_known_member_id=False)
    shell.pass_time(6_000)
    assert shell.answers[first].protocol_name == shell.answers[second].protocol_name == "range"
    assert shell.answers[first].members[0].metadata == RANGE[0][1]
