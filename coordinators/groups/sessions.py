"""Sessions of members. A heartbeat only moves a deadline: the timer, when it fires, is set again if it was too early."""

from __future__ import annotations

from echoless.coordinators.groups.effects import TimerKey, TimerKind
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.member import Member


class Sessions:
    """The deadlines of all members of a coordinator."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def extend(self, group: Group, member: Member) -> None:
        """Begin the session anew: the member has shown that it is alive."""
        self.wait(group, member, member.session_timeout_ms)

    def wait(self, group: Group, member: Member, duration_ms: int) -> None:
        """Give the member so much time from now on."""
        deadline = self._groups.now.monotonic_ms + duration_ms
        member.session_deadline_ms = deadline
        if member.session_timer_ms is None or member.session_timer_ms > deadline:
            self._set_timer(group, member)

    def has_expired(self, group: Group, member: Member) -> bool:
        """Whether the time of a member is over, now that its timer has fired; else the timer is set again.

        A member that waits in Join or Sync is alive, but for a new one: its connection may have ended unnoticed.
        """
        member.session_timer_ms = None
        is_waiting = member.join_reply is not None or member.sync_reply is not None
        if self._groups.now.monotonic_ms < member.session_deadline_ms:
            self._set_timer(group, member)
            return False
        if is_waiting and not member.is_new:
            self.extend(group, member)
            return False
        return True

    def keys(self, group: Group, name: str | None) -> list[TimerKey]:
        """The sessions of the members with this member, instance or client id; None: of all."""
        return [
            _key(group, one)
            for one in group.members.values()
            if name is None or name in (one.member_id, one.group_instance_id, one.client_id)
        ]

    def make_overdue(self, group: Group, key: TimerKey) -> None:
        """Let the session end when its timer fires, if the member is still there."""
        member = group.members.get(key.member_id)
        if member is not None:
            member.session_deadline_ms = self._groups.now.monotonic_ms

    def end(self, group: Group, member: Member) -> None:
        """Cancel the timer of a member that has gone."""
        if member.session_timer_ms is not None:
            self._groups.cancel_timer(_key(group, member))
            member.session_timer_ms = None

    def _set_timer(self, group: Group, member: Member) -> None:
        member.session_timer_ms = member.session_deadline_ms
        self._groups.set_timer(_key(group, member), member.session_deadline_ms)


def _key(group: Group, member: Member) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
