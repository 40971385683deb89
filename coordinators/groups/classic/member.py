"""A member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from echoless.coordinators.groups.requests import JoinGroup
from echoless.protocol.state_records.classic_group_value import ClassicMemberValue

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    """A member, its waiting requests and its session."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    """Name and metadata, the preferred one first."""
    assignment: bytes = b""
    join_reply: int | None = None
    """The JoinGroup that waits for the end of the join phase."""
    sync_reply: int | None = None
    """The SyncGroup that waits for the assignment."""
    is_new: bool = False
    """No JoinGroup of it has been answered yet; a session begins with the first answer."""
    was_given_id: bool = True
    """Whether the member knows its id; a client before JoinGroup v4 learns it with its first answer."""
    session_deadline_ms: int = 0
    session_timer_ms: int | None = None
    """The time of the session's timer, which may be earlier than the deadline: heartbeats set none."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata of the protocol; empty if the member does not support it."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def value(self, protocol_name: str | None, assignment: bytes) -> ClassicMemberValue:
        """The member as it is stored."""
        return ClassicMemberValue(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )


def joining_member(request: JoinGroup, member_id: str) -> Member:
    """The member that a JoinGroup adds."""
    return Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
        is_new=True,
        was_given_id=bool(request.member_id),
    )


def stored_member(value: ClassicMemberValue, protocol_name: str | None) -> Member:
    """The member that was stored: of its protocols only the chosen one is known."""
    return Member(
        value.member_id,
        value.group_instance_id,
        value.client_id,
        value.client_host,
        value.session_timeout_ms,
        value.rebalance_timeout_ms,
        ((protocol_name or "", value.subscription),),
        value.assignment,
    )


def protocol_bytes(protocols: Protocols) -> int:
    """An estimate of the memory that protocols take, in bytes."""
    return sum([len(name) + len(metadata) for name, metadata in protocols])
