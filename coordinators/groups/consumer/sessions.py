"""The sessions of members of the consumer protocol, and the times by which they have to give up partitions."""

from __future__ import annotations

from echoless.coordinators.effects import CancelTimer, SetTimer
from echoless.coordinators.events import Now
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer.group import ConsumerGroup, MemberSession
from echoless.coordinators.groups.effects import Effects, TimerKey, TimerKind
from echoless.protocol.state_records.consumer_group_values import ConsumerMemberState


class ConsumerSessions:
    """The deadlines of members, which all have the same session timeout."""

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config

    def extend(self, group: ConsumerGroup, member_id: str, now: Now) -> Effects:
        """Begin the session anew; and the time to give up partitions, if the member has been given other ones to."""
        session = group.sessions.setdefault(member_id, MemberSession())
        session.deadline_ms = self._deadline_ms(now)
        effects: Effects = []
        if session.timer_ms is None:
            effects = _set_timer(group, member_id, session)
        current, key = group.state.currents[member_id], _revocation_key(group, member_id)
        if current.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
            if session.revoke_by_ms is not None:
                session.revoke_by_ms = session.revoking = None
                effects.append(CancelTimer(key))
        elif session.revoking is not current.pending:
            timeout_ms = group.state.members[member_id].rebalance_timeout_ms
            session.revoking = current.pending
            session.revoke_by_ms = now.monotonic_ms + max(timeout_ms, 0)
            effects.append(SetTimer(key, session.revoke_by_ms))
        return effects

    def prolong(self, group: ConsumerGroup, member_id: str, now: Now) -> None:
        """Begin the session anew for a heartbeat that waits or is refused because something is being stored."""
        session = group.sessions.get(member_id)
        if session is not None:
            session.deadline_ms = self._deadline_ms(now)

    def timer_fired(self, group: ConsumerGroup, key: TimerKey, now: Now) -> Effects | None:
        """Return None if the member of a timer is late; else set the timer again, if it is still needed."""
        session = group.sessions.get(key.member_id)
        if session is None or key.member_id not in group.state.members:
            return []
        if key.kind is TimerKind.REVOCATION:
            has_to = (
                group.state.currents[key.member_id].state
                is ConsumerMemberState.UNREVOKED_PARTITIONS
            )
            by_ms = session.revoke_by_ms
            return None if has_to and by_ms is not None and now.monotonic_ms >= by_ms else []
        session.timer_ms = None
        if now.monotonic_ms >= session.deadline_ms:
            return None
        return _set_timer(group, key.member_id, session)

    def _deadline_ms(self, now: Now) -> int:
        return now.monotonic_ms + self._config.group_consumer_session_timeout_ms


def keys(group: ConsumerGroup, name: str | None) -> list[TimerKey]:
    """The sessions of the members with this member, instance or client id; None: of all."""
    return [
        _session_key(group, member_id)
        for member_id, value in group.state.members.items()
        if name is None or name in (member_id, value.instance_id, value.client_id)
    ]


def make_overdue(group: ConsumerGroup, key: TimerKey, now: Now) -> None:
    """Let the session end when its timer fires, if the member is still there."""
    session = group.sessions.get(key.member_id)
    if session is not None:
        session.deadline_ms = now.monotonic_ms


def end(group: ConsumerGroup, member_id: str) -> Effects:
    """Cancel the timers of a member that has gone."""
    effects: Effects = []
    session = group.sessions.pop(member_id, None)
    if session is not None:
        if session.timer_ms is not None:
            effects.append(CancelTimer(_session_key(group, member_id)))
        if session.revoke_by_ms is not None:
            effects.append(CancelTimer(_revocation_key(group, member_id)))
    return effects


def _set_timer(group: ConsumerGroup, member_id: str, session: MemberSession) -> Effects:
    session.timer_ms = session.deadline_ms
    return [SetTimer(_session_key(group, member_id), session.deadline_ms)]


def _session_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def _revocation_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REVOCATION, group.group_id, member_id)
