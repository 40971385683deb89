"""The code under test with one promise taken out of it, to see that the simulator misses it.

Each mutation is a named patch; `apply` puts it in place until the context is left. The patched code
is found by name, so a mutation that no longer fits fails loudly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from echoless.broker.cluster import leadership_doubt
from echoless.broker.cluster.member import ClusterMember
from echoless.broker.controller import campaign
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.native.replica_session import Session
from echoless.broker.native.replica_sessions import ReplicaSessions
from echoless.broker.partitions.core.gap_patience import GapPatience
from echoless.broker.partitions.core.in_sync_replicas import InSyncReplicas
from echoless.broker.partitions.partition import Partition
from echoless.broker.records import append
from echoless.broker.replication import follower, leader
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.broker.state_topics import loader
from echoless.broker.state_topics.appends import Appends
from echoless.broker.state_topics.leadership import Leadership
from echoless.broker.state_topics.timers import Timers
from echoless.broker.tree.node_tree import ANY_VERSION, ROOT, Check
from echoless.broker.tree.session_guard import SessionGuard
from echoless.coordinators.groups import offset_commits
from echoless.coordinators.groups.consumer.admission import Admission, Admitted
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.effects import TimerKind
from echoless.coordinators.groups.group import Group
from echoless.protocol import dedup
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import GroupValue
from echoless.protocol.state_records.consumer_group_values import ConsumerMemberState
from echoless.storage import log
from echoless.storage.compaction import cleaning
from echoless.storage.compaction.compaction import Compaction
from echoless.storage.compaction.remembered import Remembered
from echoless.storage.log import Log

Patches = list[Any]


def _window_is_ignored() -> Patches:
    """Every batch of a producer is new."""

    def decide(*_args: object) -> dedup.Append:
        return dedup.APPEND

    return [patch.object(log, "decide", decide)]


def _new_leader_forgets_producers() -> Patches:
    lead = Partition._lead

    def forget(self: Partition) -> None:
        self.log.producers.clear()
        lead(self)

    return [patch.object(Partition, "_lead", forget)]


def _followers_never_cut() -> Patches:
    """A follower takes what the leader sends, wherever its own log parted from the leader's."""

    def cut(self: follower.Follower, _divergence: object) -> None:
        self.partition.log.leader_epochs.assign(
            self.leader_epoch, self.partition.log.log_end_offset
        )

    return [patch.object(follower.Follower, "_cut", cut)]


def _followers_cut_to_high_watermark() -> Patches:
    """Kafka before leader epochs: whatever is above the high watermark goes."""
    init = follower.Follower.__init__

    def cut_first(self: follower.Follower, partition: Partition, *rest: Any) -> None:
        init(self, partition, *rest)
        if partition.high_watermark < partition.log.log_end_offset:
            partition.log.truncate_to(partition.high_watermark)
            partition.log.leader_epochs.truncate_from_end(partition.log.log_end_offset)

    return [patch.object(follower.Follower, "__init__", cut_first)]


def _no_state_transfer() -> Patches:
    """A replica that starts from scratch begins without producers."""
    begin_at = Log._begin_at

    def begin_without(self: Log, *arguments: Any) -> None:
        begin_at(self, *arguments)
        self.producers.clear()

    return [patch.object(Log, "_begin_at", begin_without)]


def _no_session_fence() -> Patches:
    """A leader continues until it is notified that its session has ended."""
    return [
        patch.object(SessionGuard, "is_proved", property(lambda _self: True)),
        patch.object(ClusterMember, "_on_doubt", lambda _self: None),
    ]


def _shrunken_isr_counts() -> Patches:
    """The high watermark counts the ISR that is wanted, before it is written."""

    def begin_change(self: InSyncReplicas, isr: tuple[int, ...]) -> None:
        self.pending = isr
        self.isr = isr
        self._set_largest()

    return [patch.object(InSyncReplicas, "begin_change", begin_change)]


def _no_epoch_start_rule() -> Patches:
    """A follower joins as soon as it has reached the high watermark."""
    wanted = InSyncReplicas.wanted

    def lenient(self: InSyncReplicas, **facts: Any) -> tuple[int, ...]:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return wanted(self, **facts)
        finally:
            self.epoch_start_offset = start

    return [patch.object(InSyncReplicas, "wanted", lenient)]


