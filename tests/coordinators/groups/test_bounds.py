"""Bounds on what clients can make a coordinator hold, and on what it does in one step."""

from __future__ import annotations

import pytest

from echoless.coordinators.effects import AppendRecords
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.coordinator import GroupCoordinator
from echoless.coordinators.groups.deleted_topic import DeletedTopic
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    DeleteGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from echoless.coordinators.groups.usage import total
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.consumers import GROUP, ConsumerShell
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
    shell = Shell(GroupCoordinatorConfig(group_max_size=3))
    codes = [refused(shell) for _ in range(5)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    shell.pass_time(10_000)
    assert shell.coordinator.member_count == 0
    assert refused(shell) is ErrorCode.MEMBER_ID_REQUIRED


def test_members_of_all_groups_together_are_bounded():
    """Many groups of few members each are no way around the bound; members that leave make room."""
    shell = Shell(GroupCoordinatorConfig(members_max=2))
    for group_id in ("a", "b"):
        shell.join(group_id=group_id, requires_known_member_id=False)
    assert refused(shell, group_id="c") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "c" not in shell.live
    (member_id,) = shell.live["a"].members
    shell.send(LeaveGroup("a", (LeavingMember(member_id),)))
    assert refused(shell, group_id="c") is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    "config",
    [GroupCoordinatorConfig(group_bytes_max=250), GroupCoordinatorConfig(bytes_max=250)],
    ids=["group", "all"],
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


def test_subscriptions_of_the_consumer_protocol_are_bounded():
    """Names take memory besides their characters; those that a member changes later count as well."""
    shell = ConsumerShell(GroupCoordinatorConfig(bytes_max=20_000))
    names = tuple(f"{n:04}" for n in range(1_000))
    assert shell.code("m1", 0, topics=names) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.code("m1", 0, topics=("t",)) is ErrorCode.NONE
    assert shell.code("m1", 1, topics=names) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.code("m1", 1, topics=("u",)) is ErrorCode.NONE
    assert shell.describe().members[0].value.topic_names == ("u",)


def batch_sizes(shell: Shell) -> list[int]:
    """The sizes of the appends from now on; each is committed."""
    sizes = []
    while shell.held:
        records = shell.held[0].records
        sizes.append(sum(len(key) + len(value or b"") for key, value in records))
        shell.commit()
    return sizes


def test_the_names_that_a_group_subscribes_to_are_bounded_together() -> None:
    """Each counts once, however many members name it, and is free again when the last of them has left."""
    shell = ConsumerShell(GroupCoordinatorConfig(group_topics_max=3))
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.code("m1", 0, topics=("a", "b")) == ErrorCode.NONE
    assert shell.code("m2", 0, topics=("c", "d")) == full
    assert shell.code("m2", 0, topics=("a", "b", "c")) == ErrorCode.NONE
    epochs = shell.settle("m1", "m2")
    assert shell.code("m1", epochs["m1"], topics=("a", "e")) == full
    assert shell.code("m2", -1) == ErrorCode.NONE
    assert shell.code("m1", epochs["m1"], topics=("a", "e")) == ErrorCode.NONE


def test_members_that_join_at_once_are_stored_in_batches():
    """Their subscriptions together would not fit one: it would be refused, whenever they try."""
    shell = ConsumerShell()
    shell.holds_appends = True
    names = tuple(f"{n:030}" for n in range(1_000))
    for n in range(60):
        shell.send(shell.heartbeat_request(f"m{n}", 0, topics=names))
    assert max(batch_sizes(shell)) < 1 << 19
    assert shell.coordinator.member_count == 60


def test_members_whose_sessions_end_at_once_are_removed_in_batches():
    """After a coordinator has moved, say."""
    shell = ConsumerShell()
    for n in range(200):
        shell.beat(f"{n:0600}", 0, topics=("none",))
    shell.pass_time(40_000)
    shell.load()
    shell.holds_appends = True
    shell.pass_time(45_000)
    assert max(batch_sizes(shell)) < 1 << 18
    assert shell.describe().state == "Empty"


def test_a_change_that_does_not_fit_a_batch_is_refused_with_the_remedy():
    shell = ConsumerShell()
    shell.holds_appends = True
    reply = shell.send(shell.heartbeat_request("m1", 0))
    shell.refuse(ErrorCode.MESSAGE_TOO_LARGE)
    assert "max.message.bytes of __consumer_offsets" in shell.answers[reply].message
    assert any("max.message.bytes" in note and GROUP in note for note in shell.notes)


def test_groups_are_bounded():
    """One that exists is served; a new one is refused, by Join and by Commit."""
    shell = Shell(GroupCoordinatorConfig(groups_max=2))
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


@pytest.mark.parametrize(
    "config",
    [GroupCoordinatorConfig(group_bytes_max=1_000), GroupCoordinatorConfig(bytes_max=1_000)],
    ids=["group", "all"],
)
def test_an_assignment_that_is_too_large_is_not_stored(config):
    """Refused before it is packed, and the group rebalances."""
    shell = Shell(config)
    member_id, _ = shell.new_member()
    shell.pass_time(6_000)
    sync = shell.sync(member_id, 1, assignments=((member_id, bytes(1_000)),))
    assert shell.answers[sync].error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.state() == "PreparingRebalance"


def assign(shell: Shell, group_id: str, size: int) -> tuple[str, ErrorCode]:
    """Makes a group of one member, which assigns itself so many bytes: its id, and the code of its SyncGroup."""
    join = shell.join(group_id=group_id, requires_known_member_id=False, protocols=(("p", b""),))
    shell.pass_time(6_000)
    member_id = shell.answers[join].member_id
    given = ((member_id, bytes(size)),)
    answer = shell.ask(SyncGroup(group_id, 1, member_id, None, given))
    return member_id, answer.error_code


def test_assignments_of_all_groups_together_are_bounded():
    """Those in the log are loaded even if they are too many, and count; a member that leaves makes room."""
    shell = Shell(GroupCoordinatorConfig(bytes_max=1_000))
    leader, code = assign(shell, "a", 900)
    assert code is ErrorCode.NONE
    assert assign(shell, "b", 900)[1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    shell.config = GroupCoordinatorConfig(bytes_max=500)
    shell.load()
    assert leader in shell.live["a"].members
    assert refused(shell, group_id="c", requires_known_member_id=False) is (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    shell.send(LeaveGroup("a", (LeavingMember(leader),)))
    assert assign(shell, "d", 400)[1] is ErrorCode.NONE


def commit_metadata(shell: Shell, partition: int, metadata: str) -> ErrorCode:
    partitions = (CommittedPartition("t", partition, 1, -1, metadata),)
    (code,) = shell.ask(OffsetCommit("g", -1, "", None, partitions)).error_codes
    return code


def test_the_metadata_of_all_offsets_together_is_bounded():
    """Metadata that is replaced makes room for the new, and an offset without metadata is always taken."""
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=1_000))
    assert commit_metadata(shell, 0, "x" * 900) is ErrorCode.NONE
    assert commit_metadata(shell, 1, "x" * 900) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit_metadata(shell, 0, "y" * 1_000) is ErrorCode.NONE
    shell.config = GroupCoordinatorConfig(metadata_bytes_max=500)
    shell.load()
    assert commit_metadata(shell, 1, "x") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit_metadata(shell, 1, "") is ErrorCode.NONE
    assert commit_metadata(shell, 0, "z" * 900) is ErrorCode.NONE
    assert commit_metadata(shell, 0, "é" * 100) is ErrorCode.NONE
    assert commit_metadata(shell, 1, "x" * 101) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    shell.ask(DeleteGroup("g"))
    assert commit_metadata(shell, 1, "x" * 500) is ErrorCode.NONE


def test_what_is_being_stored_counts():
    """Commits that are not committed yet, as while followers are slow, are held like those that are."""
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=1_000))
    shell.holds_appends = True
    partitions = (CommittedPartition("t", 0, 1, -1, "x" * 900),)
    first, second = (shell.send(OffsetCommit(one, -1, "", None, partitions)) for one in "ab")
    assert first not in shell.answers
    assert shell.answers[second].error_codes == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    shell.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    shell.holds_appends = False
    assert shell.ask(OffsetCommit("b", -1, "", None, partitions)).error_codes == (ErrorCode.NONE,)


