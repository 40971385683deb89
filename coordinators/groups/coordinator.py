"""The coordinator of the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
)
from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer.groups import ConsumerGroups
from echoless.coordinators.groups.consumer.topics import KnownTopics, NoTopics
from echoless.coordinators.groups.deleted_topic import DeletedTopic
from echoless.coordinators.groups.deletions import Deletions
from echoless.coordinators.groups.descriptions import described, listed
from echoless.coordinators.groups.effects import GroupEffect, TimerKey, TimerKind
from echoless.coordinators.groups.events import GroupEvent, RegexResolved, TargetMade
from echoless.coordinators.groups.expiry import Expiry
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.heartbeats import Heartbeats
from echoless.coordinators.groups.joins import Joins
from echoless.coordinators.groups.leaves import Leaves
from echoless.coordinators.groups.membership import Membership
from echoless.coordinators.groups.offset_commits import OffsetCommits
from echoless.coordinators.groups.offset_reads import OffsetReads
from echoless.coordinators.groups.rebalances import Rebalances
from echoless.coordinators.groups.requests import (
    DeleteGroup,
    DescribeGroup,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from echoless.coordinators.groups.sessions import Sessions
from echoless.coordinators.groups.syncs import Syncs
from echoless.coordinators.groups.usage import Usage


class GroupCoordinator:
    """One leader epoch's view of the groups: made when the partition is led, dropped when the lead is lost."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        usage: Callable[[], Usage] | None = None,
        topics: KnownTopics | None = None,
    ) -> None:
        """Bound what is held by `usage`, which counts all coordinators of a broker; None: this one alone.

        `topics` are those that members of the consumer protocol can subscribe to.
        """
        topics = topics or NoTopics()
        self._groups = groups = Groups(config, usage)
        self._sessions = sessions = Sessions(groups)
        self._membership = membership = Membership(groups, sessions)
        self._rebalances = rebalances = Rebalances(groups, membership, sessions)
        self._deletions = deletions = Deletions(groups, membership)
        self._expiry = Expiry(groups, deletions)
        self._joins = Joins(groups, membership, sessions, rebalances)
        self._syncs = Syncs(groups, sessions, rebalances)
        self._heartbeats = Heartbeats(groups, sessions)
        self._leaves = Leaves(groups, membership, rebalances)
        self._offset_commits = OffsetCommits(groups, sessions, topics)
        self._consumers = ConsumerGroups(groups, membership, topics, self._request)
        self._offset_reads = OffsetReads(groups)

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Replay a record of the log; only while loading. Returns why it was skipped, for a warning; else None.

        Raises `DecodeError` if the record cannot be read.
        """
        return self._groups.durable.apply(key, value)

    def start(self, now: Now) -> Iterator[list[GroupEffect]]:
        """Begin after the replay: what follows for one group after the other. Run to the end before any `step`.

        Raises `DecodeError` if the records of a group contradict each other.
        """
        for group_id, durable in list(self._groups.durable.groups.items()):
            if durable.value is not None and durable.value.members:
                self._groups.now = now
                self._begin(group_id, is_rebalancing=durable.value.is_rebalancing)
                yield self._groups.take_effects()
            elif durable.consumer is not None and (
                durable.consumer.members or durable.consumer.currents
            ):
                self._groups.now = now
                self._consumers.start(group_id)
                yield self._groups.take_effects()

    def step(self, event: GroupEvent, now: Now) -> list[GroupEffect]:
        """Handle an event, and return what follows from it."""
        groups = self._groups
        groups.now = now
        match event:
            case Requested():
                self._request(event.reply_id, event.request)
            case TimerFired():
                self._timer(event.key)
            case AppendCommitted():
                self._consumers.committed(groups.committed(event.token), event.token)
            case AppendFailed():
                groups.append_failed(event.token, event.error_code, may_commit=event.may_commit)
            case Abandoned():
                self._abandon(event.reply_id)
            case RegexResolved():
                self._consumers.resolved(event)
                self._settle(event.group_id)
            case TargetMade():
                self._consumers.assigned(event)
                self._settle(event.group_id)
        return groups.take_effects()

    def expire_offsets(self, now: Now) -> Iterator[list[GroupEffect]]:
        """Expire offsets and groups, a bounded number per item; steps may come between. Every ten minutes."""
        return self._expiry.expire(now)

    def forget_topic(self, topic: DeletedTopic, now: Now) -> Iterator[list[GroupEffect]]:
        """Remove the offsets of a deleted topic, a bounded number of groups per item; again until it `is_forgotten`."""
        return self._expiry.forget_topic(topic, now)

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListedGroup | None]:
        """The groups for ListGroups; filters ignore case, empty ones match all. None for one filtered out."""
        return listed(self._groups, states, types)

    def sessions_of(self, group_id: str, member: str | None) -> list[TimerKey]:
        """The sessions of a member, by its member, instance or client id; None: of all members."""
        group = self._groups.find(group_id)
        if group is None:
            return []
        if group.consumer is not None:
            return self._consumers.sessions.keys(group.consumer, member)
        return self._sessions.keys(group, member)

    def end_sessions(self, keys: Iterable[TimerKey]) -> None:
        """Make these sessions overdue: they end as soon as their timers fire."""
        for key in keys:
            group = self._groups.find(key.group_id)
            if group is not None and group.consumer is not None:
                self._consumers.sessions.make_overdue(group.consumer, key)
            elif group is not None:
                self._sessions.make_overdue(group, key)

    def committed(self) -> Iterator[CommittedOffset]:
        """The committed offsets, those of groups with members first; steps may come between."""
        durable = self._groups.durable.groups
        for group_id in list(dict.fromkeys(chain(self._groups.live, durable))):
            group = durable.get(group_id)
            for topic, offsets in [] if group is None else list(group.offsets.items()):
                for index, value in list(offsets.items()):
                    yield CommittedOffset(group_id, topic, index, value.offset)

    @property
    def usage(self) -> Usage:
        """How much it holds."""
        return self._groups.own_usage()

    @property
    def group_count(self) -> int:
        """How many groups there are, nearly enough: those that are not stored yet are counted only if there are more."""
        return self._groups.own_usage().groups

    @property
    def member_count(self) -> int:
        """Members of all groups, and ids that were handed out."""
        return self._groups.members

    @property
    def rebalances_completed(self) -> int:
        return self._rebalances.completed + self._consumers.targets_made

    def _begin(self, group_id: str, *, is_rebalancing: bool) -> None:
        group = self._groups.find(group_id)
        assert group is not None
        self._membership.count_loaded(group)
        for member in group.members.values():
            self._sessions.extend(group, member)
        if is_rebalancing:
            self._rebalances.begin(group, "the coordinator has moved during a rebalance")
        elif len(group.members) > self._groups.config.group_max_size:
            self._rebalances.begin(group, "it has more members than a group may have")

    def _request(self, reply_id: int, request: GroupRequest) -> None:
        if not self._consumers.takes(reply_id, request):
            self._request_of_either(reply_id, request)
        self._settle(request.group_id)

    def _request_of_either(self, reply_id: int, request: GroupRequest) -> None:
        """Process a request of the classic protocol, or one that both protocols have."""
        match request:
            case Heartbeat():
                self._heartbeats.handle(reply_id, request)
            case OffsetCommit():
                self._offset_commits.handle(reply_id, request)
            case OffsetFetch():
                self._offset_reads.handle(reply_id, request)
            case JoinGroup():
                self._joins.handle(reply_id, request)
            case SyncGroup():
                self._syncs.handle(reply_id, request)
            case LeaveGroup():
                self._leaves.handle(reply_id, request)
            case OffsetDelete():
                self._deletions.delete_offsets(reply_id, request)
            case DeleteGroup():
                self._deletions.delete_group(reply_id, request)
            case DescribeGroup():
                self._groups.reply(reply_id, described(self._groups.find(request.group_id)))

    def _timer(self, key: TimerKey) -> None:
        group = self._groups.live.get(key.group_id)
        if group is None:
            return
        if group.consumer is not None:
            self._consumers.timer_fired(group, group.consumer, key)
            self._settle(key.group_id)
            return
        match key.kind:
            case TimerKind.REBALANCE:
                self._rebalances.timer_fired(group)
            case TimerKind.SYNC:
                self._rebalances.sync_timer_fired(group)
            case TimerKind.PENDING_MEMBER:
                self._membership.pending_timer_fired(group, key.member_id)
                self._rebalances.try_complete(group)
            case TimerKind.SESSION:
                member = group.members.get(key.member_id)
                if member is not None and self._sessions.has_expired(group, member):
                    self._rebalances.remove(group, [member], "has let its session expire")
        self._settle(key.group_id)

    def _abandon(self, reply_id: int) -> None:
        """Remove a member that does not know its id yet: it will come back as another one."""
        self._consumers.abandon(reply_id)
        found = self._groups.unnamed.pop(reply_id, None)
        if found is None:
            return
        group, member = found
        if group.members.get(member.member_id) is member and member.join_reply == reply_id:
            self._rebalances.remove(group, [member], "has gone before it was given its id")
            self._settle(group.group_id)

    def _settle(self, group_id: str) -> None:
        group = self._groups.live.get(group_id)
        if group is not None:
            self._groups.settle(group)