def _newcomers_count_late() -> Patches:
    """A follower that has caught up counts when the coordinator has been asked about it."""

    async def announce(
        self: IsrChanges, partition: Partition, in_sync: InSyncReplicas, wanted: tuple[int, ...]
    ) -> bool:
        is_sure = await self._are_registered(in_sync, wanted) and in_sync is partition.in_sync
        if is_sure:
            in_sync.begin_change(wanted)
        return is_sure

    return [patch.object(IsrChanges, "_announce", announce)]


def _no_broker_epoch_check() -> Patches:
    """Fetches from any broker epoch of a follower count."""
    note_fetch = Partition.note_fetch

    def any_epoch(self: Partition, broker_id: int, broker_epoch: int, offset: int) -> None:
        registered = self._fencing.registered_epoch(broker_id)
        epoch = broker_epoch if registered is None else registered
        note_fetch(self, broker_id, epoch, offset)

    def any_opening(
        self: ReplicaSessions, message: Any, services: Any, registered: int | None
    ) -> Session:
        session = Session(message, services, counts=registered == message.broker_epoch)
        self._by_broker[message.broker_id] = session
        return session

    return [
        patch.object(Partition, "note_fetch", any_epoch),
        patch.object(ReplicaSessions, "_open", any_opening),
    ]


def _old_repeats_at_once() -> Patches:
    """46 is answered before what it repeats is committed."""
    return [patch.object(append, "_end_of_window", lambda *_: 0)]


def _deleted_epochs_compare() -> Patches:
    """A leader derives the ends of older epochs from its log start."""
    return [patch.object(leader, "can_compare", lambda *_: True)]


def _gaps_at_once() -> Patches:
    """A leader is sure of every gap, whatever was refused before."""
    return [patch.object(GapPatience, "may_be_on_its_way", lambda *_: False)]


def _waits_end_with_the_epoch() -> Patches:
    """A leader refuses what waits when it begins its next leader epoch."""
    assume_role = Partition._assume_role

    def assume(self: Partition, state: LeaderAndIsr) -> None:
        self._lose_role()
        assume_role(self, state)

    return [patch.object(Partition, "_assume_role", assume)]


def _waits_end_with_certainty() -> Patches:
    """A leader refuses what waits as soon as it has no proof of its session."""
    return [patch.object(leadership_doubt, "WAIT_SHARE", 0)]


def _waits_outlast_another_leader() -> Patches:
    """Requests that wait for an offset wait on, whoever leads meanwhile."""

    def lose(self: Partition) -> None:
        self.leader_id = NO_LEADER
        self.in_sync = self._gap_patience = None
        self.waiters.wake_fetches()

    return [
        patch.object(Partition, "_lose_role", lose),
        patch.object(Partition, "has_led_since", lambda *_: True),
    ]


def _no_controller_epoch_check() -> Patches:
    """A controller writes as if it were still in office."""

    def term(self: campaign.Campaign, _version: int) -> campaign.Term:
        return campaign.Term(self.epoch, Check(ROOT, ANY_VERSION))

    return [patch.object(campaign.Campaign, "_term", term)]


def _zombie_coordinators_answer() -> Patches:
    """A coordinator believes that it leads until it is told otherwise."""
    return [patch.object(Leadership, "is_certain", property(lambda _self: True))]


def _commits_are_answered_early() -> Patches:
    """An append of a coordinator counts as soon as it is in the leader's log."""

    def answer(self: Appends, tokens: list[int], *_: int) -> None:
        for token in tokens:
            self._outcomes.committed(token)

    return [patch.object(Appends, "_wait", answer)]


def _generations_are_not_stored() -> Patches:
    """A generation is stored with its assignment, as in Kafka, and not when it begins."""
    value = Group.value

    def stored(self: Group, assignments: dict[str, bytes] | None) -> GroupValue:
        found = value(self, assignments)
        if assignments is None:
            return found._replace(generation_id=found.generation_id - 1)
        return found

    return [patch.object(Group, "value", stored)]


def _loads_do_not_wait() -> Patches:
    """A coordinator answers as soon as it has read its log."""

    async def at_once(*_arguments: object) -> None:
        """Wait for nothing."""

    return [patch.object(loader, "_until_committed", at_once)]


def _old_generations_commit() -> Patches:
    """Any member commits, whatever generation it knows."""
    return [patch.object(offset_commits, "generation_error", lambda *_: ErrorCode.NONE)]


