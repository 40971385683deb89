"""The coordinator with one guard taken out of it, to see that the histories miss it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from echoless.coordinators.effects import Reply
from echoless.coordinators.groups import deletions, offset_commits, offset_reads
from echoless.coordinators.groups.answers import HeartbeatAnswer, OffsetCommitAnswer, SyncAnswer
from echoless.coordinators.groups.classic import (
    heartbeats,
    membership,
    sessions,
    static_members,
    syncs,
)
from echoless.coordinators.groups.classic.membership import member_error
from echoless.coordinators.groups.classic.rebalances import Rebalances
from echoless.coordinators.groups.classic.static_members import StaticMembers
from echoless.coordinators.groups.classic.syncs import Syncs
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.pending_appends import PendingAppends
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode

Patches = list[Any]


def _a_generation_is_answered_before_it_is_stored() -> Patches:
    begin = Rebalances._begin_generation

    def begin_and_answer(self: Rebalances, store: GroupStore, group: Group, now: Any) -> Effects:
        effects = begin(self, store, group, now)
        group.generation_token = None
        return effects + self._answer_joins(store, group, now)

    return [patch.object(Rebalances, "_begin_generation", begin_and_answer)]


def _a_generation_is_stored_as_a_stable_one() -> Patches:
    value = Group.value
    return [patch.object(Group, "value", lambda self, given: value(self, given or {}))]


def _a_generation_keeps_its_number() -> Patches:
    complete = Rebalances._complete

    def keep(self: Rebalances, store: GroupStore, group: Group, now: Any) -> Effects:
        group.generation_id -= group.generation_id > 1
        return complete(self, store, group, now)

    return [patch.object(Rebalances, "_complete", keep)]


def _a_stored_generation_answers_the_next_one() -> Patches:
    def try_complete(self: Rebalances, store: GroupStore, group: Group, now: Any) -> Effects:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_in_initial_delay
            and group.has_all_joined
        ):
            return self._complete(store, group, now)
        return []

    stored = Rebalances._generation_stored

    def always_current(
        self: Rebalances, store: GroupStore, group: Group, _generation_id: int, *ended: Any
    ) -> Effects:
        return stored(self, store, group, group.generation_id, *ended)

    return [
        patch.object(Rebalances, "try_complete", try_complete),
        patch.object(Rebalances, "_generation_stored", always_current),
    ]


def _an_assignment_is_answered_before_it_is_stored() -> Patches:
    def store_later(
        self: Syncs, store: GroupStore, group: Group, given: dict[str, bytes], now: Any
    ) -> Effects:
        effects: Effects = []
        for member_id, member in group.members.items():
            assigned = SyncAnswer(ErrorCode.NONE, assignment=given.get(member_id, b""))
            effects += membership.answer_sync(member, assigned)
        return effects + assign(self, store, group, given, now)

    assign = Syncs._store
    return [patch.object(Syncs, "_store", store_later)]


def _anyone_assigns() -> Patches:
    handle = Syncs.handle

    def lead(self: Syncs, store: GroupStore, reply_id: int, request: Any, now: Any) -> Effects:
        group = store.find(request.group_id)
        if group is not None and request.member_id in group.members:
            group.leader = request.member_id
        return handle(self, store, reply_id, request, now)

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
    admit = offset_commits._admit_to_group

    def admit_strangers(group: Group, request: Any) -> ErrorCode:
        return ErrorCode.NONE if request.generation_id < 0 else admit(group, request)

    return [patch.object(offset_commits, "_admit_to_group", admit_strangers)]


def _a_commit_is_answered_before_it_is_committed() -> Patches:
    handle = offset_commits.OffsetCommits.handle
    stored = offset_commits._stored

    def answer(self: Any, store: GroupStore, reply_id: int, request: Any, now: Any) -> Effects:
        effects = handle(self, store, reply_id, request, now)
        if effects and isinstance(effects[-1], Reply):
            return effects
        codes = (ErrorCode.NONE,) * len(request.partitions)
        return [*effects, Reply(reply_id, OffsetCommitAnswer(codes))]

    def silent(reply_id: int, codes: list[ErrorCode], code: ErrorCode, now: Any) -> Effects:
        return stored(reply_id, codes, code, now) if all(codes) else []

    return [
        patch.object(offset_commits.OffsetCommits, "handle", answer),
        patch.object(offset_commits, "_stored", silent),
    ]


def _records_apply_when_they_are_appended() -> Patches:
    begin = PendingAppends.begin
    stores: dict[PendingAppends, DurableGroups] = {}
    init = GroupStore.__init__

    def remember(self: GroupStore) -> None:
        init(self)
        stores[self.appends] = self.durable

    def apply(self: PendingAppends, group: Group, records: Any, *rest: Any) -> Any:
        for key, value in records:
            stores[self].put(key, value)
        return begin(self, group, records, *rest)

    return [
        patch.object(GroupStore, "__init__", remember),
        patch.object(PendingAppends, "begin", apply),
    ]


def _tombstones_do_not_apply() -> Patches:
    put = DurableGroups.put

    def keep(self: DurableGroups, key: Any, value: Any) -> None:
        if value is not None or self not in live:
            put(self, key, value)

    live: list[DurableGroups] = []
    init = GroupStore.__init__

    def remember(self: GroupStore) -> None:
        init(self)
        live.append(self.durable)

    return [
        patch.object(DurableGroups, "put", keep),
        patch.object(GroupStore, "__init__", remember),
    ]


def _commits_under_way_count_as_stable() -> Patches:
    handle = offset_reads.handle

    def unstable(store: GroupStore, reply_id: int, request: Any) -> Effects:
        return handle(store, reply_id, request._replace(require_stable=False))

    return [patch.object(offset_reads, "handle", unstable)]


def _a_group_takes_commits_while_it_is_deleted() -> Patches:
    admit = offset_commits._admit_to_group

    def admit_all(group: Group, request: Any) -> ErrorCode:
        return ErrorCode.NONE if group.state is GroupState.DEAD else admit(group, request)

    return [patch.object(offset_commits, "_admit_to_group", admit_all)]


def _commits_under_way_outlive_their_group() -> Patches:
    delete = deletions._delete_next

    def forget_pending(store: GroupStore, group: Group, *arguments: Any) -> Effects:
        group.appends, appends = 0, group.appends
        group.pending_offsets, pending = {}, group.pending_offsets
        effects = delete(store, group, *arguments)
        group.appends += appends
        group.pending_offsets |= pending
        return effects

    return [patch.object(deletions, "_delete_next", forget_pending)]


def _fenced_members_go_on() -> Patches:
    def error(group: Group, member_id: str, instance_id: str | None, gen: int) -> ErrorCode:
        current = group.static_members.get(instance_id or "")
        if current is not None and gen == group.generation_id:
            return ErrorCode.NONE
        return member_error(group, member_id, instance_id)

    return [patch.object(offset_commits, "generation_error", error)]


def _a_static_id_is_answered_before_it_is_stored() -> Patches:
    keep = StaticMembers._store

    def answer(self: StaticMembers, store: GroupStore, replacement: Any) -> Effects:
        effects = keep(self, store, replacement)
        given = static_members._answer(replacement)
        return effects + membership.answer_join(store, replacement.group, replacement.member, given)

    return [patch.object(StaticMembers, "_store", answer)]


def _a_timer_that_is_early_is_not_set_again() -> Patches:
    fired = sessions.timer_fired

    def give_up(group: Group, member: Any, now: Any) -> Effects | None:
        if now.monotonic_ms < member.session_deadline_ms:
            member.session_timer_ms = None
            return []
        return fired(group, member, now)

    return [patch.object(sessions, "timer_fired", give_up)]


def _a_join_phase_has_no_end() -> Patches:
    return [patch.object(Rebalances, "timer_fired", lambda *_: [])]


def _members_that_do_not_sync_stay() -> Patches:
    return [patch.object(Rebalances, "sync_timer_fired", lambda *_: [])]


def _removed_members_are_not_answered() -> Patches:
    remove = membership.remove

    def forget(store: GroupStore, group: Group, member: Any) -> Effects:
        group.take_join_reply(member)
        member.sync_reply = None
        return remove(store, group, member)

    return [patch.object(membership, "remove", forget)]


def _syncs_are_not_answered_when_a_rebalance_begins() -> Patches:
    refuse = Rebalances._refuse_syncs

    def forget(self: Rebalances, group: Group, code: ErrorCode, now: Any) -> Effects:
        for member in group.members.values():
            member.sync_reply = None
        return refuse(self, group, code, now)

    return [patch.object(Rebalances, "_refuse_syncs", forget)]


def _heartbeats_do_not_say_that_a_group_rebalances() -> Patches:
    def silent(store: GroupStore, reply_id: int, request: Any, _now: Any) -> Effects:
        code = heartbeats.flaw(store.find(request.group_id), request)
        return [Reply(reply_id, HeartbeatAnswer(code))]

    return [patch.object(heartbeats, "handle", silent)]


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
