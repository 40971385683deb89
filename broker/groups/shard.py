"""The groups of one partition of `__consumer_offsets`: what their shard knows besides any other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.held_requests import Answered
from echoless.broker.state_topics.loader import ReplayReceiver
from echoless.broker.state_topics.shard import Shard
from echoless.coordinators.events import TimerFired
from echoless.coordinators.groups.answers import GroupAnswer, OffsetCommitAnswer, refusal
from echoless.coordinators.groups.effects import MakeTarget, ResolveRegex
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.coordinators.groups.group_ids import group_id_error
from echoless.coordinators.groups.requests import GroupRequest, OffsetFetch
from echoless.coordinators.groups.while_loading import refusal_while_loading
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.coordinators.groups.coordinator import GroupCoordinator


class GroupShardParts(NamedTuple):
    """The parts of the broker that all shards of groups share."""

    new_coordinator: Callable[[], GroupCoordinator]
    """Called in a thread."""
    appends: AppendParts
    reload: Callable[[GroupShard], None]
    topics: ClusterTopics


class GroupShard(Shard["GroupCoordinator", GroupRequest, GroupAnswer]):
    """One leader epoch's groups. Belongs to the event loop."""

    what = "groups"

    def __init__(self, partition: Partition, parts: GroupShardParts) -> None:
        super().__init__(partition, parts.appends, parts.reload)
        self._new_coordinator = parts.new_coordinator
        self._topics = parts.topics

    def ask(self, request: GroupRequest) -> Answered[GroupAnswer]:
        """Has the coordinator process the request; a look at the offsets sees all that was committed before it."""
        if code := group_id_error(request):
            return refusal(request, code)
        if isinstance(request, OffsetFetch):
            self.append_now()
        return super().ask(request)

    def new_coordinator(self) -> GroupCoordinator:
        return self._new_coordinator()

    def replayed(self, coordinator: GroupCoordinator) -> ReplayReceiver:
        return ReplayReceiver(
            coordinator.apply,
            coordinator.apply_in_transaction,
            coordinator.end_replayed_transaction,
        )

    def refusal(self, request: GroupRequest, code: ErrorCode) -> GroupAnswer:
        return refusal(request, code)

    def refusal_while_loading(self, request: GroupRequest) -> GroupAnswer:
        return refusal_while_loading(request)

    def note_answer(self, answer: GroupAnswer) -> None:
        if isinstance(answer, OffsetCommitAnswer):
            self.parts.metrics.note_commit(answer.error_codes)

    def note_load(self, seconds: float | None) -> None:
        metrics = self.parts.metrics
        if seconds is None:
            metrics.group_load_failures_total += 1
            return
        metrics.group_loads_total += 1
        metrics.group_load_ms_total += round(seconds * 1000)

    def name_in(self, request: GroupRequest) -> str:
        return request.group_id

    def perform_own(self, effect: ResolveRegex | MakeTarget) -> None:
        match effect:
            case ResolveRegex():
                self.begin(self._resolve(effect), "matching topics")
            case MakeTarget():
                self.begin(self._make_target(effect), "assigning partitions")

    async def _resolve(self, wanted: ResolveRegex) -> None:
        topics, version = await self._topics.matching(
            wanted.pattern, wanted.client_host.removeprefix("/"), wanted.may_describe
        )
        self.step(RegexResolved(wanted.group_id, wanted.pattern, topics, version))

    async def _make_target(self, wanted: MakeTarget) -> None:
        try:
            await work_in_turns(wanted.steps)
        except Exception as error:  # noqa: BLE001 - the group would wait for its target for ever
            self.recover(TargetMade(wanted.group_id, wanted.steps), error)
            return
        self.step(TargetMade(wanted.group_id, wanted.steps))

    def expire_sessions(self, group_id: str, member: str | None) -> None:
        """Ends the sessions of a member (its member, instance or client id; None: of all), for a fault rule."""
        coordinator = self.coordinator
        if coordinator is not None:
            keys = coordinator.sessions_of(group_id, member)
            coordinator.end_sessions(keys, self._now())
            for key in keys:
                self.step(TimerFired(key))
