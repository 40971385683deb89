"""The test vectors 36 to 48 of the groups specification: offsets, deletions and expiry."""

from __future__ import annotations

import pytest

from echoless.coordinators.effects import StateRecord
from echoless.coordinators.events import AppendCommitted, AppendFailed
from echoless.coordinators.groups.answers import NO_OFFSET
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.prepared_commit import prepare
from echoless.coordinators.groups.requests import (
    NO_RETENTION,
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.records import iterate_records
from echoless.protocol.state_records.group_keys import write_group_key
from tests.coordinators.groups.shell import Shell

DAY_MS = 24 * 3_600_000
STORE_FAILURES = [
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
]


@pytest.fixture
def shell():
    return Shell()


def commit_request(offset: int = 5, **fields) -> OffsetCommit:
    given = {
        "group_id": "g",
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "partitions": (CommittedPartition("t", 0, offset, 3, "m"),),
    }
    return OffsetCommit(**(given | fields))


def commit(shell: Shell, offset: int = 5, **fields) -> ErrorCode:
    (code,) = shell.ask(commit_request(offset, **fields)).error_codes
    return code


def fetched(shell: Shell, **fields) -> dict:
    """Offset or error by topic and partition, of all offsets of group g."""
    answer = shell.ask(OffsetFetch("g", **({"partitions": None} | fields)))
    assert answer.error_code is ErrorCode.NONE
    return {(row.topic, row.partition): row.error_code or row.offset for row in answer.partitions}


def test_vector_36_anyone_may_commit_to_a_group_without_members(shell):
    """No group; Commit of generation -1: 0; a simple group, Empty."""
    assert commit(shell) is ErrorCode.NONE
    described = shell.ask(DescribeGroup("g"))
    assert (described.state, described.protocol_type) == ("Empty", "")
    (row,) = shell.ask(OffsetFetch("g", (("t", 0),))).partitions
    assert row[:5] == ("t", 0, 5, 3, "m")
    shell.load()
    assert fetched(shell) == {("t", 0): 5}


@pytest.mark.parametrize(
    ("knows", "answered"),
    [(False, ErrorCode.ILLEGAL_GENERATION), (True, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_vector_37_a_member_of_no_group_may_not_commit(shell, knows, answered):
    """No group; Commit of generation 3: 22, from version 9 on 69; no group is made."""
    assert commit(shell, generation_id=3, knows_missing_groups=knows) is answered
    assert shell.live == {}


def test_vector_38_a_stranger_may_not_commit_to_a_group_with_members(shell):
    """Stable; Commit of generation -1, no id: 25, in every state with members."""
    (leader,) = shell.stable()
    assert commit(shell) is ErrorCode.UNKNOWN_MEMBER_ID
    shell.join(leader)
    assert shell.state() == "CompletingRebalance"
    assert commit(shell) is ErrorCode.UNKNOWN_MEMBER_ID
    shell.new_member()
    assert shell.state() == "PreparingRebalance"
    assert commit(shell) is ErrorCode.UNKNOWN_MEMBER_ID


def test_vector_39_without_a_generation_an_empty_group_asks_for_no_member(shell):
    """Empty; Commit of generation -1, id x, instance i: 0; with a generation 25."""
    (leader,) = shell.stable()
    shell.send(LeaveGroup("g", (LeavingMember(leader),)))
    assert commit(shell, member_id="x", group_instance_id="i") is ErrorCode.NONE
    assert commit(shell, member_id=leader, generation_id=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_vector_40_no_commits_between_join_and_sync(shell):
    """Completing; Commit right: 27; older generation: 22; other id: 25."""
    member_id, _ = shell.new_member()
    shell.pass_time(6_000)
    assert shell.state() == "CompletingRebalance"
    right = {"member_id": member_id, "generation_id": 1}
    assert commit(shell, **right) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(shell, **(right | {"generation_id": 0})) is ErrorCode.ILLEGAL_GENERATION
    assert commit(shell, **(right | {"member_id": "x"})) is ErrorCode.UNKNOWN_MEMBER_ID


def test_vector_41_members_commit_before_they_rejoin(shell):
    """Preparing; Commit right: 0, and the session is reset."""
    leader, follower = shell.stable(2)
    shell.join(leader)
    for offset in range(3):
        shell.pass_time(9_000)
        right = {"member_id": follower, "generation_id": 1}
        assert commit(shell, offset, **right) is ErrorCode.NONE
    assert fetched(shell) == {("t", 0): 2}


def test_h4_a_member_of_an_older_generation_commits_nothing(shell):
    """A commit that was delayed over a rebalance: 22, also once the group is stable again."""
    (leader,) = shell.stable()
    shell.join(leader)
    shell.sync(leader, 2)
    late = {"member_id": leader, "generation_id": 1}
    assert commit(shell, **late) is ErrorCode.ILLEGAL_GENERATION
    assert fetched(shell) == {}


def test_a_member_that_was_not_given_a_generation_commits_nothing(shell):
    """It waits in Join; Commit or Heartbeat with the generation of the others: 22."""
    shell.stable()
    new, _ = shell.new_member()
    right = {"member_id": new, "generation_id": 1}
    assert commit(shell, **right) is ErrorCode.ILLEGAL_GENERATION
    heartbeat = shell.ask(Heartbeat("g", 1, new, None))
    assert heartbeat.error_code is ErrorCode.ILLEGAL_GENERATION


def test_vector_42_metadata_that_is_too_long_fails_its_partition_alone(shell):
    """Commit p0 with 4097 characters, p1 fine: 12, 0; characters count, not bytes."""
    partitions = (
        CommittedPartition("t", 0, 1, metadata="x" * 4_097),
        CommittedPartition("t", 1, 2, metadata="é" * 4_096),
    )
    answer = shell.ask(commit_request(partitions=partitions))
    assert answer.error_codes == (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert fetched(shell) == {("t", 1): 2}
    answer = shell.ask(commit_request(partitions=partitions[:1]))
    assert answer.error_codes == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)


def test_metadata_that_no_record_can_hold_is_refused():
    """Whatever `offset.metadata.max.bytes` says: a string of a record has at most 32,767 bytes."""
    shell = Shell(GroupCoordinatorConfig(offset_metadata_max_bytes=100_000))
    for metadata, answered in (
        ("é" * 16_383, ErrorCode.NONE),
        ("é" * 16_384, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ):
        rows = (CommittedPartition("t", 0, 1, metadata=metadata),)
        assert commit(shell, partitions=rows) is answered


def test_vector_43_an_unknown_group_has_no_offsets_and_no_error(shell):
    """Unknown group; Fetch: -1, no metadata, 0; no group is made."""
    (row,) = shell.ask(OffsetFetch("g", (("t", 0),))).partitions
    assert (row.offset, row.leader_epoch, row.metadata, row.error_code) == (
        NO_OFFSET,
        -1,
        "",
        ErrorCode.NONE,
    )
    assert shell.live == {}


def test_vector_44_an_offset_that_is_being_replaced_is_not_stable(shell):
    """A commit is under way; Fetch stable: 88; not stable: the last committed one."""
    commit(shell, 5)
    shell.holds_appends = True
    shell.send(commit_request(6))
    assert fetched(shell) == {("t", 0): 5}
    unstable = {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert fetched(shell, require_stable=True) == unstable
    assert fetched(shell, require_stable=True, partitions=(("t", 0), ("t", 1))) == (
        unstable | {("t", 1): NO_OFFSET}
    )
    shell.commit_all()
    assert fetched(shell, require_stable=True) == {("t", 0): 6}


def test_vector_45_offsets_in_use_are_not_deleted(shell):
    """Stable on t; OffsetDelete t, u: 86, 0; the same for a partition without an offset."""
    (leader,) = shell.stable()
    partitions = (CommittedPartition("t", 0, 1), CommittedPartition("u", 0, 2))
    shell.ask(commit_request(member_id=leader, generation_id=1, partitions=partitions))
    answer = shell.ask(OffsetDelete("g", (("t", 0), ("u", 0), ("u", 9))))
    assert answer.error_codes == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    )
    assert fetched(shell) == {("t", 0): 1}


@pytest.mark.parametrize(
    ("fields", "answered"),
    [
        ({"protocol_type": "connect"}, ErrorCode.NON_EMPTY_GROUP),
        ({"protocols": (("stream", b"?"),)}, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    ],
)
def test_offsets_of_members_whose_topics_are_unknown_are_not_deleted(shell, fields, answered):
    """Another protocol type: 68; subscriptions that cannot be read: 86 for every topic."""
    shell.stable(**fields)
    answer = shell.ask(OffsetDelete("g", (("u", 0),)))
    assert answered in (answer.error_code, *answer.error_codes)


def test_offsets_of_no_group_are_not_deleted(shell):
    """No group; OffsetDelete: 69."""
    answer = shell.ask(OffsetDelete("g", (("u", 0),)))
    assert (answer.error_code, answer.error_codes) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


def test_vector_46_only_groups_without_members_are_deleted(shell):
    """DeleteGroups Stable: 68; Empty: 0; none: 69."""
    (leader,) = shell.stable()
    commit(shell, member_id=leader, generation_id=1)
    assert shell.ask(DeleteGroup("g")).error_code is ErrorCode.NON_EMPTY_GROUP
    shell.send(LeaveGroup("g", (LeavingMember(leader),)))
    assert shell.ask(DeleteGroup("g")).error_code is ErrorCode.NONE
    assert fetched(shell) == {}
    assert shell.ask(DeleteGroup("g")).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    shell.load()
    assert shell.ask(DescribeGroup("g")).state == "Dead"


def test_a_group_with_many_offsets_is_deleted_in_batches_that_fit(shell):
    """Tombstones go 1,000 at a time, those of commits under way included; meanwhile the group is Dead."""
    for topic in ("t", "u", "v"):
        partitions = tuple(CommittedPartition(topic, index, 1) for index in range(800))
        shell.ask(commit_request(partitions=partitions))
    shell.holds_appends = True
    shell.send(commit_request(partitions=(CommittedPartition("w", 0, 1),)))
    reply_id = shell.send(DeleteGroup("g"))
    assert commit(shell) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    sizes = []
    while shell.held:
        assert reply_id not in shell.answers
        sizes.append(len(shell.held[0].records))
        shell.commit()
    assert sizes == [1, 1_000, 1_000, 401]
    assert shell.answers[reply_id].error_code is ErrorCode.NONE
    assert fetched(shell) == {}
    assert shell.live == {}


def test_a_commit_under_way_goes_with_its_group(shell):
    """DeleteGroup right after the first commit to a group: once both are committed, nothing is left."""
    shell.holds_appends = True
    shell.send(commit_request(6))
    reply_id = shell.send(DeleteGroup("g"))
    assert reply_id not in shell.answers
    shell.commit_all()
    assert shell.answers[reply_id].error_code is ErrorCode.NONE
    assert fetched(shell) == {}
    assert shell.live == {}


def test_a_deletion_that_is_not_stored_leaves_the_group(shell):
    """The tombstones are refused: an error, and the group is as before."""
    commit(shell, 5)
    shell.holds_appends = True
    reply_id = shell.send(DeleteGroup("g"))
    shell.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.answers[reply_id].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.holds_appends = False
    assert commit(shell, 6) is ErrorCode.NONE
    assert fetched(shell) == {("t", 0): 6}


def test_vector_47_a_group_without_members_loses_its_offsets_in_the_end(shell):
    """Empty for 7 days: offsets and group are gone, from the log too; a moment earlier they are there."""
    (leader,) = shell.stable()
    commit(shell, member_id=leader, generation_id=1)
    shell.pass_time(20_000)  # its session ends after ten seconds
    ended = shell.coordinator._store.durable.groups["g"].value.state_timestamp
    shell.wall_skew_ms += ended + 7 * DAY_MS - 1 - shell.now.wall_ms
    shell.expire()
    assert fetched(shell) == {("t", 0): 5}
    shell.ms += 1
    shell.expire()
    assert fetched(shell) == {}
    assert shell.coordinator._store.durable.groups == {}
    assert shell.log[-1] == (write_group_key("g"), None)
    assert any("older than the retention time" in note for note in shell.notes)


def test_vector_48_a_topic_that_no_one_subscribes_to_expires_by_its_commits(shell):
    """Stable on t; u committed 8 days ago: u goes, t stays."""
    (leader,) = shell.stable(session_timeout_ms=1_800_000)
    partitions = (CommittedPartition("t", 0, 1), CommittedPartition("u", 0, 2))
    shell.ask(commit_request(member_id=leader, generation_id=1, partitions=partitions))
    shell.wall_skew_ms = 8 * DAY_MS
    shell.expire()
    assert fetched(shell) == {("t", 0): 1}


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": (("x", b""),)}])
def test_offsets_of_members_whose_topics_are_unknown_never_expire(shell, fields):
    """Another protocol type, or subscriptions that cannot be read."""
    (leader,) = shell.stable(**fields)
    commit(shell, member_id=leader, generation_id=1)
    shell.wall_skew_ms = 80 * DAY_MS
    shell.expire()
    assert fetched(shell) == {("t", 0): 5}


def test_no_offset_expires_during_a_rebalance(shell):
    """Preparing and Completing: never."""
    leader, follower = shell.stable(2)
    commit(shell, member_id=leader, generation_id=1)
    shell.wall_skew_ms = 80 * DAY_MS
    shell.join(leader)
    shell.expire()
    shell.join(follower)
    assert shell.state() == "CompletingRebalance"
    shell.expire()
    assert fetched(shell) == {("t", 0): 5}


def test_offsets_of_simple_groups_expire_by_their_commits(shell):
    """No protocol ever: each offset by its own time; one that is being committed again does not."""
    commit(shell, 5)
    shell.wall_skew_ms = 6 * DAY_MS
    commit(shell, 6, partitions=(CommittedPartition("t", 1, 6),))
    shell.wall_skew_ms = 8 * DAY_MS
    shell.holds_appends = True
    shell.send(commit_request(7))
    shell.expire()
    shell.commit_all()
    assert fetched(shell) == {("t", 0): 7, ("t", 1): 6}
    shell.wall_skew_ms = 20 * DAY_MS
    shell.expire()
    shell.commit_all()
    assert shell.coordinator._store.durable.groups == {}


def test_a_client_that_asks_for_a_retention_time_has_it(shell):
    """OffsetCommit v2 to v4: the offset expires at its own time, but not while its topic is subscribed to."""
    (leader,) = shell.stable()
    right = {"member_id": leader, "generation_id": 1}
    assert commit(shell, retention_time_ms=1_000, **right) is ErrorCode.NONE
    shell.wall_skew_ms = 999
    shell.expire()
    assert fetched(shell) == {("t", 0): 5}
    shell.load()
    shell.wall_skew_ms = 1_000
    shell.expire()
    assert fetched(shell) == {("t", 0): 5}
    shell.pass_time(20_000)
    shell.expire()
    assert fetched(shell) == {}


def test_the_offsets_of_a_deleted_topic_go_with_it(shell):
    """In every group, whatever its state."""
    (leader,) = shell.stable()
    partitions = (CommittedPartition("t", 0, 1), CommittedPartition("u", 0, 2))
    shell.ask(commit_request(member_id=leader, generation_id=1, partitions=partitions))
    shell.ask(commit_request(group_id="h", partitions=partitions[:1]))
    shell.forget("t")
    assert fetched(shell) == {("u", 0): 2}
    assert shell.ask(DescribeGroup("h")).state == "Dead"
    assert shell.ask(Heartbeat("g", 1, leader, None)).error_code is ErrorCode.NONE


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_commit_to_a_topic_that_was_created_again_stays(shell, is_stored):
    """The walk comes to a group late: what was committed since the deletion is of the new topic, stored or not yet."""
    commit(shell, 5)
    deleted_ms = shell.now.wall_ms
    shell.pass_time(1)
    shell.holds_appends = not is_stored
    reply_id = shell.send(commit_request(7))
    topic = shell.forget("t", deleted_ms)
    shell.holds_appends = False
    shell.commit_all()
    assert shell.answers[reply_id].error_codes == (ErrorCode.NONE,)
    assert fetched(shell) == {("t", 0): 7}
    shell.go_on_forgetting(topic)
    assert topic.is_forgotten
    assert fetched(shell) == {("t", 0): 7}


def test_a_commit_that_is_under_way_when_its_topic_is_deleted_is_forgotten(shell):
    """A topic that is created again would be read from that offset, and its records before it skipped."""
    shell.holds_appends = True
    shell.send(commit_request(5))
    topic = shell.forget("t")
    assert not topic.is_forgotten
    shell.holds_appends = False
    shell.commit_all()
    shell.go_on_forgetting(topic)
    assert fetched(shell) == {}
    shell.go_on_forgetting(topic)
    assert topic.is_forgotten


def test_offsets_whose_tombstones_fail_are_removed_again(shell):
    """A failed tombstone does not keep the offsets of a deleted topic for ever."""
    commit(shell, 5)
    shell.holds_appends = True
    topic = shell.forget("t")
    shell.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert fetched(shell) == {("t", 0): 5}
    assert not topic.is_forgotten
    shell.holds_appends = False
    shell.go_on_forgetting(topic)
    assert fetched(shell) == {}
    shell.go_on_forgetting(topic)
    assert topic.is_forgotten


@pytest.mark.parametrize(("failure", "answered"), STORE_FAILURES)
def test_a_commit_that_is_not_stored_changes_nothing(shell, failure, answered):
    """The codes of a failed append, as clients expect them of OffsetCommit."""
    commit(shell, 5)
    shell.holds_appends = True
    reply_id = shell.send(commit_request(6))
    shell.refuse(failure)
    assert shell.answers[reply_id].error_codes == (answered,)
    assert fetched(shell, require_stable=True) == {("t", 0): 5}


def test_h2_a_commit_is_answered_once_it_is_committed(shell):
    """Killed before: the commit is gone, and was not answered."""
    commit(shell, 5)
    shell.holds_appends = True
    reply_id = shell.send(commit_request(6))
    assert reply_id not in shell.answers
    shell.load()
    assert fetched(shell) == {("t", 0): 5}


def test_a_commit_that_timed_out_may_still_be_committed(shell):
    """7; until it is clear, a stable read is 88; then the offset is there."""
    shell.holds_appends = True
    reply_id = shell.send(commit_request(6))
    append = shell.held.pop()
    shell.step(AppendFailed(append.token, ErrorCode.REQUEST_TIMED_OUT, may_commit=True))
    assert shell.answers[reply_id].error_codes == (ErrorCode.REQUEST_TIMED_OUT,)
    assert fetched(shell, require_stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    shell.log += append.records
    shell.step(AppendCommitted(append.token))
    assert fetched(shell, require_stable=True) == {("t", 0): 6}


def test_too_many_partitions_in_one_commit_are_refused():
    """A commit is one batch, and one step."""
    shell = Shell(GroupCoordinatorConfig(commit_partitions_max=2))
    partitions = tuple(CommittedPartition("t", index, 1) for index in range(3))
    answer = shell.ask(commit_request(partitions=partitions))
    assert answer.error_codes == (ErrorCode.INVALID_COMMIT_OFFSET_SIZE,) * 3
    assert fetched(shell) == {}


def test_groups_are_listed_by_state_and_type(shell):
    """Filters ignore case; an unknown type matches nothing; simple groups are Empty, with no type."""
    shell.stable()
    shell.ask(commit_request(group_id="h"))

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        return {
            tuple(row)[:4] for row in shell.coordinator.listed(states, types) if row is not None
        }

    stable, simple = ("g", "consumer", "Stable", "classic"), ("h", "", "Empty", "classic")
    assert listed() == listed((), ("CLASSIC",)) == {stable, simple}
    assert listed(("stable",)) == {stable}
    assert listed(("EMPTY", "dead")) == {simple}
    assert listed((), ("consumer",)) == set()


def test_metadata_and_assignments_are_described_while_the_group_is_stable(shell):
    """During a rebalance there are members, and nothing of their protocol."""
    leader, follower = shell.stable(2)
    described = shell.ask(DescribeGroup("g"))
    assert (described.state, described.protocol_name) == ("Stable", "range")
    assert [(one.member_id, one.assignment) for one in described.members] == [
        (leader, leader.encode()),
        (follower, follower.encode()),
    ]
    shell.join(leader)
    described = shell.ask(DescribeGroup("g"))
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert {(one.metadata, one.assignment) for one in described.members} == {(b"", b"")}


@pytest.mark.parametrize("retention_time_ms", [NO_RETENTION, DAY_MS])
def test_prepared_offsets_are_stored_as_others_are(retention_time_ms: int) -> None:
    """The records, and the batch that was made of them, are those that the coordinator makes itself."""
    partitions = tuple(CommittedPartition("t", n, n, 3, "m" * n) for n in range(4))
    request = commit_request(partitions=partitions, retention_time_ms=retention_time_ms)
    usual, prepared = Shell(), Shell()
    prepared.holds_appends = True
    assert usual.ask(request).error_codes == (ErrorCode.NONE,) * 4
    prepared.send(prepare(request, prepared.now.wall_ms))
    (append,) = prepared.held
    assert append.batch is not None
    in_batch = [StateRecord(one.key or b"", one.value) for one in iterate_records(append.batch)]
    prepared.commit()
    assert prepared.log == usual.log == in_batch
    assert fetched(prepared) == fetched(usual) == {("t", n): n for n in range(4)}


def test_only_what_is_accepted_of_prepared_offsets_is_stored(shell: Shell) -> None:
    """Metadata that is too long fails its partition alone; what fits no record prepares nothing."""
    longest = shell.config.offset_metadata_max_bytes
    partitions = (
        CommittedPartition("t", 0, 1, 3, ""),
        CommittedPartition("t", 1, 2, 3, "m" * (longest + 1)),
    )
    request = prepare(commit_request(partitions=partitions), shell.now.wall_ms)
    assert request.prepared is not None
    answer = shell.ask(request)
    assert answer.error_codes == (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert fetched(shell) == {("t", 0): 1}
    assert len(shell.log) == 1
    huge = commit_request(partitions=(CommittedPartition("t", 0, 1, 3, "m" * 40_000),))
    assert prepare(huge, shell.now.wall_ms) is huge
