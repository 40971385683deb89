"""The test vectors 50 to 64 of the groups specification, and what belongs to them: the consumer protocol."""

from __future__ import annotations

import pytest

from echoless.coordinators.events import AppendCommitted, AppendFailed, TimerFired
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer import assignment
from echoless.coordinators.groups.consumer.assignors import assigned_at_once
from echoless.coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber
from echoless.coordinators.groups.effects import TimerKind
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.consumers import GROUP, ConsumerShell

SESSION_MS = 45_000


@pytest.fixture(params=["at once", "in steps"])
def shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ConsumerShell:
    """Targets are made at once or, as if they were large, in steps."""
    if request.param == "in steps":
        monkeypatch.setattr(assignment, "WORK_AT_ONCE", -1)
    return ConsumerShell()


@pytest.fixture
def pair(shell: ConsumerShell) -> ConsumerShell:
    """Vector 55: m1 has 0-2 and m2 3-5, both in epoch 2."""
    t = shell.topics.ids
    shell.beat("m1", 0)
    shell.beat("m2", 0)
    shell.beat("m1", 1, t("t"))
    shell.beat("m1", 1, t("t", 0, 1, 2))
    shell.beat("m2", 2)
    return shell


def commit(member_id: str, epoch: int, *partitions: int, is_new: bool = True) -> OffsetCommit:
    rows = tuple(CommittedPartition("t", index, 7) for index in partitions)
    return OffsetCommit(GROUP, epoch, member_id, None, rows, knows_missing_groups=is_new)


def test_vector_50_a_heartbeat_without_what_it_needs_is_refused(shell):
    """An empty member id in version 1, or a member that joins without saying that it owns nothing."""
    assert shell.code("", 0) == ErrorCode.INVALID_REQUEST
    assert shell.code("m", 0, owned=shell.topics.ids("t", 0)) == ErrorCode.INVALID_REQUEST
    missing = shell.heartbeat_request("m", 0)._replace(owned=None)
    assert shell.ask(missing).error_code == ErrorCode.INVALID_REQUEST
    assert shell.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        (0, {"group_id": ""}),
        (0, {"instance_id": ""}),
        (0, {"rack_id": ""}),
        (0, {"rebalance_timeout_ms": -1}),
        (0, {"topic_names": None}),
        (1, {"rebalance_timeout_ms": -2}),
        (-2, {}),
        (-3, {}),
        (0, {"topic_names": ("t" * 2_000_000,)}),
        (0, {"client_id": "c" * 2_000}),
    ],
)
def test_flawed_heartbeats_are_refused(shell, epoch, fields):
    """Each with a message that names the field, before the group is looked at."""
    answer = shell.ask(shell.heartbeat_request("m", epoch)._replace(**fields))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.message


def test_version_0_is_given_an_id(shell):
    """The broker makes the id of a member that has none."""
    answer = shell.beat("", 0, makes_member_id=False, uuid="fresh")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "fresh", 1)


def test_vector_51_the_first_member_has_everything(shell):
    """In epoch 1, at once."""
    answer = shell.beat("m1", 0)
    assert (answer.member_epoch, answer.assignment) == (1, shell.topics.ids("t"))
    assert answer.heartbeat_interval_ms == 5_000
    assert shell.describe().state == "Stable"


def test_vectors_52_to_55_a_second_member_takes_over_half(shell):
    """It gets each partition once the first one has said that it does not own it any more."""
    t = shell.topics.ids
    shell.beat("m1", 0)
    second = shell.beat("m2", 0)
    assert (second.member_epoch, second.assignment) == (2, frozenset())
    assert shell.describe().state == "Reconciling"
    first = shell.beat("m1", 1, t("t"))
    assert (first.member_epoch, first.assignment) == (1, t("t", 0, 1, 2))
    assert shell.beat("m2", 2).assignment is None, "not released yet"
    assert shell.beat("m1", 1).member_epoch == 1, "it has not said what it owns"
    assert shell.beat("m1", 1, t("t", 0, 1, 2)).member_epoch == 2
    second = shell.beat("m2", 2)
    assert (second.member_epoch, second.assignment) == (2, t("t", 3, 4, 5))
    assert shell.describe().state == "Stable"


