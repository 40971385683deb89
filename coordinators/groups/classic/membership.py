"""Adding, removing and answering members, and the ids that are handed out; counted in the store."""

from __future__ import annotations

from echoless.coordinators.effects import CancelTimer, SetTimer
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import JoinAnswer, SyncAnswer
from echoless.coordinators.groups.classic import sessions
from echoless.coordinators.groups.classic.member import Member, Protocols, protocol_bytes
from echoless.coordinators.groups.effects import Effects, TimerKey, TimerKind, replied
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.requests import JoinGroup
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode


def add(store: GroupStore, group: Group, member: Member, sharer: str) -> None:
    """Add a member, which counts towards the sharer."""
    group.add(member)
    size = protocol_bytes(member.protocols)
    store.members += 1
    store.protocol_bytes += size
    store.shares.hold_member(group.group_id, member.member_id, sharer, size)


def count_loaded(store: GroupStore, group: Group) -> None:
    """Count the members of a group that was loaded."""
    store.members += len(group.members)
    store.protocol_bytes += group.protocol_bytes


def set_protocols(
    store: GroupStore, group: Group, member: Member, protocols: Protocols, sharer: str
) -> None:
    """Replace the protocols of a member; if it was no one's, it counts towards the sharer from now on."""
    size = protocol_bytes(protocols)
    store.protocol_bytes += size - protocol_bytes(member.protocols)
    store.shares.hold_member(group.group_id, member.member_id, sharer, size)
    group.set_protocols(member, protocols)


def remove(store: GroupStore, group: Group, member: Member) -> Effects:
    """Remove a member. What it waits for is answered with UNKNOWN_MEMBER_ID."""
    code = ErrorCode.UNKNOWN_MEMBER_ID
    effects = answer_join(store, group, member, JoinAnswer(code, ""))
    effects += answer_sync(member, SyncAnswer(code))
    group.remove(member)
    store.members -= 1
    store.protocol_bytes -= protocol_bytes(member.protocols)
    store.shares.drop_member(group.group_id, member.member_id)
    return effects + sessions.end(group, member)


# --- what members wait for


def answer_join(store: GroupStore, group: Group, member: Member, answer: JoinAnswer) -> Effects:
    """Answer the JoinGroup that waits, if there is one."""
    return answer_earlier_join(store, group.take_join_reply(member), answer)


def answer_earlier_join(store: GroupStore, reply_id: int | None, answer: JoinAnswer) -> Effects:
    """Answer a JoinGroup that its member waits for no more. With the answer it knows its id."""
    if reply_id is None:
        return []
    store.unnamed.pop(reply_id, None)
    return replied(reply_id, answer)


def answer_sync(member: Member, answer: SyncAnswer) -> Effects:
    """Answer the SyncGroup that waits, if there is one."""
    reply_id, member.sync_reply = member.sync_reply, None
    return replied(reply_id, answer)


# --- ids that are handed out


def hand_out(
    store: GroupStore, group: Group, member_id: str, request: JoinGroup, now: Now
) -> Effects:
    """Keep an id for a member that is to join with it (79)."""
    at_ms = now.monotonic_ms + request.session_timeout_ms
    group.pending_members[member_id] = at_ms
    store.ids.add(group.group_id, member_id, request.sharer)
    return [SetTimer(_pending_key(group, member_id), at_ms)]


def take_back(store: GroupStore, group: Group, member_id: str) -> Effects:
    """Forget an id that was handed out."""
    del group.pending_members[member_id]
    store.ids.discard(group.group_id, member_id)
    return [CancelTimer(_pending_key(group, member_id))]


def pending_timer_fired(store: GroupStore, group: Group, member_id: str, now: Now) -> Effects:
    """Forget an id with which no one has joined in time."""
    at_ms = group.pending_members.get(member_id)
    if at_ms is None:
        return []
    if now.monotonic_ms < at_ms:
        return [SetTimer(_pending_key(group, member_id), at_ms)]
    return take_back(store, group, member_id)


def _pending_key(group: Group, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id)


# --- who may do something


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
