"""The rebalance of a group: the join phase, its end, and the generation that begins with it.

Invariant: no generation is answered before its number is committed, so no coordinator issues it to others.

While a generation is being stored no further join phase ends: those who join then share the next one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from echoless.coordinators.append_errors import coordinator_code
from echoless.coordinators.effects import CancelTimer, LogLine, SetTimer
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import JoinAnswer, JoinedMember, SyncAnswer
from echoless.coordinators.groups.classic import membership, sessions
from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.effects import Effects, TimerKey, TimerKind
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey

_NO_ONE_WAITS_MS: Final = 1_000
"""Least time between looks at a join phase in which only absent static members are left: their timeout may be tiny."""


class Rebalances:
    """Moves groups from one generation to the next."""

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config

    def begin(self, store: GroupStore, group: Group, reason: str, now: Now) -> Effects:
        """Begin a join phase, unless one is under way; then end it if no one is missing."""
        if group.state is GroupState.PREPARING_REBALANCE:
            return self.try_complete(store, group, now)
        effects: Effects = [
            LogLine(
                f"group {shown(group.group_id)} rebalances from generation {group.generation_id}: {reason}"
            )
        ]
        was_empty = group.state is GroupState.EMPTY
        effects += self._refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.state = GroupState.PREPARING_REBALANCE
        if was_empty:
            return effects + self._begin_initial_delay(group, now)
        effects += _set_rebalance_timer(group, group.rebalance_timeout_ms, now)
        return effects + self.try_complete(store, group, now)

    def try_complete(self, store: GroupStore, group: Group, now: Now) -> Effects:
        """End the join phase if every member waits for its end."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_in_initial_delay
            and group.has_all_joined
            and group.generation_token is None
        ):
            return self._complete(store, group, now)
        return []

    def remove(
        self, store: GroupStore, group: Group, members: list[Member], reason: str, now: Now
    ) -> Effects:
        """Remove members, and rebalance without them."""
        effects: Effects = []
        for member in members:
            effects.append(_member_line(group, member, reason))
            effects += membership.remove(store, group, member)
        if members and group.state is not GroupState.EMPTY:
            effects += self.begin(store, group, f"{len(members)} members removed", now)
        return effects

    def timer_fired(self, store: GroupStore, group: Group, now: Now) -> Effects:
        """End the join phase if its time is over, without those who are missing."""
        if group.state is not GroupState.PREPARING_REBALANCE or group.rebalance_at_ms is None:
            return []
        left_ms = group.rebalance_at_ms - now.monotonic_ms
        if left_ms > 0:
            return _set_rebalance_timer(group, left_ms, now)
        if group.initial_delay_left_ms and group.was_joined_since_delay:
            return self._prolong_initial_delay(group, group.initial_delay_left_ms, now)
        if group.generation_token is None:  # else once that one is stored
            return self._complete(store, group, now)
        return []

    def sync_timer_fired(self, store: GroupStore, group: Group, now: Now) -> Effects:
        """Remove the members that have not sent SyncGroup in time, static ones too."""
        if group.sync_at_ms is None:
            return []
        if now.monotonic_ms < group.sync_at_ms:
            return [SetTimer(_key(TimerKind.SYNC, group), group.sync_at_ms)]
        group.sync_at_ms = None
        late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
        reason = "has not sent SyncGroup within the rebalance timeout"
        return self.remove(store, group, late, reason, now)

    def note_sync(self, group: Group, member: Member) -> Effects:
        """Count a SyncGroup; after the last one the timer ends."""
        group.pending_syncs.discard(member.member_id)
        return [] if group.pending_syncs else _end_sync_timer(group)

    def assignment_failed(
        self, store: GroupStore, group: Group, code: ErrorCode, now: Now
    ) -> Effects:
        """Answer all waiting SyncGroups with the code, and rebalance: the assignment was not stored."""
        effects = self._refuse_syncs(group, code, now)
        reason = f"the assignment could not be stored ({code.name})"
        return effects + self.begin(store, group, reason, now)

    # --- the join phase

    def _begin_initial_delay(self, group: Group, now: Now) -> Effects:
        timeout = group.rebalance_timeout_ms
        delay = self._config.group_initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(timeout - delay, 0)
        group.was_joined_since_delay = False
        return _set_rebalance_timer(group, min(delay, timeout), now)

    def _prolong_initial_delay(self, group: Group, left_ms: int, now: Now) -> Effects:
        delay = min(self._config.group_initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay
        group.was_joined_since_delay = False
        return _set_rebalance_timer(group, delay, now)

    def _complete(self, store: GroupStore, group: Group, now: Now) -> Effects:
        absent = [
            member
            for member in group.members.values()
            if member.join_reply is None and not member.is_static
        ]
        effects: Effects = []
        for member in absent:
            effects.append(_member_line(group, member, "has not rejoined in time"))
            effects += membership.remove(store, group, member)
        group.initial_delay_left_ms = None
        if group.members and not group.elect_waiting_leader():
            again_ms = max(group.rebalance_timeout_ms, _NO_ONE_WAITS_MS)
            return effects + _set_rebalance_timer(group, again_ms, now)
        group.rebalance_at_ms = None
        effects.append(CancelTimer(_key(TimerKind.REBALANCE, group)))
        group.generation_id += 1
        if group.members:
            return effects + self._begin_generation(store, group, now)
        return effects + _become_empty(store, group, now)

    # --- the generation

    def _begin_generation(self, store: GroupStore, group: Group, now: Now) -> Effects:
        group.protocol_name = group.choose_protocol()
        _set_state(group, GroupState.COMPLETING_REBALANCE, now)
        group.pending_syncs = set(group.members)
        for member in group.members.values():
            member.assignment = b""
        record = (GroupKey(group.group_id), group.value(None))
        stored = partial(self._generation_stored, store, group, group.generation_id)
        append = store.appends.begin(group, [record], stored)
        group.generation_token = append.token
        return [append]

    def _generation_stored(
        self, store: GroupStore, group: Group, generation_id: int, code: ErrorCode, now: Now
    ) -> Effects:
        group.generation_token = None
        is_current = generation_id == group.generation_id
        if group.state is GroupState.COMPLETING_REBALANCE and is_current:
            if code is ErrorCode.NONE:
                return self._answer_joins(store, group, now)
            return self._generation_failed(store, group, coordinator_code(code), now)
        effects = self.try_complete(store, group, now)
        return effects + self.timer_fired(store, group, now)

    def _answer_joins(self, store: GroupStore, group: Group, now: Now) -> Effects:
        store.rebalances_completed += 1
        effects: Effects = []
        for member in group.members.values():
            if member.join_reply is None:
                continue
            member.is_new = False
            effects += sessions.extend(group, member, now)
            effects += membership.answer_join(store, group, member, current_answer(group, member))
        group.sync_at_ms = now.monotonic_ms + group.rebalance_timeout_ms
        effects.append(SetTimer(_key(TimerKind.SYNC, group), group.sync_at_ms))
        return effects

    def _generation_failed(
        self, store: GroupStore, group: Group, code: ErrorCode, now: Now
    ) -> Effects:
        effects: Effects = []
        for member in group.members.values():
            if member.join_reply is not None:
                effects += sessions.extend(group, member, now)
                member.is_new = False
                refused = JoinAnswer(code, member.member_id)
                effects += membership.answer_join(store, group, member, refused)
        reason = f"the generation could not be stored ({code.name})"
        return effects + self.begin(store, group, reason, now)

    # --- the assignment

    def _refuse_syncs(self, group: Group, code: ErrorCode, now: Now) -> Effects:
        group.assignment_token = None
        effects = _end_sync_timer(group)
        for member in group.members.values():
            if member.sync_reply is not None:
                effects += sessions.extend(group, member, now)
                effects += membership.answer_sync(member, SyncAnswer(code))
        return effects


def current_answer(group: Group, member: Member, *, with_members: bool = True) -> JoinAnswer:
    """The answer to JoinGroup in this generation; the members for the leader only."""
    is_leader = member.member_id == group.leader
    return JoinAnswer(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader or "",
        joined_members(group) if is_leader and with_members else (),
    )


def joined_members(group: Group) -> tuple[JoinedMember, ...]:
    """The members, with their metadata of the chosen protocol."""
    return tuple(
        [
            JoinedMember(
                member.member_id, member.group_instance_id, member.metadata(group.protocol_name)
            )
            for member in group.members.values()
        ]
    )


def _become_empty(store: GroupStore, group: Group, now: Now) -> Effects:
    _set_state(group, GroupState.EMPTY, now)
    group.protocol_name = group.leader = None
    group.pending_syncs.clear()
    durable = store.durable.groups.get(group.group_id)
    if group.appends or (durable is not None and durable.value is not None):
        record = (GroupKey(group.group_id), group.value({}))
        return [store.appends.begin(group, [record], partial(_emptiness_stored, group))]
    return []


def _emptiness_stored(group: Group, code: ErrorCode, _now: Now) -> Effects:
    if code is ErrorCode.NONE:
        return []
    return [
        LogLine(
            f"group {shown(group.group_id)} has no members, which could not be stored: {code.name}"
        )
    ]


def _set_state(group: Group, state: GroupState, now: Now) -> None:
    group.state = state
    group.state_timestamp = now.wall_ms


def _set_rebalance_timer(group: Group, duration_ms: int, now: Now) -> Effects:
    group.rebalance_at_ms = now.monotonic_ms + duration_ms
    return [SetTimer(_key(TimerKind.REBALANCE, group), group.rebalance_at_ms)]


def _end_sync_timer(group: Group) -> Effects:
    if group.sync_at_ms is None:
        return []
    group.sync_at_ms = None
    return [CancelTimer(_key(TimerKind.SYNC, group))]


def _member_line(group: Group, member: Member, what: str) -> LogLine:
    return LogLine(f"member {shown(member.member_id)} of group {shown(group.group_id)} {what}")


def _key(kind: TimerKind, group: Group) -> TimerKey:
    return TimerKey(kind, group.group_id)