def test_vector_56_heartbeats_of_other_epochs_are_fenced(pair):
    """Later ones, earlier ones, and the previous one unless what it owns is a part of what it has."""
    t = pair.topics.ids
    assert pair.code("m1", 200) == ErrorCode.FENCED_MEMBER_EPOCH
    assert pair.code("m1", 1) == ErrorCode.FENCED_MEMBER_EPOCH
    assert pair.code("m1", 1, t("t", 3)) == ErrorCode.FENCED_MEMBER_EPOCH
    retried = pair.beat("m1", 1, t("t", 0, 1))
    assert (retried.error_code, retried.member_epoch) == (0, 2)
    pair.beat("m3", 0)
    pair.settle("m1", "m2", "m3")
    assert pair.code("m1", 1, frozenset()) == ErrorCode.FENCED_MEMBER_EPOCH, "two epochs ago"


def test_a_delayed_heartbeat_of_the_previous_epoch_gives_nothing_up(shell):
    """Hazard H5: the member may have been given the partition since it sent that heartbeat."""
    t = shell.topics.ids
    shell.beat("m1", 0)
    shell.beat("m2", 0)
    shell.beat("m1", 1, t("t"))
    shell.beat("m1", 1, t("t", 0, 1, 2))  # epoch 2
    shell.beat("m3", 0)
    assert shell.beat("m1", 2, t("t", 0, 1, 2)).member_epoch == 2
    given_up = t("t", 0, 1, 2) - shell.assigned()["m1"]
    assert given_up, "m1 is to give one up"
    shell.beat("m1", 1, t("t", 0, 1, 2) - given_up)
    assert shell.beat("m3", 3).assignment is None


def test_a_member_that_missed_an_answer_is_told_again_what_it_has(shell):
    """The change was stored, and the lead lost before the answer: a heartbeat without more shows what is missing."""
    shell.beat("a", 0)
    shell.beat("b", 0, topics=("u",))
    epoch = shell.settle("a", "b")["a"]
    shell.load()
    everything = shell.topics.all()
    assert shell.beat("a", epoch, frozenset()).assignment == everything
    assert shell.beat("a", epoch, everything).assignment is None
    assert shell.beat("a", epoch).assignment is None