def _old_heartbeats_acknowledge() -> Patches:
    """A heartbeat from before the member's present epoch says what it owns now."""
    known = Admission._go_on

    def go_on(self: Admission, *arguments: Any) -> Any:
        found = known(self, *arguments)
        return found._replace(is_retry=False) if isinstance(found, Admitted) else found

    return [patch.object(Admission, "_go_on", go_on)]


def _old_timers_strike() -> Patches:
    """A timer that was cancelled, or set anew, fires all the same, and no one looks at the time."""
    timer_fired = ConsumerSessions.timer_fired

    def schedule(self: Timers[Any], key: Any, at_ms: int) -> None:
        asyncio.get_running_loop().call_at(at_ms / 1000, self._fired, key)

    def strike(self: ConsumerSessions, group: Any, key: Any, now: Any) -> Any:
        if key.kind is not TimerKind.REVOCATION:
            return timer_fired(self, group, key, now)
        is_late = (
            group.state.currents[key.member_id].state is ConsumerMemberState.UNREVOKED_PARTITIONS
        )
        return None if is_late else []

    return [
        patch.object(Timers, "set", schedule),
        patch.object(ConsumerSessions, "timer_fired", strike),
    ]


def _uncommitted_records_replace() -> Patches:
    """Cleaning goes up to the end of the log."""
    find_pass = Compaction.find_pass

    def find(self: Compaction, config: Any, **limits: Any) -> Any:
        return find_pass(self, config, **{**limits, "limit": limits["log_end_offset"]})

    return [patch.object(Compaction, "find_pass", find)]


def _epochs_begin_after_holes() -> Patches:
    """A follower's epoch begins with the first batch of it that the leader still has, as in Kafka."""
    writable = Log._writable

    def begin(self: Log, header: Any, last_offset: int, epoch: int, now_ms: int) -> Any:
        if epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(epoch, header.base_offset)
        return writable(self, header, last_offset, epoch, now_ms)

    return [patch.object(Log, "_writable", begin)]


def _windows_are_cleaned_away() -> Patches:
    """A batch without records goes, whether or not its producer may send it again."""
    return [patch.object(Remembered, "__contains__", lambda *_: False)]


def _last_batches_are_cleaned_away() -> Patches:
    """Cleaning may leave a segment without the batch that it ended with."""
    copy_segment = cleaning._Copy._copy_segment

    def copy(self: Any, *args: Any) -> Any:
        yield from copy_segment(self, *args)
        self._end = None

    return [patch.object(cleaning._Copy, "_copy_segment", copy)]


MUTATIONS: Final[dict[str, Callable[[], Patches]]] = {
    "window is ignored": _window_is_ignored,
    "zombie coordinators answer": _zombie_coordinators_answer,
    "commits are answered early": _commits_are_answered_early,
    "generations are not stored": _generations_are_not_stored,
    "loads do not wait": _loads_do_not_wait,
    "uncommitted records replace": _uncommitted_records_replace,
    "epochs begin after holes": _epochs_begin_after_holes,
    "windows are cleaned away": _windows_are_cleaned_away,
    "last batches are cleaned away": _last_batches_are_cleaned_away,
    "old generations commit": _old_generations_commit,
    "old heartbeats acknowledge": _old_heartbeats_acknowledge,
    "old timers strike": _old_timers_strike,
    "new leader forgets producers": _new_leader_forgets_producers,
    "followers never cut": _followers_never_cut,
    "followers cut to the high watermark": _followers_cut_to_high_watermark,
    "no state transfer": _no_state_transfer,
    "no session fence": _no_session_fence,
    "shrunken isr counts": _shrunken_isr_counts,
    "no epoch start rule": _no_epoch_start_rule,
    "newcomers count late": _newcomers_count_late,
    "no broker epoch check": _no_broker_epoch_check,
    "old repeats at once": _old_repeats_at_once,
    "deleted epochs compare": _deleted_epochs_compare,
    "gaps at once": _gaps_at_once,
    "no controller epoch check": _no_controller_epoch_check,
    "waits end with the epoch": _waits_end_with_the_epoch,
    "waits end with certainty": _waits_end_with_certainty,
    "waits outlast another leader": _waits_outlast_another_leader,
}


@contextlib.contextmanager
def apply(name: str) -> Iterator[None]:
    """Plays with the mutation in place."""
    with contextlib.ExitStack() as stack:
        for one in MUTATIONS[name]():
            stack.enter_context(one)
        yield
