"""The groups of one coordinator: what is stored of them, what they are besides, and what is being appended.

The store knows no time, sets no bounds and has no effects: those who are given it return them. What is durable changes
in `commit` and nowhere else.
"""

from __future__ import annotations

from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.group import Group, stored_group
from echoless.coordinators.groups.handed_out_ids import HandedOutIds
from echoless.coordinators.groups.pending_appends import PendingAppend, PendingAppends
from echoless.coordinators.groups.shares import GroupShares
from echoless.coordinators.groups.usage import Usage


class GroupStore:
    """Groups and offsets, and the indexes over them."""

    def __init__(self) -> None:
        self.shares = GroupShares()
        self.durable = DurableGroups(self.shares)
        self.live: dict[str, Group] = {}
        """Groups with soft state. A stored group that is empty and idle has none, and is made when needed."""
        self.appends = PendingAppends(self.shares)
        self.unnamed: dict[int, tuple[Group, Member]] = {}
        """Members that wait in Join and do not know their ids yet, by their requests."""
        self.parked: dict[int, ConsumerGroup] = {}
        """The groups of requests that wait for an append of the consumer protocol."""
        self.reloading: set[str] = set()
        """Groups whose state was dropped (`recovery.py`), until their appends have ended."""
        self.members = 0
        """Members of all groups."""
        self.ids = HandedOutIds()
        self.protocol_bytes = 0
        self.rebalances_completed = 0
        """Generations that have begun, and targets that were made."""

    def find(self, group_id: str) -> Group | None:
        """The group; None if there is none."""
        group = self.live.get(group_id)
        if group is None:
            durable = self.durable.groups.get(group_id)
            if durable is None:
                return None
            group = self.live[group_id] = stored_group(group_id, durable)
        return group

    def create(self, group_id: str, sharer: str) -> Group:
        """Make a group, which is not there yet."""
        group = self.live[group_id] = Group(group_id)
        self.shares.give(group_id, sharer)
        return group

    def drop_live(self, group: Group) -> None:
        """Forget the soft state of a group."""
        self.live.pop(group.group_id, None)
        self._drop_share(group)

    def _drop_share(self, group: Group) -> None:
        """Count the group no longer, if nothing is left of it."""
        group_id = group.group_id
        if not (group_id in self.durable.groups or group_id in self.live or group.appends):
            self.shares.drop(group_id)

    def settle(self, group: Group) -> None:
        """Forget the soft state of a group that has none left."""
        if not group.is_empty or group.pending_members or group.appends:
            return
        if group.consumer is not None and group.consumer.has_waiting:
            return
        stored = self.durable.groups.get(group.group_id)
        if stored is None or stored.value is None or not stored.value.members:
            self.drop_live(group)

    def recount(self) -> None:
        """Count members and their protocols anew."""
        groups = self.live.values()
        named = [len(one.members) for one in groups]
        consumers = [one.consumer for one in groups if one.consumer is not None]
        self.members = sum(named) + sum([len(one.state.members) for one in consumers])
        self.protocol_bytes = sum([one.protocol_bytes for one in groups])

    def commit(self, token: int) -> PendingAppend:
        """Apply the records of an append that the high watermark has passed."""
        committed = self.appends.end(token)
        transaction = committed.transaction
        for key, value in committed.records:
            if transaction is None:
                self.durable.put(key, value)
            else:
                self.durable.put_in_transaction(transaction.producer_id, key, value)
        self._drop_share(committed.group)
        return committed

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply the offsets that a producer has committed in its transaction, or drop them."""
        for group_id in self.durable.end_transaction(producer_id, is_commit=is_commit):
            group = self.live.get(group_id)
            if group is not None:
                self.settle(group)
            elif group_id not in self.durable.groups:
                self.shares.drop(group_id)

    @property
    def usage(self) -> Usage:
        """The amount of what is bounded. Groups that are not stored yet are counted only if there are more."""
        durable, pending = self.durable, self.appends.usage
        return Usage(
            max(len(self.live), len(durable.groups)),
            self.members,
            len(self.ids),
            self.protocol_bytes + durable.size + pending.size,
            durable.metadata + pending.metadata,
            durable.offset_count + pending.offsets,
        )
