"""One partition on this broker: its log, its role, and the requests that wait on it.

The log decides and stores; this file adds what the cluster and the clients see: the leader epoch,
the in-sync replicas, the high watermark, produce requests that wait for it and fetches that wait
for data. Everything here runs on the event loop, without an `await` between reading state and
writing it.

Roles come from the partition's state node alone, through `update`. A leader epoch is led at most
once: the log's leader epochs remember it across sessions, and a starting broker gives up what an
earlier broker epoch led before it registers (`broker/cluster/withdrawal.py`).

Invariant: `high_watermark <= log_end_offset`, and it never moves back while this broker leads.
Invariant: with `log_flush=commit` nothing above `durable_offset` is below the high watermark.
Invariant: nothing is acknowledged while the membership of this broker in the cluster is in doubt.
Invariant: no request waits for an offset longer than this broker has led without another one in between.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final

from echoless.broker.config.names import Config, LogFlush
from echoless.broker.doubt import changes_state, check_outcome
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.partitions.core.gap_patience import GapPatience
from echoless.broker.partitions.core.in_sync_replicas import InSyncReplicas
from echoless.broker.partitions.fencing import Fencing
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.partitions.waiters import Waiters
from echoless.protocol.control_records import EndMarker
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.producer_effect import marker_in
from echoless.protocol.record_batch import BatchHeader, Buffer
from echoless.storage.append_origin import AppendOrigin, LeaderOrigin
from echoless.storage.appended import Appended
from echoless.storage.log import Log

logger = logging.getLogger(__name__)

_COORDINATOR: Final[LeaderOrigin] = AppendOrigin.COORDINATOR


class Partition:
    """A partition that this broker holds a replica of."""

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        log: Log,
        *,
        config: Config,
        rules: ProduceRules,
        high_watermark: int,
        fencing: Fencing[Partition],
        on_dirty: Callable[[Partition], None],
    ) -> None:
        """`high_watermark`: as it was known when the log was last open."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.topic_id_bytes = topic_id.bytes
        """The same, as it is in transactions."""
        self.log = log
        self.rules = rules
        """Replaced by `apply_rules`."""
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        """The ISR in the state node; the leader may count on more, see `InSyncReplicas.largest`."""
        self.replicas: tuple[int, ...] = ()
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.waiters = Waiters()
        self.in_sync: InSyncReplicas | None = None
        """The followers' progress and the ISR; None unless this broker leads."""
        self.marker_listener: Callable[[BatchHeader, EndMarker, int], None] | None = None
        """Called with each transaction marker that this broker appends as the leader, and its offset."""
        self._gap_patience: GapPatience | None = None
        """Set while this broker leads after another, or after it rejected a batch it could not accept."""
        self._led_since = -1
        """The first of the leader epochs that this broker has led without another one in between."""
        self._state_version = -1
        self._fencing = fencing
        self._broker_id = config.broker_id
        self._always_flushes = config.log_flush is LogFlush.COMMIT
        self._flushes_before_commit = False
        self.flushes_early = False
        """Whether the topic asks for flushes of its own."""
        self._on_dirty = on_dirty
        self.apply_rules(rules)

    def apply_rules(self, rules: ProduceRules) -> None:
        """Applies the topic's settings from now on."""
        self.rules = rules
        self._flushes_before_commit = self._always_flushes or rules.flush_messages == 1
        self.flushes_early = rules.flushes_early

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self._broker_id

    @property
    def is_in_sync(self) -> bool:
        """Whether the state node counts on this replica: it may be elected at any time."""
        return self._broker_id in self.isr

    @property
    def durable_offset(self) -> int:
        """The offset below which this replica is as safe as `log_flush` asks for."""
        log = self.log
        return log.recovery_point if self._flushes_before_commit else log.log_end_offset

    def check_leader(self, leader_epoch: int = -1) -> None:
        """Raises `KafkaError` unless this broker certainly leads, in the epoch the client knows.

        Epoch -1 matches any.
        """
        if self.leader_id != self._broker_id:
            unserved = self.rules.unserved
            reason = f"is led by {self.leader_id}"
            if unserved is not None:
                reason = f"is not served by this broker, which cannot read a setting: {unserved}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} {reason}")
        if not self._fencing.is_proved:
            self._be_patient()
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.name} may have another leader: the coordinator cannot be reached",
            )
        if leader_epoch != -1 and leader_epoch != self.leader_epoch:  # noqa: PLR1714 - makes a set
            older = leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code, f"{self.name} is in leader epoch {self.leader_epoch}")

    def check_in_sync(self) -> None:
        """Raises `KafkaError` if fewer replicas are in sync than the topic requires."""
        if len(self.isr) < self.rules.min_insync_replicas:
            self._be_patient()
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {len(self.isr)} in-sync replicas, "
                f"{self.rules.min_insync_replicas} are needed",
            )

    # --- roles ---

    @changes_state
    def update(self, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        """Applies the state that the cluster has given this partition; an older one is ignored."""
        if state.leader_epoch < self.leader_epoch or state.node_version <= self._state_version:
            self._change_replicas(replicas)
            return
        self._state_version = state.node_version
        self.isr = state.isr
        self._change_replicas(replicas)
        if state.leader_epoch > self.leader_epoch:
            self._assume_role(state)
        elif self.in_sync is not None:
            self.in_sync.settle(state.isr)
            self.advance_high_watermark()
            # A follower that has caught up, and has nothing more to say, may join only now.
            self._fencing.isr_may_change(self)

    def _change_replicas(self, replicas: tuple[int, ...]) -> None:
        if replicas != self.replicas:
            self.replicas = replicas
            if self.in_sync is not None:
                self.in_sync.change_replicas(replicas, _now_s())
                self.waiters.append.wake()  # what a removed follower said does not count any more
                self._fencing.isr_may_change(self)

    def _assume_role(self, state: LeaderAndIsr) -> None:
        is_named = state.leader == self._broker_id
        is_new_epoch = state.leader_epoch > self.log.leader_epochs.latest_epoch
        leads = is_named and is_new_epoch and self.rules.unserved is None
        if leads and self.is_leader and state.leader_epoch == self.leader_epoch + 1:
            self.waiters.wake_fetches()  # those that wait for offsets wait on: nothing was cut off
        else:
            self._lose_role()
            self._led_since = state.leader_epoch
        self.leader_epoch = state.leader_epoch
        if leads:
            self.leader_id = self._broker_id
            self._lead()
        elif not is_named:
            self.leader_id = state.leader
        # Else it led that epoch under an earlier session, or may not lead: the controller has to begin another one.

    def has_led_since(self, leader_epoch: int) -> bool:
        """Whether no other broker can have led since this one led in that epoch: what it stored then is still there.

        Each change of the leader raises the epoch by one, so none was in between if this broker led in all of them.
        """
        return self.is_leader and leader_epoch >= self._led_since

    def _lead(self) -> None:
        log = self.log
        self.in_sync = InSyncReplicas(
            self._broker_id,
            self.replicas,
            self.isr,
            epoch_start_offset=log.log_end_offset,
            now_s=_now_s(),
        )
        if self._led_since == self.leader_epoch > 0:
            self._be_patient()
        log.leader_epochs.assign(self.leader_epoch, log.log_end_offset)
        if self._flushes_before_commit and log.recovery_point < log.log_end_offset:
            self._on_dirty(self)
        self.advance_high_watermark()

    @changes_state
    def resign(self) -> None:
        """Gives up the role until `update` assigns one: the states read so far are void.

        Requests that wait for an offset get NOT_LEADER_OR_FOLLOWER.
        """
        self._lose_role()
        self.leader_epoch = self._state_version = -1

    def _lose_role(self) -> None:
        self.leader_id = NO_LEADER
        self.in_sync = self._gap_patience = None
        self.waiters.fail(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} has lost its leader")
        )

    # --- writing ---

    def append(
        self, batch: Buffer, header: BatchHeader, now_ms: int, log_append_ms: int | None = None
    ) -> Appended | Duplicate | Reject:
        """Decides on and stores one validated batch; see `Log.append`. Raises `StorageError`, `KafkaError`."""
        try:  # as `changes_state`, without a call for each batch
            if not self._fencing.takes_records:
                raise KafkaError(  # noqa: TRY301
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is about to have another leader"
                )
            result = self.log.append(batch, header, self.leader_epoch, now_ms, log_append_ms)
            if type(result) is Appended:
                self._on_dirty(self)
                if self.waiters.append:
                    self.waiters.append.wake()
                if not self._flushes_before_commit:
                    in_sync = self.in_sync
                    if in_sync is None or not in_sync.largest or self.waiters.flush.heap:
                        self.advance_high_watermark()  # else its followers have to fetch it first
            elif isinstance(result, Reject) and self._gap_patience is not None:
                entry = self.log.producers.get(header.producer_id)
                return self._gap_patience.retriable(result, entry, header, _now_s())
        except Exception as error:
            check_outcome(Partition.append, error)
            raise
        return result

    @changes_state
    def append_state(self, batch: Buffer, header: BatchHeader, now_ms: int) -> int:
        """Stores a batch of this broker's own coordinator; returns the high watermark that commits it.

        Raises `KafkaError` if this broker may not append, or too few replicas are in sync; `StorageError`.
        """
        result = self.append_for_coordinator(batch, header, now_ms)
        assert isinstance(result, Appended), "a batch without a producer is never refused"
        return result.last_offset + 1

    def append_for_coordinator(
        self,
        batch: Buffer,
        header: BatchHeader,
        now_ms: int,
        log_append_ms: int | None = None,
        marker: EndMarker | None = None,
    ) -> Appended | Duplicate | Reject:
        """Decides on and stores a transaction marker, or another batch that no client sends; see `Log.append`.

        Raises as `append_state` does.
        """
        try:  # as `changes_state`, without a call for each marker
            self.check_leader()
            self.check_in_sync()
            if not self._fencing.takes_records:
                raise KafkaError(  # noqa: TRY301
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is about to have another leader"
                )
            epoch = self.leader_epoch
            result = self.log.append(
                batch, header, epoch, now_ms, log_append_ms, origin=_COORDINATOR, marker=marker
            )
            if type(result) is Appended:
                self._on_dirty(self)
                if self.waiters.append:
                    self.waiters.append.wake()
                if not self._flushes_before_commit:
                    self.advance_high_watermark()
                if self.marker_listener is not None:
                    ended = marker or marker_in(header, batch)
                    if ended is not None:
                        self.marker_listener(header, ended, result.last_offset)
        except Exception as error:
            check_outcome(Partition.append_for_coordinator, error)
            raise
        return result

    def _be_patient(self) -> None:
        """Trusts no gap for a while: a batch that is refused now may return after later ones."""
        if len(self.replicas) > 1:
            self._gap_patience = GapPatience(self.log.log_end_offset)

    def advance_high_watermark(self) -> None:
        """Moves the high watermark to what every in-sync replica has, and wakes the waiters."""
        log, waiters, in_sync = self.log, self.waiters, self.in_sync
        durable = log.recovery_point if self._flushes_before_commit else log.log_end_offset
        if in_sync is None:
            waiters.flush.reached(durable)  # a follower, before it asks for more
            return
        if not self._fencing.is_proved:
            return
        if waiters.flush.heap:
            waiters.flush.reached(durable)
        committed = in_sync.committed_offset(durable) if in_sync.largest else durable
        if committed > self.high_watermark:
            self.high_watermark = committed
            log.note_committed(committed)
            if waiters.commit.heap:
                waiters.commit.reached(committed)
            if waiters.data:
                waiters.data.wake()
            if waiters.progress:
                waiters.note_progress()

    @changes_state
    def advance_log_start(self, offset: int) -> None:
        """Deletes the records below `offset` (DeleteRecords), at most up to the high watermark."""
        if offset > self.high_watermark or offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} can be deleted up to {self.high_watermark}, not {offset}",
            )
        self.log.advance_log_start(offset)
        self.waiters.data.wake()
        self.waiters.note_progress()

    # --- followers ---

    def note_fetch(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """Notes that a follower has everything below `offset`, from which it fetches.

        Only fetches from the currently registered broker epoch count.
        """
        in_sync, fencing = self.in_sync, self._fencing
        try:  # as `changes_state`, without a call for each fetch
            if in_sync is not None and fencing.registered_epoch(broker_id) == broker_epoch:
                end_offset = self.log.log_end_offset
                in_sync.note_fetch(broker_id, broker_epoch, offset, end_offset, _now_s())
                self.advance_high_watermark()
                fencing.isr_may_change(self)
        except Exception as error:
            check_outcome(Partition.note_fetch, error)
            raise

    def note_silence(
        self, broker_id: int, broker_epoch: int, leader_epoch: int, offset: int, heard_s: float
    ) -> None:
        """Notes that a follower was heard at `heard_s`, and had everything then, up to `offset`."""
        if self.in_sync is not None and self.leader_epoch == leader_epoch:
            self.in_sync.note_silence(broker_id, broker_epoch, offset, heard_s)

    def mark_dirty(self) -> None:
        """Has the log flushed: it was appended to by replication, rolled, or found unflushed."""
        self._on_dirty(self)

    def learn_high_watermark(self, offset: int) -> None:
        """Applies the leader's high watermark on a follower; not beyond what this replica has."""
        known = min(offset, self.log.log_end_offset)
        if known > self.high_watermark:
            self.high_watermark = known
            self.log.note_committed(known)

    def follow_log(self) -> None:
        """Follows a cut or a replacement of the follower's log: nothing above its end is committed."""
        end_offset = self.log.log_end_offset
        if self.high_watermark > end_offset:
            logger.error(
                "%s: cut at %d, below its high watermark %d: acknowledged records may be lost",
                self.name,
                end_offset,
                self.high_watermark,
            )
            self.high_watermark = end_offset
        self.learn_high_watermark(self.log.log_start_offset)

    @property
    def knows_high_watermark(self) -> bool:
        """Whether a new leader's high watermark has reached that of the leader before (KIP-207)."""
        return self.in_sync is not None and self.high_watermark >= self.in_sync.epoch_start_offset

    # --- reading ---

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended, by a marker below the high watermark."""
        if not self.log.producers.has_transactions:
            return self.high_watermark
        return self.log.last_stable_offset(self.high_watermark)

    def visible_end(self, *, read_committed: bool) -> int:
        """The offset up to which consumers of this isolation level may read."""
        return self.last_stable_offset if read_committed else self.high_watermark


def _now_s() -> float:
    """The clock that lags and deadlines are measured by."""
    return asyncio.get_running_loop().time()
