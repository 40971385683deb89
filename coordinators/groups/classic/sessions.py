"""Sessions of members. A heartbeat only moves a deadline: the timer, when it fires, is set again if it was too early."""

from __future__ import annotations

from echoless.coordinators.effects import CancelTimer, SetTimer
from echoless.coordinators.events import Now
from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.effects import Effects, TimerKey, TimerKind
from echoless.coordinators.groups.group import Group


def extend(group: Group, member: Member, now: Now) -> Effects:
    """Begin the session anew: the member has shown that it is alive."""
    return wait(group, member, member.session_timeout_ms, now)


def wait(group: Group, member: Member, duration_ms: int, now: Now) -> Effects:
    """Give the member so much time from now on."""
    deadline = now.monotonic_ms + duration_ms
    member.session_deadline_ms = deadline
    if member.session_timer_ms is None or member.session_timer_ms > deadline:
        return _set_timer(group, member)
    return []


def timer_fired(group: Group, member: Member, now: Now) -> Effects | None:
    """Return None if the time of the member is over; else set its timer again.

    A member that waits in Join or Sync is alive, but for a new one: its connection may have ended unnoticed.
    """
    member.session_timer_ms = None
    is_waiting = member.join_reply is not None or member.sync_reply is not None
    if now.monotonic_ms < member.session_deadline_ms:
        return _set_timer(group, member)
    if is_waiting and not member.is_new:
        return extend(group, member, now)
    return None


def keys(group: Group, name: str | None) -> list[TimerKey]:
    """The sessions of the members with this member, instance or client id; None: of all."""
    return [
        _key(group, one)
        for one in group.members.values()
        if name is None or name in (one.member_id, one.group_instance_id, one.client_id)
    ]


def make_overdue(group: Group, key: TimerKey, now: Now) -> None:
    """Let the session end when its timer fires, if the member is still there."""
    member = group.members.get(key.member_id)
    if member is not None:
        member.session_deadline_ms = now.monotonic_ms


def end(group: Group, member: Member) -> Effects:
    """Cancel the timer of a member that has gone."""
    if member.session_timer_ms is None:
        return []
    member.session_timer_ms = None
    return [CancelTimer(_key(group, member))]


def _set_timer(group: Group, member: Member) -> Effects:
    member.session_timer_ms = member.session_deadline_ms
    return [SetTimer(_key(group, member), member.session_deadline_ms)]


def _key(group: Group, member: Member) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
