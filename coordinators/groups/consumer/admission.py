"""Admits heartbeats, and applies what they change of the members of a group.

Invariant: a heartbeat of an earlier epoch, or of another incarnation of a member, changes nothing of what it has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.coordinators.effects import LogLine
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.consumer import sessions
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.reconciliation import Partitions
from echoless.coordinators.groups.consumer.request_checks import Refused
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    UNCHANGED,
    ConsumerHeartbeat,
)
from echoless.coordinators.groups.consumer.state import member_size
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import (
    ConsumerMemberState,
    CurrentValue,
    MemberValue,
    TargetValue,
)
from echoless.protocol.state_records.group_keys import CurrentKey, MemberKey, TargetKey

_JOINING: Final = CurrentValue(JOINS, JOINS, ConsumerMemberState.STABLE, {}, {})
_NOTHING: Final[Partitions] = frozenset()
_FULL: Final = "The consumer group has reached its maximum capacity."


class Admitted(NamedTuple):
    """A member whose heartbeat counts."""

    member_id: str
    owned: Partitions | None
    """The partitions that it says it owns; None if it does not say."""
    is_retry: bool = False
    """Whether the member does not know its present epoch: it may have been given more since (hazard H5)."""


class Admission:
    """Admits members to one group in one turn, and removes them."""

    def __init__(self, store: GroupStore, bounds: GroupBounds, group: ConsumerGroup) -> None:
        self._store = store
        self._bounds = bounds
        self._group = group
        self._state = group.state
        self.effects: Effects = []
        """The effects of joins and leaves, in their order."""

    def admit(self, request: ConsumerHeartbeat) -> Admitted | Refused:
        """Take a heartbeat that is not one of leaving."""
        member_id, instance_id = request.member_id or request.uuid, request.instance_id
        known = self._state.members.get(member_id)
        if instance_id is not None and (known is None or known.instance_id != instance_id):
            holder = self._state.instances.get(instance_id)
            if known is not None:
                return self._misnamed(holder, request)
            if holder is not None:
                return self._replace(holder, member_id, request)
        if known is None:
            return self._join(member_id, request)
        return self._go_on(member_id, known, request)

    def _misnamed(self, holder: str | None, request: ConsumerHeartbeat) -> Refused:
        """Refuse a member that comes under an instance id which is not its own."""
        if request.member_epoch == JOINS:
            reason = "The member id is that of a member with another instance id."
            return Refused(ErrorCode.INVALID_REQUEST, reason)
        if holder is None:
            return Refused(ErrorCode.UNKNOWN_MEMBER_ID, "The instance id is not in the group.")
        reason = "Another member has the static member's instance id."
        return Refused(ErrorCode.FENCED_INSTANCE_ID, reason)

    def _join(self, member_id: str, request: ConsumerHeartbeat) -> Admitted | Refused:
        if request.member_epoch != JOINS:
            return Refused(ErrorCode.UNKNOWN_MEMBER_ID, "The member is not in the group.")
        size = member_size(request.topic_names or (), request.topic_regex)
        has_room = (
            self._bounds.has_room_for_member(request.sharer)
            and self._bounds.has_room_for(size, request.sharer)
            and self._has_room_for_names(request)
        )
        if not has_room or len(self._state.members) >= self._bounds.config.group_consumer_max_size:
            return Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, _FULL)
        self._put_member(member_id, _member(request), request.sharer)
        self._put_current(member_id, _JOINING)
        self._group.must_bump = True
        self._changed(member_id, 1)
        return Admitted(member_id, _NOTHING)

    def _go_on(
        self, member_id: str, known: MemberValue, request: ConsumerHeartbeat
    ) -> Admitted | Refused:
        current, epoch = self._state.currents[member_id], request.member_epoch
        owned, is_retry = request.owned, False
        if not self._may_hold(known, request):
            return Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, _FULL)
        if current.epoch == LEAVES_FOR_A_WHILE and epoch == JOINS:
            self._return(member_id, member_id, request)
            return Admitted(member_id, _NOTHING)
        if epoch == JOINS and current.previous_epoch != JOINS:
            self._put_current(member_id, _JOINING)  # another incarnation: it owns nothing
            self._group.must_bump = True
            owned = _NOTHING
        elif epoch != current.epoch:
            is_retry = epoch == current.previous_epoch
            if not is_retry or owned is None or not owned <= current.assigned.keys():
                message = (
                    f"The consumer group member has another epoch ({epoch}) than the one known by "
                    f"the group coordinator ({current.epoch}). The member must abandon all its partitions and rejoin."
                )
                return Refused(ErrorCode.FENCED_MEMBER_EPOCH, message)
        self._update(member_id, known, request)
        return Admitted(member_id, owned, is_retry)

    def _replace(
        self, holder: str, member_id: str, request: ConsumerHeartbeat
    ) -> Admitted | Refused:
        """Take a static member that comes back with another id."""
        if request.member_epoch != JOINS:
            return Refused(
                ErrorCode.FENCED_INSTANCE_ID, "Another member has the static member's instance id."
            )
        if self._state.currents[holder].epoch != LEAVES_FOR_A_WHILE:
            return Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                "Another member with the same instance id is still in the group: it has to leave first.",
            )
        if not self._may_hold(self._state.members[holder], request):
            return Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, _FULL)
        self._return(holder, member_id, request)
        return Admitted(member_id, _NOTHING)

    def _may_hold(self, known: MemberValue, request: ConsumerHeartbeat) -> bool:
        """Whether there is room for what the member subscribes to from now on."""
        value = _updated(known, request)
        before = member_size(known.topic_names, known.topic_regex)
        more = member_size(value.topic_names, value.topic_regex) - before
        return self._bounds.has_room_for(more, request.sharer) and self._has_room_for_names(request)

    def _has_room_for_names(self, request: ConsumerHeartbeat) -> bool:
        """Whether the group may subscribe to what the request names besides what it subscribes to."""
        known, most = self._state.subscribed, self._bounds.config.group_topics_max
        names = request.topic_names or ()
        if len(known) + len(names) <= most:
            return True
        return len(known) + sum([name not in known for name in set(names)]) <= most

    def _return(self, holder: str, member_id: str, request: ConsumerHeartbeat) -> None:
        """Give a static member that is back what its earlier incarnation had, and was to have."""
        state, group_id = self._state, self._group.group_id
        assigned, value = state.currents[holder].assigned, state.members[holder]
        target = state.targets.get(holder)
        if holder != member_id:
            self._put_current(holder, None)
            self._group.put(TargetKey(group_id, holder), None)
            self._put_member(holder, None)
            self._changed(holder, -1)
            self._changed(member_id, 1)
        self._update(member_id, value, request)
        if target is not None:
            self._group.put(TargetKey(group_id, member_id), TargetValue(target))
        self._put_current(member_id, _JOINING._replace(assigned=assigned))

    def _update(self, member_id: str, known: MemberValue, request: ConsumerHeartbeat) -> None:
        value = _updated(known, request)
        if (value.topic_names, value.topic_regex) != (known.topic_names, known.topic_regex):
            self._group.must_bump = True
        self._put_member(member_id, value, request.sharer)

    # --- leaving

    def leave(self, request: ConsumerHeartbeat) -> Refused | None:
        """Take the heartbeat of a member that goes, for good or for a while."""
        member_id, instance_id = request.member_id, request.instance_id
        known = self._state.members.get(member_id)
        if instance_id is not None:
            holder = self._state.instances.get(instance_id)
            if holder is None:
                return Refused(ErrorCode.UNKNOWN_MEMBER_ID, "The member is not in the group.")
            if holder != member_id:
                message = "Another member has the static member's instance id."
                return Refused(ErrorCode.FENCED_INSTANCE_ID, message)
        if known is None:
            return Refused(ErrorCode.UNKNOWN_MEMBER_ID, "The member is not in the group.")
        if request.member_epoch == LEAVES:
            self.remove(member_id)
        else:
            assigned, epoch = self._state.currents[member_id].assigned, LEAVES_FOR_A_WHILE
            away = CurrentValue(epoch, epoch, ConsumerMemberState.STABLE, assigned, {})
            self._put_current(member_id, away)
        return None

    def remove(self, member_id: str) -> None:
        """Remove a member; what it has is free."""
        self._put_current(member_id, None)
        self._group.put(TargetKey(self._group.group_id, member_id), None)
        self._put_member(member_id, None)
        self._group.must_bump = True
        self._changed(member_id, -1)

    def _changed(self, member_id: str, change: int) -> None:
        """Count a member that comes (1) or goes (-1)."""
        self._store.members += change
        verb = "joins" if change > 0 else "leaves"
        line = f"{shown(member_id)} {verb} group {shown(self._group.group_id)}"
        self.effects.append(LogLine(line))
        if change < 0:
            self.effects += sessions.end(self._group, member_id)

    def _put_member(self, member_id: str, value: MemberValue | None, sharer: str = "") -> None:
        group_id, shares = self._group.group_id, self._store.shares
        self._group.put(MemberKey(group_id, member_id), value)
        if value is None:
            shares.drop_member(group_id, member_id)
        else:
            size = member_size(value.topic_names, value.topic_regex)
            shares.hold_member(group_id, member_id, sharer, size)

    def _put_current(self, member_id: str, value: CurrentValue | None) -> None:
        self._group.put(CurrentKey(self._group.group_id, member_id), value)


def _member(request: ConsumerHeartbeat) -> MemberValue:
    return MemberValue(
        request.instance_id,
        request.rack_id,
        request.client_id,
        request.client_host,
        tuple(sorted(set(request.topic_names or ()))),
        request.topic_regex or None,
        request.rebalance_timeout_ms,
        request.assignor,
    )


def _updated(known: MemberValue, request: ConsumerHeartbeat) -> MemberValue:
    names, regex = request.topic_names, request.topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return MemberValue(
        known.instance_id,
        known.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        known.topic_names if names is None else tuple(sorted(set(names))),
        known.topic_regex if regex is None else regex or None,
        known.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        known.assignor if request.assignor is None else request.assignor,
    )
