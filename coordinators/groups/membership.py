"""Adding and removing members, with what they take of the bounds of the coordinator."""

from __future__ import annotations

from echoless.coordinators.groups.answers import JoinAnswer, SyncAnswer
from echoless.coordinators.groups.effects import TimerKey, TimerKind
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.member import Member, Protocols, protocol_bytes
from echoless.coordinators.groups.sessions import Sessions
from echoless.protocol.errors import ErrorCode


class Membership:
    """The members of all groups of a coordinator, and the ids that were handed out."""

    def __init__(self, groups: Groups, sessions: Sessions) -> None:
        self._groups = groups
        self._sessions = sessions

    def has_room(self, group: Group) -> bool:
        """Whether one more member, or id, may be held.

        While members of the last generation are missing there may be twice as many as the group's size.
        """
        config = self._groups.config
        return (
            self._groups.has_room_for_member()
            and len(group.pending_members) < config.group_max_size
            and len(group.members) < 2 * config.group_max_size
        )

    def has_room_for(self, group: Group, protocols: Protocols, instead_of: Protocols = ()) -> bool:
        """Whether the protocols of a member may be held."""
        config = self._groups.config
        more = protocol_bytes(protocols) - protocol_bytes(instead_of)
        return more <= 0 or (
            group.protocol_bytes + more <= config.group_bytes_max
            and self._groups.has_room_for(more)
        )

    def add(self, group: Group, member: Member) -> None:
        """Add a member."""
        group.add(member)
        self._groups.members += 1
        self._groups.protocol_bytes += protocol_bytes(member.protocols)

    def count_loaded(self, group: Group) -> None:
        """Count the members of a group that was loaded."""
        self._groups.members += len(group.members)
        self._groups.protocol_bytes += group.protocol_bytes

    def set_protocols(self, group: Group, member: Member, protocols: Protocols) -> None:
        """Replace the protocols of a member."""
        change = protocol_bytes(protocols) - protocol_bytes(member.protocols)
        self._groups.protocol_bytes += change
        group.set_protocols(member, protocols)

    def remove(self, group: Group, member: Member) -> None:
        """Remove a member. What it waits for is answered with UNKNOWN_MEMBER_ID."""
        code = ErrorCode.UNKNOWN_MEMBER_ID
        self._groups.reply(group.take_join_reply(member), JoinAnswer(code, ""))
        self._groups.reply(member.sync_reply, SyncAnswer(code))
        member.sync_reply = None
        group.remove(member)
        self._sessions.end(group, member)
        self._groups.members -= 1
        self._groups.protocol_bytes -= protocol_bytes(member.protocols)

    def hand_out(self, group: Group, member_id: str, duration_ms: int) -> None:
        """Keep an id for a member that is to join with it (79)."""
        at_ms = self._groups.now.monotonic_ms + duration_ms
        group.pending_members[member_id] = at_ms
        self._groups.members += 1
        self._groups.set_timer(_pending_key(group, member_id), at_ms)

    def take_back(self, group: Group, member_id: str) -> None:
        """Forget an id that was handed out."""
        del group.pending_members[member_id]
        self._groups.members -= 1
        self._groups.cancel_timer(_pending_key(group, member_id))

    def pending_timer_fired(self, group: Group, member_id: str) -> None:
        """Forget an id with which no one has joined in time."""
        at_ms = group.pending_members.get(member_id)
        if at_ms is None:
            return
        if self._groups.now.monotonic_ms < at_ms:
            self._groups.set_timer(_pending_key(group, member_id), at_ms)
            return
        self.take_back(group, member_id)


def _pending_key(group: Group, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id)


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE if the member is in the group, and is the one that its instance id names."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is not None and current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(
    group: Group, member_id: str, instance_id: str | None, generation_id: int
) -> ErrorCode:
    """NONE if the member is in the group, and in this generation: a new one has not been given any."""
    code = member_error(group, member_id, instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation_id != group.generation_id or group.members[member_id].is_new:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE
