"""The coordinator of the groups of one partition of `__consumer_offsets`.

Pure: an event and the time in, effects out. `GroupStore` is all that changes; the parts that are given it return effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
    TransactionEnded,
)
from echoless.coordinators.groups import (
    deletions,
    expiry,
    offset_reads,
    recovery,
    transactional_commits,
)
from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.classic import heartbeats, membership, sessions
from echoless.coordinators.groups.classic.joins import Joins
from echoless.coordinators.groups.classic.leaves import Leaves
from echoless.coordinators.groups.classic.rebalances import Rebalances
from echoless.coordinators.groups.classic.syncs import Syncs
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer import parking
from echoless.coordinators.groups.consumer import sessions as consumer_sessions
from echoless.coordinators.groups.consumer.groups import ConsumerGroups
from echoless.coordinators.groups.consumer.topics import KnownTopics, NoTopics
from echoless.coordinators.groups.deleted_topic import DeletedTopic
from echoless.coordinators.groups.descriptions import described, listed, state_name
from echoless.coordinators.groups.effects import Effects, TimerKey, TimerKind
from echoless.coordinators.groups.events import GroupEvent, RegexResolved, TargetMade
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.offset_commits import OffsetCommits
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
    TransactionalOffsetCommit,
)
from echoless.coordinators.groups.store import GroupStore
from echoless.coordinators.groups.usage import Usage
from echoless.coordinators.groups.while_loading import refusal_while_loading
from echoless.coordinators.recovery import Recovery
from echoless.protocol.errors import ErrorCode


class GroupCoordinator:
    """One leader epoch's view of the groups: made when the partition is led, dropped when the lead is lost."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        usage: Callable[[], Usage] | None = None,
        topics: KnownTopics | None = None,
        used_by: Callable[[str], Usage] | None = None,
    ) -> None:
        """Bound what is held by `usage`, which counts all coordinators of a broker; None: this one alone.

        `used_by` counts what of it is one sharer's.
        `topics` are those that members of the consumer protocol can subscribe to.
        """
        topics = topics or NoTopics()
        self._store = store = GroupStore()
        self._bounds = bounds = GroupBounds(
            config, usage or (lambda: store.usage), used_by or store.shares.used_by
        )
        self._rebalances = rebalances = Rebalances(config)
        self._joins = Joins(bounds, rebalances)
        self._syncs = Syncs(bounds, rebalances)
        self._leaves = Leaves(rebalances)
        self._offset_commits = OffsetCommits(bounds, topics)
        self._consumers = ConsumerGroups(bounds, topics, self._request)
        self._last_token = 0
        """The last append before this step."""
        self._ended: str | None = None
        """The group whose append this step has ended; None until that is done."""

    # --- loading

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Replay a record of the log; only while loading. Returns why it was skipped, for a warning; else None.

        Raises `DecodeError` if the record cannot be read.
        """
        return self._store.durable.apply(key, value)

    def apply_in_transaction(self, producer_id: int, key: bytes, value: bytes | None) -> str | None:
        """Replay a record of a transactional batch; see `apply`."""
        return self._store.durable.apply_in_transaction(producer_id, key, value)

    def end_replayed_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Replay a marker."""
        self._store.durable.end_transaction(producer_id, is_commit=is_commit)

    def start(self, now: Now) -> Iterator[Effects]:
        """Begin after the replay, a step for each group. Run to the end before any `step`.

        Raises `DecodeError` if the records of a group contradict each other.
        """
        for group_id in list(self._store.durable.groups):
            yield self._load(group_id, now)

    def _load(self, group_id: str, now: Now) -> Effects:
        """Serve a group from what is durable of it; one without members when it is asked about."""
        durable = self._store.durable.groups.get(group_id)
        if durable is None:
            return []
        if durable.value is not None and durable.value.members:
            return self._begin(group_id, now, is_rebalancing=durable.value.is_rebalancing)
        if durable.consumer is not None and (durable.consumer.members or durable.consumer.currents):
            return self._consumers.start(self._store, group_id, now)
        return []

    def _begin(self, group_id: str, now: Now, *, is_rebalancing: bool) -> Effects:
        group = self._store.find(group_id)
        assert group is not None
        membership.count_loaded(self._store, group)
        effects: Effects = []
        for member in group.members.values():
            effects += sessions.extend(group, member, now)
        if is_rebalancing:
            reason = "the coordinator has moved during a rebalance"
            effects += self._rebalances.begin(self._store, group, reason, now)
        elif len(group.members) > self._bounds.config.group_max_size:
            reason = "it has more members than a group may have"
            effects += self._rebalances.begin(self._store, group, reason, now)
        return effects

    # --- events

    def step(self, event: GroupEvent, now: Now) -> Effects:
        """Handle an event, and return what follows from it. After an exception only `recover` may be called."""
        self._last_token = self._store.appends.last_token
        match event:
            case Requested():
                return self._request(event.reply_id, event.request, now)
            case TimerFired():
                return self._timer(event.key, now)
            case AppendCommitted():
                return self._committed(event.token, now)
            case AppendFailed():
                return self._append_failed(event, now)
            case TransactionEnded():
                self._store.end_transaction(event.producer_id, is_commit=event.is_commit)
                return []
            case Abandoned():
                return self._abandon(event.reply_id, now)
            case RegexResolved():
                return self._settled(
                    event.group_id, self._consumers.resolved(self._store, event, now)
                )
            case TargetMade():
                return self._settled(
                    event.group_id, self._consumers.target_made(self._store, event, now)
                )

    def recover(self, event: GroupEvent, now: Now) -> Recovery | None:
        """Drop what an event that raised may have half changed: its group is loaded again, once that can be done.

        Returns None if more than a group is in doubt.
        """
        match event:
            case Requested():
                group_id = event.request.group_id
            case TimerFired():
                group_id = event.key.group_id
            case RegexResolved() | TargetMade():
                group_id = event.group_id
            case _:
                if self._ended is None or isinstance(event, Abandoned | TransactionEnded):
                    return None
                group_id = self._ended
        group = recovery.take_out(self._store, group_id, self._last_token)
        return Recovery(group_id, self._load_again(group, now))

    def _load_again(self, group: Group, now: Now) -> Effects:
        """Load a group that was taken out, if all its appends have ended."""
        is_ready = recovery.may_load(self._store, group)
        return self._load(group.group_id, now) if is_ready else []

    def _request(self, reply_id: int, request: GroupRequest, now: Now) -> Effects:
        if request.group_id in self._store.reloading:
            return [Reply(reply_id, refusal_while_loading(request))]
        effects = self._consumers.handle(self._store, reply_id, request, now)
        if effects is None:
            effects = self._request_of_either(reply_id, request, now)
        return self._settled(request.group_id, effects)

    def _request_of_either(self, reply_id: int, request: GroupRequest, now: Now) -> Effects:
        """Process a request of the classic protocol, or one that both protocols have."""
        store = self._store
        match request:
            case Heartbeat():
                return heartbeats.handle(store, reply_id, request, now)
            case OffsetCommit() | TransactionalOffsetCommit():
                return self._commit(reply_id, request, now)
            case OffsetFetch():
                return offset_reads.handle(store, reply_id, request)
            case JoinGroup():
                return self._joins.handle(store, reply_id, request, now)
            case SyncGroup():
                return self._syncs.handle(store, reply_id, request, now)
            case LeaveGroup():
                return self._leaves.handle(store, reply_id, request, now)
            case OffsetDelete():
                config = self._bounds.config
                return deletions.delete_offsets(store, config, reply_id, request, now)
            case DeleteGroup():
                return deletions.delete_group(store, reply_id, request, now)
            case DescribeGroup():
                return [Reply(reply_id, described(store.find(request.group_id)))]
            case _:
                raise AssertionError(request)  # the consumer protocol's own, which never come here

    def _commit(
        self, reply_id: int, request: OffsetCommit | TransactionalOffsetCommit, now: Now
    ) -> Effects:
        if isinstance(request, OffsetCommit):
            return self._offset_commits.handle(self._store, reply_id, request, now)
        return transactional_commits.handle(self._store, self._bounds, reply_id, request, now)

    def _committed(self, token: int, now: Now) -> Effects:
        """Continue with an append that the high watermark has passed."""
        self._ended = None
        committed = self._store.commit(token)
        group, continuation = committed.group, committed.continuation
        self._ended = group.group_id
        effects = [] if continuation is None else continuation(ErrorCode.NONE, now)
        self._store.settle(group)
        effects += self._consumers.committed(self._store, group, token, now)
        return effects + self._load_again(group, now) if self._store.reloading else effects

    def _append_failed(self, event: AppendFailed, now: Now) -> Effects:
        """Notify the part that waits for an append of its failure, once."""
        self._ended = None
        appends = self._store.appends
        failed, continuation = appends.fail(event.token, may_commit=event.may_commit)
        self._ended = failed.group.group_id
        effects = [] if continuation is None else continuation(event.error_code, now)
        self._store.settle(failed.group)
        return effects + self._load_again(failed.group, now)

    def _timer(self, key: TimerKey, now: Now) -> Effects:
        group = self._store.live.get(key.group_id)
        if group is None:
            return []
        if group.consumer is not None:
            effects = self._consumers.timer_fired(self._store, group, group.consumer, key, now)
        else:
            effects = self._classic_timer(group, key, now)
        return self._settled(key.group_id, effects)

    def _classic_timer(self, group: Group, key: TimerKey, now: Now) -> Effects:
        store, rebalances = self._store, self._rebalances
        match key.kind:
            case TimerKind.REBALANCE:
                return rebalances.timer_fired(store, group, now)
            case TimerKind.SYNC:
                return rebalances.sync_timer_fired(store, group, now)
            case TimerKind.PENDING_MEMBER:
                effects = membership.pending_timer_fired(store, group, key.member_id, now)
                return effects + rebalances.try_complete(store, group, now)
            case TimerKind.SESSION:
                return self._session_timer(group, key.member_id, now)
            case TimerKind.REVOCATION:
                return []  # of a consumer group that has become a classic one

    def _session_timer(self, group: Group, member_id: str, now: Now) -> Effects:
        member = group.members.get(member_id)
        if member is None:
            return []
        again = sessions.timer_fired(group, member, now)
        if again is not None:
            return again
        reason = "has let its session expire"
        return self._rebalances.remove(self._store, group, [member], reason, now)

    def _abandon(self, reply_id: int, now: Now) -> Effects:
        """Remove a member that does not know its id yet: it will come back as another one."""
        parking.abandon(self._store, reply_id)
        found = self._store.unnamed.pop(reply_id, None)
        if found is None:
            return []
        group, member = found
        if group.members.get(member.member_id) is not member or member.join_reply != reply_id:
            return []
        reason = "has gone before it was given its id"
        effects = self._rebalances.remove(self._store, group, [member], reason, now)
        return self._settled(group.group_id, effects)

    def _settled(self, group_id: str, effects: Effects) -> Effects:
        group = self._store.live.get(group_id)
        if group is not None:
            self._store.settle(group)
        return effects

    # --- long work

    def expire_offsets(self, now: Now) -> Iterator[Effects]:
        """Expire offsets and groups, a bounded number per item; steps may come between. Every ten minutes."""
        return expiry.expire(self._store, self._bounds.config, now)

    def forget_topic(self, topic: DeletedTopic) -> Iterator[Effects]:
        """Remove the offsets of a deleted topic, a bounded number of groups per item; again until it `is_forgotten`."""
        return expiry.forget_topic(self._store, topic)

    # --- what is asked of it

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListedGroup | None]:
        """The groups for ListGroups; filters ignore case, empty ones match all. None for one filtered out."""
        return listed(self._store, states, types)

    def state_name(self, group_id: str) -> str | None:
        """The state of a group by Kafka's name; None if there is no such group."""
        return state_name(self._store, group_id)

    def sessions_of(self, group_id: str, member: str | None) -> list[TimerKey]:
        """The sessions of a member, by its member, instance or client id; None: of all members."""
        group = self._store.find(group_id)
        if group is None:
            return []
        if group.consumer is not None:
            return consumer_sessions.keys(group.consumer, member)
        return sessions.keys(group, member)

    def end_sessions(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Make these sessions overdue: they end as soon as their timers fire."""
        for key in keys:
            group = self._store.find(key.group_id)
            if group is not None and group.consumer is not None:
                consumer_sessions.make_overdue(group.consumer, key, now)
            elif group is not None:
                sessions.make_overdue(group, key, now)

    def committed(self) -> Iterator[CommittedOffset]:
        """The committed offsets, those of groups with members first; steps may come between."""
        durable = self._store.durable.groups
        for group_id in list(dict.fromkeys(chain(self._store.live, durable))):
            group = durable.get(group_id)
            for topic, offsets in [] if group is None else list(group.offsets.items()):
                for index, value in list(offsets.items()):
                    yield CommittedOffset(group_id, topic, index, value.offset)

    @property
    def usage(self) -> Usage:
        """The amount of what is bounded that this coordinator holds."""
        return self._store.usage

    def used_by(self, sharer: str) -> Usage:
        """The part of the usage that is one sharer's."""
        return self._store.shares.used_by(sharer)

    @property
    def group_count(self) -> int:
        """An estimate of the number of groups: those not stored yet are counted only if there are more."""
        return self._store.usage.groups

    @property
    def member_count(self) -> int:
        """Members of all groups, and ids that were handed out."""
        return self._store.members + len(self._store.ids)

    @property
    def rebalances_completed(self) -> int:
        return self._store.rebalances_completed
