"""The rebalance of a group: the join phase, its end, and the generation that begins with it.

Invariant: no generation is answered before its number is committed, so no coordinator issues it to others.

While a generation is being stored no further join phase ends: those who join then share the next one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from echoless.coordinators.groups.answers import JoinAnswer, JoinedMember, SyncAnswer
from echoless.coordinators.groups.append_errors import group_code
from echoless.coordinators.groups.effects import TimerKey, TimerKind
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.member import Member
from echoless.coordinators.groups.membership import Membership
from echoless.coordinators.groups.sessions import Sessions
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey

_NO_ONE_WAITS_MS: Final = 1_000
"""Least time between looks at a join phase in which only absent static members are left: their timeout may be tiny."""


class Rebalances:
    """Moves groups from one generation to the next."""

    def __init__(self, groups: Groups, membership: Membership, sessions: Sessions) -> None:
        self._groups = groups
        self._membership = membership
        self._sessions = sessions
        self.completed = 0
        """Generations that have begun."""

    def begin(self, group: Group, reason: str) -> None:
        """Begin a join phase, unless one is under way; then end it if no one is missing."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.try_complete(group)
            return
        self._groups.note(
            f"group {shown(group.group_id)} rebalances from generation {group.generation_id}: {reason}"
        )
        was_empty = group.state is GroupState.EMPTY
        self._refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.state = GroupState.PREPARING_REBALANCE
        if was_empty:
            self._begin_initial_delay(group)
        else:
            self._set_rebalance_timer(group, group.rebalance_timeout_ms)
            self.try_complete(group)

    def try_complete(self, group: Group) -> None:
        """End the join phase if every member waits for its end."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_in_initial_delay
            and group.has_all_joined
            and group.generation_token is None
        ):
            self._complete(group)

    def remove(self, group: Group, members: list[Member], reason: str) -> None:
        """Remove members, and rebalance without them."""
        for member in members:
            self._groups.note(
                f"member {shown(member.member_id)} of group {shown(group.group_id)} {reason}"
            )
            self._membership.remove(group, member)
        if members and group.state is not GroupState.EMPTY:
            self.begin(group, f"{len(members)} members removed")

    def timer_fired(self, group: Group) -> None:
        """End the join phase if its time is over, without those who are missing."""
        if group.state is not GroupState.PREPARING_REBALANCE or group.rebalance_at_ms is None:
            return
        left_ms = group.rebalance_at_ms - self._groups.now.monotonic_ms
        if left_ms > 0:
            self._set_rebalance_timer(group, left_ms)
        elif group.initial_delay_left_ms and group.was_joined_since_delay:
            self._prolong_initial_delay(group, group.initial_delay_left_ms)
        elif group.generation_token is None:  # else once that one is stored
            self._complete(group)

    def sync_timer_fired(self, group: Group) -> None:
        """Remove the members that have not sent SyncGroup in time, static ones too."""
        if group.sync_at_ms is None:
            return
        if self._groups.now.monotonic_ms < group.sync_at_ms:
            self._groups.set_timer(_key(TimerKind.SYNC, group), group.sync_at_ms)
            return
        group.sync_at_ms = None
        late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
        self.remove(group, late, "has not sent SyncGroup within the rebalance timeout")

    def note_sync(self, group: Group, member: Member) -> None:
        """Count a SyncGroup; after the last one the timer ends."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._end_sync_timer(group)

    def assignment_failed(self, group: Group, code: ErrorCode) -> None:
        """Answer all waiting SyncGroups with the code, and rebalance: the assignment was not stored."""
        self._refuse_syncs(group, code)
        self.begin(group, f"the assignment could not be stored ({code.name})")

    # --- the join phase

    def _begin_initial_delay(self, group: Group) -> None:
        timeout = group.rebalance_timeout_ms
        delay = self._groups.config.group_initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(timeout - delay, 0)
        group.was_joined_since_delay = False
        self._set_rebalance_timer(group, min(delay, timeout))

    def _prolong_initial_delay(self, group: Group, left_ms: int) -> None:
        delay = min(self._groups.config.group_initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay
        group.was_joined_since_delay = False
        self._set_rebalance_timer(group, delay)

    def _set_rebalance_timer(self, group: Group, duration_ms: int) -> None:
        group.rebalance_at_ms = self._groups.now.monotonic_ms + duration_ms
        self._groups.set_timer(_key(TimerKind.REBALANCE, group), group.rebalance_at_ms)

    def _complete(self, group: Group) -> None:
        absent = [
            member
            for member in group.members.values()
            if member.join_reply is None and not member.is_static
        ]
        for member in absent:
            self._groups.note(
                f"member {shown(member.member_id)} of group {shown(group.group_id)} has not rejoined in time"
            )
            self._membership.remove(group, member)
        group.initial_delay_left_ms = None
        if group.members and not group.elect_waiting_leader():
            again_ms = max(group.rebalance_timeout_ms, _NO_ONE_WAITS_MS)
            self._set_rebalance_timer(group, again_ms)
            return
        group.rebalance_at_ms = None
        self._groups.cancel_timer(_key(TimerKind.REBALANCE, group))
        group.generation_id += 1
        if group.members:
            self._begin_generation(group)
        else:
            self._become_empty(group)

    # --- the generation

    def _begin_generation(self, group: Group) -> None:
        group.protocol_name = group.choose_protocol()
        self._set_state(group, GroupState.COMPLETING_REBALANCE)
        group.pending_syncs = set(group.members)
        for member in group.members.values():
            member.assignment = b""
        stored = partial(self._generation_stored, group, group.generation_id)
        group.generation_token = self._groups.append(
            group, [(GroupKey(group.group_id), group.value(None))], stored
        )

    def _generation_stored(self, group: Group, generation_id: int, code: ErrorCode) -> None:
        group.generation_token = None
        is_current = generation_id == group.generation_id
        if group.state is GroupState.COMPLETING_REBALANCE and is_current:
            if code is ErrorCode.NONE:
                self._answer_joins(group)
            else:
                self._generation_failed(group, group_code(code))
            return
        self.try_complete(group)
        self.timer_fired(group)

    def _answer_joins(self, group: Group) -> None:
        self.completed += 1
        for member in group.members.values():
            if member.join_reply is None:
                continue
            member.is_new = False
            self._sessions.extend(group, member)
            self._groups.reply(group.take_join_reply(member), self.current_answer(group, member))
        group.sync_at_ms = self._groups.now.monotonic_ms + group.rebalance_timeout_ms
        self._groups.set_timer(_key(TimerKind.SYNC, group), group.sync_at_ms)

    def current_answer(
        self, group: Group, member: Member, *, with_members: bool = True
    ) -> JoinAnswer:
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

    def _generation_failed(self, group: Group, code: ErrorCode) -> None:
        for member in group.members.values():
            if member.join_reply is not None:
                self._sessions.extend(group, member)
                member.is_new = False
                refused = JoinAnswer(code, member.member_id)
                self._groups.reply(group.take_join_reply(member), refused)
        self.begin(group, f"the generation could not be stored ({code.name})")

    def _become_empty(self, group: Group) -> None:
        self._set_state(group, GroupState.EMPTY)
        group.protocol_name = group.leader = None
        group.pending_syncs.clear()
        durable = self._groups.durable.groups.get(group.group_id)
        if group.appends or (durable is not None and durable.value is not None):
            record = (GroupKey(group.group_id), group.value({}))
            self._groups.append(group, [record], partial(self._emptiness_stored, group))

    def _emptiness_stored(self, group: Group, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._groups.note(
                f"group {shown(group.group_id)} has no members, which could not be stored: {code.name}"
            )

    def _set_state(self, group: Group, state: GroupState) -> None:
        group.state = state
        group.state_timestamp = self._groups.now.wall_ms

    # --- the assignment

    def _refuse_syncs(self, group: Group, code: ErrorCode) -> None:
        group.assignment_token = None
        self._end_sync_timer(group)
        for member in group.members.values():
            if member.sync_reply is not None:
                self._sessions.extend(group, member)
                self._groups.reply(member.sync_reply, SyncAnswer(code))
                member.sync_reply = None

    def _end_sync_timer(self, group: Group) -> None:
        if group.sync_at_ms is not None:
            group.sync_at_ms = None
            self._groups.cancel_timer(_key(TimerKind.SYNC, group))


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


def _key(kind: TimerKind, group: Group) -> TimerKey:
    return TimerKey(kind, group.group_id)
