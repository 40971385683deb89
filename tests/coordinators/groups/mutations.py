"""The coordinator with one guard taken out of it, to see that the histories miss it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from echoless.coordinators.groups import heartbeats, offset_commits, offset_reads, syncs
from echoless.coordinators.groups.answers import OffsetCommitAnswer, SyncAnswer
from echoless.coordinators.groups.deletions import Deletions
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.membership import Membership, member_error
from echoless.coordinators.groups.offset_commits import OffsetCommits
from echoless.coordinators.groups.rebalances import Rebalances
from echoless.coordinators.groups.sessions import Sessions
from echoless.coordinators.groups.static_members import StaticMembers
from echoless.coordinators.groups.syncs import Syncs
from echoless.protocol.errors import ErrorCode

Patches = list[Any]


def _a_generation_is_answered_before_it_is_stored() -> Patches:
    begin = Rebalances._begin_generation

    def begin_and_answer(self: Rebalances, group: Group) -> None:
        begin(self, group)
        group.generation_token = None
        self._answer_joins(group)

    return [patch.object(Rebalances, "_begin_generation", begin_and_answer)]


def _a_generation_is_stored_as_a_stable_one() -> Patches:
    value = Group.value
    return [patch.object(Group, "value", lambda self, given: value(self, given or {}))]


def _a_generation_keeps_its_number() -> Patches:
    complete = Rebalances._complete

    def keep(self: Rebalances, group: Group) -> None:
        group.generation_id -= group.generation_id > 1
        complete(self, group)

    return [patch.object(Rebalances, "_complete", keep)]


def _a_stored_generation_answers_the_next_one() -> Patches:
    def try_complete(self: Rebalances, group: Group) -> None:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_in_initial_delay
            and group.has_all_joined
        ):
            self._complete(group)

    stored = Rebalances._generation_stored

    def always_current(
        self: Rebalances, group: Group, _generation_id: int, code: ErrorCode
    ) -> None:
        stored(self, group, group.generation_id, code)

    return [
        patch.object(Rebalances, "try_complete", try_complete),
        patch.object(Rebalances, "_generation_stored", always_current),
    ]


def _an_assignment_is_answered_before_it_is_stored() -> Patches:
    def store(self: Syncs, group: Group, given: dict[str, bytes]) -> None:
        for member_id, member in group.members.items():
            assigned = SyncAnswer(ErrorCode.NONE, assignment=given.get(member_id, b""))
            self._groups.reply(member.sync_reply, assigned)
            member.sync_reply = None
        assign(self, group, given)

    assign = Syncs._store
    return [patch.object(Syncs, "_store", store)]


def _anyone_assigns() -> Patches:
    handle = Syncs.handle

    def lead(self: Syncs, reply_id: int, request: Any) -> None:
        group = self._groups.find(request.group_id)
        if group is not None and request.member_id in group.members:
            group.leader = request.member_id
        handle(self, reply_id, request)

    return [patch.object(Syncs, "handle", lead)]


def _commits_of_any_generation_are_accepted() -> Patches:
    def error(group: Group, member_id: str, instance_id: str | None, _gen: int) -> ErrorCode:
        return member_error(group, member_id, instance_id)

    return [patch.object(offset_commits, "generation_error", error)]


def _commits_of_new_members_are_accepted() -> Patches:
    def error(group: Group, member_id: str, instance_id: str | None, gen: int) -> ErrorCode:
        code = member_error(group, member_id, instance_id)
        if code is ErrorCode.NONE and gen != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    return [patch.object(offset_commits, "generation_error", error)]


def _strangers_commit_to_groups_with_members() -> Patches:
    admit = OffsetCommits._admit_to_group

    def admit_strangers(self: OffsetCommits, group: Group, request: Any) -> ErrorCode:
        if request.generation_id < 0:
            return ErrorCode.NONE
        return admit(self, group, request)

    return [patch.object(OffsetCommits, "_admit_to_group", admit_strangers)]


def _a_commit_is_answered_before_it_is_committed() -> Patches:
    append = Groups.append

    def answer(self: Groups, group: Group, records: Any, outcome: Any) -> int:
        if getattr(outcome, "func", None) and outcome.func.__name__ == "_stored":
            reply_id, *rest = outcome.args
            if isinstance(reply_id, int):
                self.reply(reply_id, OffsetCommitAnswer((ErrorCode.NONE,) * len(rest[0])))
                return append(self, group, records, lambda _code: None)
        return append(self, group, records, outcome)

    return [patch.object(Groups, "append", answer)]


def _records_apply_when_they_are_appended() -> Patches:
    append = Groups.append

    def apply(self: Groups, group: Group, records: Any, outcome: Any) -> int:
        for key, value in records:
            self.durable.put(key, value)
        return append(self, group, records, outcome)

    return [patch.object(Groups, "append", apply)]


def _tombstones_do_not_apply() -> Patches:
    put = DurableGroups.put

    def keep(self: DurableGroups, key: Any, value: Any) -> None:
        if value is not None or self not in live:
            put(self, key, value)

    live: list[DurableGroups] = []
    init = Groups.__init__

    def remember(self: Groups, *arguments: Any) -> None:
        init(self, *arguments)
        live.append(self.durable)

    return [
        patch.object(DurableGroups, "put", keep),
        patch.object(Groups, "__init__", remember),
    ]


def _commits_under_way_count_as_stable() -> Patches:
    handle = offset_reads.OffsetReads.handle

    def unstable(self: offset_reads.OffsetReads, reply_id: int, request: Any) -> None:
        handle(self, reply_id, request._replace(require_stable=False))

    return [patch.object(offset_reads.OffsetReads, "handle", unstable)]


def _a_group_takes_commits_while_it_is_deleted() -> Patches:
    admit = OffsetCommits._admit_to_group

    def admit_all(self: OffsetCommits, group: Group, request: Any) -> ErrorCode:
        if group.state is GroupState.DEAD:
            return ErrorCode.NONE
        return admit(self, group, request)

    return [patch.object(OffsetCommits, "_admit_to_group", admit_all)]


def _commits_under_way_outlive_their_group() -> Patches:
    delete = Deletions._delete_next

    def forget_pending(self: Deletions, group: Group, reply_id: Any, code: ErrorCode) -> None:
        group.appends, appends = 0, group.appends
        group.pending_offsets, pending = {}, group.pending_offsets
        delete(self, group, reply_id, code)
        group.appends += appends
        group.pending_offsets |= pending

    return [patch.object(Deletions, "_delete_next", forget_pending)]


def _fenced_members_go_on() -> Patches:
    def error(group: Group, member_id: str, instance_id: str | None, gen: int) -> ErrorCode:
        current = group.static_members.get(instance_id or "")
        if current is not None and gen == group.generation_id:
            return ErrorCode.NONE
        return member_error(group, member_id, instance_id)

    return [patch.object(offset_commits, "generation_error", error)]


def _a_static_id_is_answered_before_it_is_stored() -> Patches:
    store = StaticMembers._store

    def answer(self: StaticMembers, replacement: Any) -> None:
        store(self, replacement)
        replacement.group.take_join_reply(replacement.member)
        self._groups.reply(replacement.reply_id, self._answer(replacement))

    return [patch.object(StaticMembers, "_store", answer)]


def _a_timer_that_is_early_is_not_set_again() -> Patches:
    expired = Sessions.has_expired

    def give_up(self: Sessions, group: Group, member: Any) -> bool:
        if self._groups.now.monotonic_ms < member.session_deadline_ms:
            member.session_timer_ms = None
            return False
        return expired(self, group, member)

    return [patch.object(Sessions, "has_expired", give_up)]


def _a_join_phase_has_no_end() -> Patches:
    return [patch.object(Rebalances, "timer_fired", lambda _self, _group: None)]


def _members_that_do_not_sync_stay() -> Patches:
    return [patch.object(Rebalances, "sync_timer_fired", lambda _self, _group: None)]


def _removed_members_are_not_answered() -> Patches:
    remove = Membership.remove

    def forget(self: Membership, group: Group, member: Any) -> None:
        group.take_join_reply(member)
        member.sync_reply = None
        remove(self, group, member)

    return [patch.object(Membership, "remove", forget)]


def _syncs_are_not_answered_when_a_rebalance_begins() -> Patches:
    def forget(self: Rebalances, group: Group, _code: ErrorCode) -> None:
        group.assignment_token = None
        self._end_sync_timer(group)
        for member in group.members.values():
            member.sync_reply = None

    return [patch.object(Rebalances, "_refuse_syncs", forget)]


def _heartbeats_do_not_say_that_a_group_rebalances() -> Patches:
    def silent(self: heartbeats.Heartbeats, reply_id: int, request: Any) -> None:
        group = self._groups.find(request.group_id)
        code = heartbeats._flaw(group, request)
        self._groups.reply(reply_id, heartbeats.HeartbeatAnswer(code))

    return [patch.object(heartbeats.Heartbeats, "handle", silent)]


def _an_older_generation_syncs() -> Patches:
    def error(group: Group, member_id: str, instance_id: str | None, _gen: int) -> ErrorCode:
        return member_error(group, member_id, instance_id)

    return [patch.object(syncs, "generation_error", error)]


MUTATIONS: Final[dict[str, Callable[[], Patches]]] = {
    one.__name__.removeprefix("_"): one
    for one in (
        _a_generation_is_answered_before_it_is_stored,
        _a_generation_is_stored_as_a_stable_one,
        _a_generation_keeps_its_number,
        _a_stored_generation_answers_the_next_one,
        _an_assignment_is_answered_before_it_is_stored,
        _anyone_assigns,
        _commits_of_any_generation_are_accepted,
        _commits_of_new_members_are_accepted,
        _strangers_commit_to_groups_with_members,
        _a_commit_is_answered_before_it_is_committed,
        _records_apply_when_they_are_appended,
        _tombstones_do_not_apply,
        _commits_under_way_count_as_stable,
        _a_group_takes_commits_while_it_is_deleted,
        _commits_under_way_outlive_their_group,
        _fenced_members_go_on,
        _a_static_id_is_answered_before_it_is_stored,
        _a_timer_that_is_early_is_not_set_again,
        _a_join_phase_has_no_end,
        _members_that_do_not_sync_stay,
        _removed_members_are_not_answered,
        _syncs_are_not_answered_when_a_rebalance_begins,
        _heartbeats_do_not_say_that_a_group_rebalances,
        _an_older_generation_syncs,
    )
}


@contextlib.contextmanager
def apply(name: str) -> Iterator[None]:
    """Plays with the mutation in place."""
    with contextlib.ExitStack() as stack:
        for one in MUTATIONS[name]():
            stack.enter_context(one)
        yield
