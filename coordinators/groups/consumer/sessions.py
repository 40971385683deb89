"""The sessions of members of the consumer protocol, and the times by which they have to give up partitions."""

from __future__ import annotations

from echoless.coordinators.groups.consumer.group import ConsumerGroup, MemberSession
from echoless.coordinators.groups.effects import TimerKey, TimerKind
from echoless.coordinators.groups.groups import Groups
from echoless.protocol.state_records.consumer_group_values import ConsumerMemberState


class ConsumerSessions:
    """The deadlines of the members of all groups of a coordinator."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def extend(self, group: ConsumerGroup, member_id: str) -> None:
        """Begin the session anew; and the time to give up partitions, if the member has been given other ones to."""
        session = group.sessions.setdefault(member_id, MemberSession())
        now_ms = self._groups.now.monotonic_ms
        session.deadline_ms = self._deadline_ms()
        if session.timer_ms is None:
            self._set_timer(group, member_id, session)
        current, key = group.state.currents[member_id], _revocation_key(group, member_id)
        if current.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
            if session.revoke_by_ms is not None:
                session.revoke_by_ms = session.revoking = None
                self._groups.cancel_timer(key)
        elif session.revoking is not current.pending:
            timeout_ms = group.state.members[member_id].rebalance_timeout_ms
            session.revoking = current.pending
            session.revoke_by_ms = now_ms + max(timeout_ms, 0)
            self._groups.set_timer(key, session.revoke_by_ms)

    def prolong(self, group: ConsumerGroup, member_id: str) -> None:
        """Begin the session anew for a heartbeat that waits or is refused because something is being stored."""
        session = group.sessions.get(member_id)
        if session is not None:
            session.deadline_ms = self._deadline_ms()

    def has_ended(self, group: ConsumerGroup, key: TimerKey) -> bool:
        """Whether the member of a timer that has fired is late; else the timer is set again."""
        session = group.sessions.get(key.member_id)
        if session is None or key.member_id not in group.state.members:
            return False
        now_ms = self._groups.now.monotonic_ms
        if key.kind is TimerKind.REVOCATION:
            has_to = (
                group.state.currents[key.member_id].state
                is ConsumerMemberState.UNREVOKED_PARTITIONS
            )
            by_ms = session.revoke_by_ms
            return has_to and by_ms is not None and now_ms >= by_ms
        session.timer_ms = None
        if now_ms >= session.deadline_ms:
            return True
        self._set_timer(group, key.member_id, session)
        return False

    def keys(self, group: ConsumerGroup, name: str | None) -> list[TimerKey]:
        """The sessions of the members with this member, instance or client id; None: of all."""
        return [
            _session_key(group, member_id)
            for member_id, value in group.state.members.items()
            if name is None or name in (member_id, value.instance_id, value.client_id)
        ]

    def make_overdue(self, group: ConsumerGroup, key: TimerKey) -> None:
        """Let the session end when its timer fires, if the member is still there."""
        session = group.sessions.get(key.member_id)
        if session is not None:
            session.deadline_ms = self._groups.now.monotonic_ms

    def end(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel the timers of a member that has gone."""
        session = group.sessions.pop(member_id, None)
        if session is not None:
            if session.timer_ms is not None:
                self._groups.cancel_timer(_session_key(group, member_id))
            if session.revoke_by_ms is not None:
                self._groups.cancel_timer(_revocation_key(group, member_id))

    def _deadline_ms(self) -> int:
        timeout_ms = self._groups.config.group_consumer_session_timeout_ms
        return self._groups.now.monotonic_ms + timeout_ms

    def _set_timer(self, group: ConsumerGroup, member_id: str, session: MemberSession) -> None:
        session.timer_ms = session.deadline_ms
        self._groups.set_timer(_session_key(group, member_id), session.deadline_ms)


def _session_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def _revocation_key(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REVOCATION, group.group_id, member_id)