def test_vector_57_a_member_that_leaves_frees_what_it_has(pair):
    """A new epoch begins; the others get its partitions with their next heartbeats."""
    answer = pair.beat("m2", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m2", -1)
    assert pair.describe().epoch == 3
    assert pair.describe().state == "Assigning"
    answer = pair.beat("m1", 2)
    assert (answer.member_epoch, answer.assignment) == (3, pair.topics.ids("t"))
    assert pair.code("m2", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_vector_58_a_static_member_returns_to_what_it_had(shell):
    """The group's epoch is kept, so no other member notices."""
    shell.beat("m1", 0, instance_id="i")
    shell.beat("m2", 0)
    epochs = shell.settle("m1", "m2")
    had = shell.assigned()["m1"]
    assert shell.beat("m1", -2, instance_id="i").member_epoch == -2
    assert shell.assigned()["m1"] == had, "until its session ends"
    answer = shell.beat("m3", 0, instance_id="i")
    assert (answer.member_epoch, answer.assignment) == (epochs["m1"], had)
    assert shell.describe().epoch == epochs["m2"]
    assert shell.assigned().keys() == {"m2", "m3"}
    assert shell.code("m1", epochs["m1"], instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert shell.code("m1", epochs["m1"]) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_removed(shell):
    """Its session runs on."""
    shell.beat("m1", 0, instance_id="i")
    shell.beat("m1", -2, instance_id="i")
    shell.pass_time(SESSION_MS)
    assert shell.describe().state == "Empty"
    assert shell.code("m1", 1, instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_is_away_has_nothing_to_give_up(shell):
    """It goes while it is to give up partitions: what runs on is its session, not the time for that."""
    t = shell.topics.ids
    shell.beat("m1", 0, instance_id="i", rebalance_timeout_ms=10_000)
    shell.beat("m2", 0)
    shell.beat("m1", 1, t("t"), instance_id="i")
    assert any(key.kind is TimerKind.REVOCATION for key in shell.timers)
    shell.beat("m1", -2, instance_id="i")
    shell.pass_time(20_000)
    assert shell.assigned()["m1"] == t("t", 0, 1, 2)
    assert shell.code("m3", 0, instance_id="i") == 0


def test_a_static_member_that_is_away_is_not_answered_under_its_old_epoch(shell):
    """Only one that joins again is back."""
    t = shell.topics.ids("t")
    shell.beat("m1", 0, instance_id="i")
    shell.beat("m1", -2, instance_id="i")
    assert shell.code("m1", 1, t, instance_id="i") == ErrorCode.FENCED_MEMBER_EPOCH


def test_vector_59_an_instance_id_in_use_is_not_released(shell):
    """Two processes with one instance id: the second one has to wait."""
    shell.beat("m1", 0, instance_id="i")
    assert shell.code("m2", 0, instance_id="i") == ErrorCode.UNRELEASED_INSTANCE_ID
    assert shell.code("m2", -1, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert shell.code("m2", 0, instance_id="j") == 0
    assert shell.code("m2", 0, instance_id="i") == ErrorCode.INVALID_REQUEST


def test_a_member_under_the_instance_id_of_another_is_refused(shell):
    """As Kafka 4.2: 82 where another has it, 25 where no one does, so its client begins anew."""
    shell.beat("m1", 0, instance_id="i")
    epoch = shell.beat("m2", 0).member_epoch
    assert shell.code("m2", epoch, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert shell.code("m2", epoch, instance_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.code("m2", 0, instance_id="unknown") == ErrorCode.INVALID_REQUEST
    assert shell.code("m2", epoch) == ErrorCode.NONE


@pytest.mark.parametrize("epoch", [-1, -2])
def test_a_member_that_leaves_is_asked_for_no_more_heartbeats(shell, epoch):
    """The answer has its epoch and an interval of 0."""
    shell.beat("m1", 0, instance_id="i")
    answer = shell.beat("m1", epoch, instance_id="i")
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (epoch, 0)


def test_vector_60_a_member_that_gives_nothing_up_is_removed(shell):
    """After its rebalance timeout, though it heartbeats; what it had is free."""
    shell.beat("m1", 0)
    shell.beat("m2", 0)
    for _ in range(6):
        assert shell.code("m1", 1, shell.topics.ids("t")) == 0
        shell.beat("m2", 2)
        shell.pass_time(5_000)
    assert shell.code("m1", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.beat("m2", 2).assignment == shell.topics.ids("t")
    assert shell.describe().epoch == 3


def test_a_session_ends_without_heartbeats(pair):
    """And not before: a heartbeat begins it anew."""
    pair.pass_time(SESSION_MS - 1)
    pair.beat("m1", 2)
    pair.pass_time(SESSION_MS - 1)
    assert pair.code("m1", 2) == 0
    assert pair.code("m2", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fault_rule_ends_a_session(pair):
    """By member, instance or client id; of one that is there."""
    coordinator = pair.coordinator
    assert len(coordinator.sessions_of(GROUP, "c")) == 2
    (key,) = coordinator.sessions_of(GROUP, "m2")
    coordinator.end_sessions([key], pair.now)
    pair.step(TimerFired(key))
    assert pair.assigned().keys() == {"m1"}
    assert coordinator.sessions_of(GROUP, "m2") == []


def test_vector_61_unknown_assignors_are_refused(shell):
    """With 112; a regular expression is checked by the handler."""
    assert shell.code("m", 0, assignor="x") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert shell.code("m", 0, assignor="range") == 0
    assert shell.describe().assignor == "range"


def test_vector_62_commits_need_the_epoch_of_the_member(pair):
    """Version 8 knows none: 35. A later epoch is 113; an earlier one may commit what it had in it already."""
    assert pair.ask(commit("m1", 2, 0)).error_codes == (0,)
    assert pair.ask(commit("m1", 2, 0, is_new=False)).error_codes == (35,)
    assert pair.ask(commit("m1", 3, 0)).error_codes == (113,)
    assert pair.ask(commit("m1", 1, 0, 3)).error_codes == (0, 113)
    assert pair.ask(commit("m2", 1, 3)).error_codes == (113,), "it has it since epoch 2"
    assert pair.ask(commit("x", 2, 0)).error_codes == (25,)
    assert pair.ask(commit("", -1, 0)).error_codes == (25,)


def test_offsets_of_a_group_without_members_are_committed_by_tools(shell):
    """As `kafka-consumer-groups --reset-offsets` does."""
    shell.beat("m1", 0)
    shell.beat("m1", -1)
    assert shell.ask(commit("", -1, 0)).error_codes == (0,)
    assert shell.ask(commit("m1", 1, 0)).error_codes == (25,)


def test_a_fetch_of_offsets_may_name_its_member(pair):
    """Then it has to be in the group, in this epoch."""
    partitions = (("t", 0),)

    def code(member_id: str | None, epoch: int) -> int:
        return pair.ask(OffsetFetch(GROUP, partitions, False, member_id, epoch)).error_code

    assert code(None, -1) == code("m1", 2) == 0
    assert code("m1", 1) == code("m1", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_vector_63_the_protocols_do_not_mix(pair):
    """A classic member is refused while there are members, and the other way round."""
    assert pair.answers[pair.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = ConsumerShell()
    other.stable()
    answer = other.beat("m", 0)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in answer.message
    assert other.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_vector_64_ranges(shell):
    """Two topics of three partitions: A has 0 and 1 of both, B has 2 of both."""
    topics = [AssignedTopic(name, name.encode(), 3) for name in ("T1", "T2")]
    names = frozenset({"T1", "T2"})
    members = [Subscriber(name, None, names, frozenset()) for name in ("B", "A")]
    found = assigned_at_once("range", members, topics)
    assert found["A"] == {(name, index) for name in (b"T1", b"T2") for index in (0, 1)}
    assert found["B"] == {(b"T1", 2), (b"T2", 2)}


# --- type changes


def test_an_empty_classic_group_becomes_a_consumer_group_and_back(shell):
    """Offsets stay; numbers of generations and epochs go on rising, through fail-overs."""
    (member,) = shell.stable()
    assert shell.ask(OffsetCommit(GROUP, 1, member, None, (CommittedPartition("t", 0, 5),)))
    shell.ask(LeaveGroup(GROUP, (LeavingMember(member),)))
    shell.load()
    assert shell.beat("m1", 0).member_epoch == 3, "after generation 2, in which it was empty"
    shell.beat("m1", -1)
    shell.load()
    assert shell.answers[shell.join("x")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    _, join = shell.new_member()
    shell.pass_time(6_000)
    assert shell.answers[join].generation_id == 5, "after epoch 4"
    shell.load()
    (row,) = shell.ask(OffsetFetch(GROUP, None)).partitions
    assert row.offset == 5
    assert [one for one in shell.coordinator.listed((), ("consumer",)) if one] == []


def test_kinds_of_requests_of_the_other_protocol(pair):
    """They know nothing of a consumer group: DescribeGroups says so, and so on."""
    assert pair.ask(DescribeGroup(GROUP)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert pair.ask(DeleteGroup(GROUP)).error_code == ErrorCode.NON_EMPTY_GROUP
    pair.ask(commit("m1", 2, 0))
    deletion = OffsetDelete(GROUP, (("t", 0), ("u", 0)))
    assert pair.ask(deletion).error_codes == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0)
    (row,) = [one for one in pair.coordinator.listed((), ()) if one]
    assert row == (GROUP, "consumer", "Stable", "consumer", 2, 2)
    assert [one for one in pair.coordinator.listed(("empty",), ()) if one] == []
    assert [one for one in pair.coordinator.listed((), ("CLASSIC",)) if one] == []


def test_an_administrator_removes_members(shell):
    """By LeaveGroup, which names them by instance or member id."""
    shell.beat("m1", 0, instance_id="i")
    shell.beat("m2", 0)
    leaving = (LeavingMember("", "i"), LeavingMember("x"), LeavingMember("m2"))
    answer = shell.ask(LeaveGroup(GROUP, leaving))
    assert [one.error_code for one in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert shell.describe().state == "Empty"


def test_a_deleted_group_leaves_no_record(shell):
    """Every key in the log ends with a tombstone."""
    shell.beat("m1", 0)
    shell.ask(commit("m1", 1, 0))
    shell.beat("m1", -1)
    assert shell.ask(DeleteGroup(GROUP)).error_code == 0
    last = {record.key: record.value for record in shell.log}
    assert set(last.values()) == {None}
    shell.load()
    assert shell.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not list(shell.coordinator.listed((), ()))


def test_offsets_of_topics_that_members_subscribe_to_do_not_expire(shell):
    """Others do, in any state; and a group without members goes with its last offset."""
    shell.topics.set("u", 1)
    shell.beat("m1", 0)
    rows = (CommittedPartition("t", 0, 1), CommittedPartition("u", 0, 1))
    shell.ask(OffsetCommit(GROUP, 1, "m1", None, rows, knows_missing_groups=True))
    shell.wall_skew_ms = 8 * 24 * 3_600_000
    shell.expire()
    assert [row.topic for row in shell.ask(OffsetFetch(GROUP, None)).partitions] == ["t"]
    shell.beat("m1", -1)
    shell.expire()
    shell.expire()
    assert shell.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- topics


def test_topics_that_come_and_grow_begin_an_epoch(shell):
    """At the next heartbeat; one that no one subscribes to does not."""
    shell.beat("m1", 0, topics=("t", "u"))
    shell.topics.set("x", 1)
    assert shell.beat("m1", 1).member_epoch == 1
    shell.topics.set("u", 2)
    answer = shell.beat("m1", 1)
    assert (answer.member_epoch, len(answer.assignment)) == (2, 8)
    shell.topics.set("u", 3)
    assert len(shell.beat("m1", 2).assignment) == 9
    gone = shell.topics.ids("u")
    shell.topics.delete("u")
    answer = shell.beat("m1", 3, shell.topics.ids("t") | gone)
    assert answer.assignment == shell.topics.ids("t")


def test_a_topic_that_grows_while_the_coordinator_moves_is_noticed(shell):
    """The hash of the topics is stored with the epoch."""
    shell.beat("m1", 0)
    shell.load()
    assert shell.beat("m1", 1).member_epoch == 1
    shell.topics.set("t", 7)
    shell.load()
    assert len(shell.beat("m1", 1).assignment) == 7


def test_a_topic_that_is_created_again_is_another_one(shell):
    """Its partitions have another id."""
    shell.beat("m1", 0)
    old = shell.topics.ids("t")
    shell.topics.delete("t")
    shell.topics.set("t", 6)
    assert shell.beat("m1", 1, old).assignment == frozenset()
    assert shell.beat("m1", 1, frozenset()).assignment == shell.topics.ids("t")


# --- regular expressions


def test_a_regular_expression_and_names_unite(shell):
    """A member that joins waits until the topics are known."""
    shell.topics.set("te", 1)
    shell.topics.set("u", 1)
    shell.holds_regexes = True
    reply = shell.send(shell.heartbeat_request("m1", 0, topics=("u",), topic_regex="t"))
    assert reply not in shell.answers
    shell.holds_regexes = False
    shell.resolve_all()
    assert shell.answers[reply].assignment == shell.topics.all()
    shell.load()
    assert shell.describe().members[0].value.topic_regex == "t"
    assert shell.beat("m1", 1, topic_regex="").assignment == shell.topics.ids("u")
    assert shell.beat("m1", 1, shell.topics.ids("u")).member_epoch == 2


def test_a_new_topic_that_matches_is_found_later(shell):
    """No sooner than ten seconds after the last look."""
    shell.beat("m1", 0, topics=(), topic_regex="t")
    shell.topics.set("t2", 2)
    assert shell.beat("m1", 1).member_epoch == 1
    shell.pass_time(10_000)
    shell.beat("m1", 1)  # looks again
    assert len(shell.beat("m1", 1).assignment) == 8


def test_a_member_that_gives_up_waiting_for_its_topics_is_not_added(shell):
    """Its connection has ended; it will come back."""
    shell.holds_regexes = True
    reply = shell.send(shell.heartbeat_request("m1", 0, topic_regex="t"))
    shell.abandon(reply)
    shell.holds_regexes = False
    shell.resolve_all()
    assert shell.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not shell.live


def test_members_that_wait_for_topics_are_answered_when_the_group_becomes_a_classic_one(shell):
    """They are told what is in their way."""
    shell.holds_regexes = True
    waiting = shell.send(shell.heartbeat_request("m1", 0, topic_regex="t"))
    shell.join(requires_known_member_id=False)
    shell.holds_regexes = False
    shell.resolve_all()
    assert shell.answers[waiting].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_that_wait_for_topics_are_answered_when_the_group_is_deleted(shell):
    """They would join a group whose records are being removed."""
    shell.beat("m0", 0)
    shell.beat("m0", -1)
    shell.holds_regexes = shell.holds_appends = True
    waiting = shell.send(shell.heartbeat_request("m1", 0, topic_regex="t"))
    deleted = shell.send(DeleteGroup(GROUP))
    shell.holds_regexes = shell.holds_appends = False
    shell.resolve_all()
    assert shell.answers[waiting].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.commit_all()
    assert shell.answers[deleted].error_code == 0
    assert shell.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert shell.code("m1", 0) == 0
    shell.pass_time(SESSION_MS)
    assert shell.describe().state == "Empty"


def test_all_members_that_wait_for_topics_are_answered_when_none_may_join():
    """More than one turn takes."""
    shell = ConsumerShell(GroupCoordinatorConfig(members_max=0))
    shell.holds_regexes = True
    requests = [shell.heartbeat_request(f"m{n}", 0, topic_regex="t") for n in range(150)]
    waiting = [shell.send(one) for one in requests]
    shell.resolve_all()
    codes = {shell.answers[one].error_code for one in waiting}
    assert codes == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert not shell.live


# --- coming back, bounds, failures


def test_a_member_that_joins_again_starts_from_nothing(pair):
    """Kafka fences it until its session ends. What its earlier incarnation had is free, which is fenced."""
    answer = pair.beat("m1", 0)
    assert (answer.error_code, answer.member_epoch) == (0, 3)
    assert answer.assignment == pair.topics.ids("t", 0, 1, 2)
    assert pair.code("m1", 2, pair.topics.ids("t", 0)) == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_earlier_incarnation_is_fenced(shell):
    """Even if it had come to the latest epoch of the group."""
    shell.beat("m1", 0)
    shell.topics.set("t", 7)
    assert shell.beat("m1", 1).member_epoch == 2
    assert shell.beat("m1", 0).member_epoch == 3
    assert shell.code("m1", 2, shell.topics.ids("t")) == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_leaves_an_idle_group_begins_an_epoch(shell):
    """Its partitions are to go to others."""
    shell.beat("m1", 0)
    shell.beat("m1", -1)
    assert shell.describe().epoch == 2


def test_a_join_whose_answer_was_lost_is_answered_again(shell):
    """Without another epoch."""
    first = shell.beat("m1", 0)
    assert shell.beat("m1", 0) == first


def test_a_full_group_takes_no_more_members():
    """Those that it has are answered."""
    shell = ConsumerShell(GroupCoordinatorConfig(group_consumer_max_size=1))
    shell.beat("m1", 0)
    assert shell.code("m2", 0) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.code("m1", 1) == 0


def test_nothing_is_answered_before_it_is_stored(shell):
    """Heartbeats that come meanwhile share the next append."""
    shell.holds_appends = True
    replies = [shell.send(shell.heartbeat_request(f"m{index}", 0)) for index in range(4)]
    assert not shell.answers
    assert len(shell.held) == 1
    shell.commit()
    assert shell.answers.keys() == {replies[0]}
    assert len(shell.held) == 1
    shell.commit()
    assert {shell.answers[one].member_epoch for one in replies} == {1, 2}
    assert not shell.held


def test_a_change_that_is_not_stored_is_undone(pair):
    """The client retries; nothing of it is left."""
    pair.holds_appends = True
    reply = pair.send(pair.heartbeat_request("m3", 0))
    waiting = pair.send(pair.heartbeat_request("m1", 2))
    pair.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert pair.answers[reply].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pair.answers[waiting].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    pair.holds_appends = False
    assert pair.assigned().keys() == {"m1", "m2"}
    assert pair.coordinator.member_count == 2
    assert pair.beat("m1", 2).member_epoch == 2


def test_sessions_begin_anew_when_a_change_is_undone(pair):
    """They end all the same, and reads of offsets have not waited."""
    pair.holds_appends = True
    pair.send(pair.heartbeat_request("m3", 0))
    fetch = pair.send(OffsetFetch(GROUP, (("t", 0),), False, "m1", 2))
    assert pair.answers[fetch].error_code == 0
    pair.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    pair.holds_appends = False
    pair.pass_time(SESSION_MS)
    assert pair.describe().state == "Empty"


def test_a_change_in_doubt_is_waited_for(pair):
    """Nothing is answered from it until it is known to be committed."""
    pair.holds_appends = True
    reply = pair.send(pair.heartbeat_request("m3", 0))
    append = pair.held.pop()
    pair.step(AppendFailed(append.token, ErrorCode.REQUEST_TIMED_OUT, may_commit=True))
    assert pair.answers[reply].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pair.code("m1", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    pair.log += append.records
    pair.holds_appends = False
    pair.step(AppendCommitted(append.token))
    assert pair.assigned().keys() == {"m1", "m2", "m3"}


def test_a_timer_that_fires_while_something_is_stored_is_not_forgotten(pair):
    """The member is removed afterwards."""
    pair.pass_time(SESSION_MS - 1)
    pair.holds_appends = True
    pair.send(pair.heartbeat_request("m1", 2, topics=("t", "u")))
    pair.pass_time(10)
    pair.holds_appends = False
    pair.commit_all()
    assert pair.assigned().keys() == {"m1"}


def test_a_member_that_leaves_and_closes_its_connection_has_left(pair):
    """A process that ends waits for no answer; the others need not wait for the end of its session."""
    pair.holds_appends = True
    pair.send(pair.heartbeat_request("m3", 0))
    pair.abandon(pair.send(pair.heartbeat_request("m1", -1)))
    pair.abandon(pair.send(pair.heartbeat_request("m4", 0)))
    pair.holds_appends = False
    pair.commit_all()
    assert pair.assigned().keys() == {"m2", "m3"}


@pytest.mark.parametrize("is_in_doubt", [False, True])
def test_heartbeats_that_wait_for_what_is_stored_keep_the_session(pair, is_in_doubt):
    """Those that are refused meanwhile do so, too: slow replicas are not the members' fault."""
    pair.holds_appends = True
    pair.send(pair.heartbeat_request("m1", 2, topics=("t", "u")))
    if is_in_doubt:
        code = ErrorCode.REQUEST_TIMED_OUT
        pair.step(AppendFailed(pair.held[0].token, code, may_commit=True))
    for _ in range(3):
        pair.pass_time(SESSION_MS // 2)
        pair.send(pair.heartbeat_request("m1", 2))
        pair.send(pair.heartbeat_request("m2", 2))
    pair.holds_appends = False
    pair.commit_all()
    assert pair.assigned().keys() == {"m1", "m2"}
    pair.pass_time(SESSION_MS)
    assert pair.describe().state == "Empty"


def test_a_new_coordinator_goes_on_with_what_is_stored(shell):
    """Epochs, assignments and revocations; sessions and the time to give up begin anew."""
    t = shell.topics.ids
    shell.beat("m1", 0)
    shell.beat("m2", 0)
    shell.beat("m1", 1, t("t"))
    before = shell.describe()
    shell.load()
    assert shell.describe() == before
    assert {key.kind for key in shell.timers} == {TimerKind.SESSION, TimerKind.REVOCATION}
    assert shell.beat("m2", 2).assignment is None
    shell.beat("m1", 1, t("t", 0, 1, 2))
    assert shell.beat("m2", 2).assignment == t("t", 3, 4, 5)