@pytest.mark.parametrize(
    "config",
    [
        GroupCoordinatorConfig(groups_max=1),
        GroupCoordinatorConfig(members_max=1),
        GroupCoordinatorConfig(bytes_max=20),
    ],
    ids=["groups", "members", "bytes"],
)
def test_the_coordinators_of_a_broker_share_the_bounds(config):
    """More partitions of `__consumer_offsets` do not let clients make a broker hold more."""
    shells = [Shell(config), Shell(config)]
    for shell in shells:
        shell.coordinator = GroupCoordinator(
            config, lambda: total([one.coordinator.usage for one in shells])
        )
    join = shells[0].join(requires_known_member_id=False)
    assert join not in shells[0].answers
    code = refused(shells[1], group_id="h", requires_known_member_id=False)
    assert code in (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.POLICY_VIOLATION)


def test_expiry_and_forgetting_go_in_slices():
    """No item of the walk removes more than 1,000 offsets, and every one of them is removed."""
    shell = Shell()
    for topic in ("t", "u"):
        places = [(topic, partition) for partition in range(2_500)]
        commit(shell, "g", *places)
    commit(shell, "h", ("t", 0))
    topic = DeletedTopic("t", shell.now.wall_ms)
    sizes = []
    for effects in shell.coordinator.forget_topic(topic):
        sizes.append(sum(len(one.records) for one in effects if isinstance(one, AppendRecords)))
        shell.perform(effects)
    assert sizes == [1_000, 1_000, 500, 1]
    shell.wall_skew_ms = 8 * DAY_MS
    sizes = []
    for effects in shell.coordinator.expire_offsets(shell.now):
        sizes.append(sum(len(one.records) for one in effects if isinstance(one, AppendRecords)))
        shell.perform(effects)
    assert max(sizes) == 1_000
    assert shell.coordinator._store.durable.groups == {}
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


def test_log_lines_show_the_ends_of_long_names() -> None:
    """A name of a thousand characters in every line of a rebalance would fill the disk."""
    shell = Shell()
    name = "x" * 980
    member_id, _ = shell.new_member(group_id=name, client_id=name)
    shell.expire()
    noted = "".join(shell.notes)
    assert name[:80] in noted
    assert member_id[-36:] in noted
    assert max(map(len, shell.notes)) < 400
