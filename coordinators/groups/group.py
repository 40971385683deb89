"""A classic group: its state, its generation and its members. Soft state, but for what is stored of it.

Invariant: `waiting_joins`, `static_members`, `protocol_bytes` and `_supporters` agree with `members`.
"""

from __future__ import annotations

import enum
from collections import Counter

from echoless.coordinators.groups.classic.member import (
    Member,
    Protocols,
    protocol_bytes,
    stored_member,
)
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.durable import DurableGroup
from echoless.protocol.state_records.classic_group_value import NO_TIMESTAMP, GroupValue
from echoless.protocol.state_records.subscription import subscribed_topics

CONSUMER = "consumer"
_SUBSCRIBED_TOPICS_MAX = 50_000


class GroupState(enum.Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """One group, with members or without."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending_members: dict[str, int] = {}
        """Ids handed out (79), and when each is forgotten."""
        self.static_members: dict[str, str] = {}
        self.waiting_joins = 0
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.rebalance_at_ms: int | None = None
        """When the join phase ends, even if members are missing."""
        self.initial_delay_left_ms: int | None = None
        """The time by which the initial delay may still be prolonged; None outside it."""
        self.was_joined_since_delay = False
        self.sync_at_ms: int | None = None
        self.generation_token: int | None = None
        """The append of the latest generation, until it is committed: no generation is known before."""
        self.assignment_token: int | None = None
        """The append of the leader's assignment."""
        self.appends = 0
        """Appends of this group that may still be committed."""
        self.pending_offsets: dict[tuple[str, int], int] = {}
        """The number of commits and deletions of an offset that are not committed yet; never 0."""
        self.protocol_bytes = 0
        self.consumer: ConsumerGroup | None = None
        """Members of the consumer protocol; such a group is otherwise an empty classic one."""
        self._supporters: Counter[str] = Counter()
        self._subscribed: tuple[int, frozenset[str] | None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, of either protocol."""
        has_consumers = self.consumer is not None and self.consumer.has_members
        return self.state is GroupState.EMPTY and not has_consumers

    @property
    def rebalance_timeout_ms(self) -> int:
        return max([member.rebalance_timeout_ms for member in self.members.values()], default=0)

    @property
    def has_all_joined(self) -> bool:
        return self.waiting_joins == len(self.members) and not self.pending_members

    @property
    def is_in_initial_delay(self) -> bool:
        return self.initial_delay_left_ms is not None

    def add(self, member: Member) -> None:
        """Add a member; the first one is the leader."""
        if not self.members:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        self.waiting_joins += member.join_reply is not None

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the oldest one becomes it."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self.pending_syncs.discard(member.member_id)
        self._count(member.protocols, -1)
        self.waiting_joins -= member.join_reply is not None
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id, in its place."""
        old = member.member_id
        member.member_id = member_id
        self.members = {one.member_id: one for one in self.members.values()}
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = member_id
        if old in self.pending_syncs:
            self.pending_syncs.remove(old)
            self.pending_syncs.add(member_id)
        if self.leader == old:
            self.leader = member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace the protocols of a member."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def wait_in_join(self, member: Member, reply_id: int) -> int | None:
        """Let the member wait for the end of the join phase. Returns the request that it waited with before."""
        before, member.join_reply = member.join_reply, reply_id
        self.waiting_joins += before is None
        return before

    def take_join_reply(self, member: Member) -> int | None:
        """The member's waiting JoinGroup, which waits no more."""
        reply_id, member.join_reply = member.join_reply, None
        self.waiting_joins -= reply_id is not None
        return reply_id

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join: all members have one of them in common."""
        if not self.members:
            return bool(protocol_type and protocols)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == everyone for name, _ in protocols
        )

    def elect_waiting_leader(self) -> bool:
        """Keep the leader if it waits in Join, or else choose a member that does. False if none does."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_reply is None:
            waiting = (one.member_id for one in self.members.values() if one.join_reply is not None)
            chosen = next(waiting, None)
            if chosen is None:
                return False
            self.leader = chosen
        return True

    def choose_protocol(self) -> str:
        """The protocol that most members prefer among those that all support; on a tie, the leader prefers it."""
        everyone = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everyone}
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        order = [name for name, _ in self.members[self.leader or ""].protocols]
        return max(votes, key=lambda name: (votes[name], -order.index(name)))

    def subscribed(self) -> frozenset[str] | None:
        """The topics that members of this generation subscribe to; None if that is not known.

        Read once a generation. More than 50,000 names are not read: nothing depends on them but expiry and
        OffsetDelete, which then spare every topic.
        """
        if self.protocol_type != CONSUMER or self.protocol_name is None:
            return None
        if self._subscribed is None or self._subscribed[0] != self.generation_id:
            self._subscribed = (self.generation_id, self._read_subscriptions())
        return self._subscribed[1]

    def _read_subscriptions(self) -> frozenset[str] | None:
        names: set[str] = set()
        read = 0
        for metadata in {member.metadata(self.protocol_name) for member in self.members.values()}:
            topics = subscribed_topics(metadata)
            read += len(topics or ())
            if topics is None or read > _SUBSCRIBED_TOPICS_MAX:
                return None
            names.update(topics)
        return frozenset(names)

    def value(self, assignments: dict[str, bytes] | None) -> GroupValue:
        """The group as it is stored; without assignments, as one whose generation has just begun."""
        given = assignments or {}
        return GroupValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader,
            self.state_timestamp,
            tuple(
                [
                    member.value(self.protocol_name, given.get(member_id, b""))
                    for member_id, member in self.members.items()
                ]
            ),
            is_rebalancing=assignments is None,
        )

    def _count(self, protocols: Protocols, change: int) -> None:
        self.protocol_bytes += change * protocol_bytes(protocols)
        for name in {name for name, _ in protocols}:
            self._supporters[name] += change
            if not self._supporters[name]:
                del self._supporters[name]


def stored_group(group_id: str, durable: DurableGroup) -> Group:
    """The group that is stored, with its members if it has any."""
    group = Group(group_id)
    value = durable.value
    if durable.consumer is not None:
        group.consumer = ConsumerGroup(group_id, durable.consumer.copy())
    if value is None:
        return group
    group.generation_id = max(value.generation_id, 0)
    group.protocol_type, group.protocol_name = value.protocol_type or None, value.protocol_name
    group.state_timestamp = value.state_timestamp
    for stored in value.members:
        if stored.member_id not in group.members:
            group.add(stored_member(stored, value.protocol_name))
    if group.members:
        group.state = GroupState.STABLE
        group.leader = value.leader if value.leader in group.members else next(iter(group.members))
    return group
