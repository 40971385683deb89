"""One partition on this broker: its log, its role, and who waits for its high watermark.

The log decides and stores; this file adds what the cluster and the clients see: the leader epoch,
the in-sync replicas, the high watermark, produce requests that wait for it and fetches that wait
for data. Everything here runs on the event loop, without an `await` between reading state and
writing it.

Invariant: `high_watermark <= log_end_offset`, and it never moves back while this broker leads.
Invariant: with `log_flush=commit` nothing above `durable_offset` is below the high watermark.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from broker.config_names import Config, LogFlush, TimestampType
from broker.offset_waiters import OffsetWaiters
from broker.topic_config import TopicConfig
from protocol.batch_validation import ANY_TIMESTAMP, TimestampRules
from protocol.dedup import Duplicate, Reject
from protocol.errors import ErrorCode, KafkaError
from protocol.record_batch import BatchHeader, Buffer
from storage.log import Appended, Log

NO_LEADER = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class ProduceRules:
    """What the topic asks of a batch and of its replicas."""

    bytes_max: int
    min_insync_replicas: int
    timestamps: TimestampRules

    @classmethod
    def of(cls, topic: TopicConfig) -> ProduceRules:
        timestamps = TimestampRules(
            log_append_time=topic.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
            before_max_ms=topic.message_timestamp_before_max_ms,
            after_max_ms=topic.message_timestamp_after_max_ms,
        )
        return cls(
            bytes_max=topic.max_message_bytes,
            min_insync_replicas=topic.min_insync_replicas,
            # The shared object tells the batch check that there is nothing to compare.
            timestamps=ANY_TIMESTAMP if timestamps == ANY_TIMESTAMP else timestamps,
        )


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
        replicas: tuple[int, ...],
        on_dirty: Callable[[Partition], None],
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.rules = rules
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas = replicas
        self.high_watermark = log.log_start_offset
        self._broker_id = config.broker_id
        self._flushes_before_commit = config.log_flush is LogFlush.COMMIT
        self._on_dirty = on_dirty
        self._waiting_for_commit = OffsetWaiters()
        self._waiting_for_flush = OffsetWaiters()
        self._waiting_for_data: set[asyncio.Future[None]] = set()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self._broker_id

    @property
    def durable_offset(self) -> int:
        """Offsets below it are as safe on this replica as `log_flush` asks for."""
        log = self.log
        return log.recovery_point if self._flushes_before_commit else log.log_end_offset

    def check_leader(self, leader_epoch: int = -1) -> None:
        """Raises `KafkaError` unless this broker leads, in the epoch that the client knows (-1: any)."""
        if not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is led by {self.leader_id}"
            )
        if leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            older = leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code, f"{self.name} is in leader epoch {self.leader_epoch}")

    # --- roles ---

    def become_leader(self, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Leads from now on, in an epoch above every earlier one."""
        assert leader_epoch > self.leader_epoch, f"{self.name}: the leader epoch went back"
        self.leader_id = self._broker_id
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.log.leader_epochs.assign(leader_epoch, self.log.log_end_offset)
        if self._flushes_before_commit and self.log.recovery_point < self.log.log_end_offset:
            self._on_dirty(self)
        self.advance_high_watermark()

    def resign(self) -> None:
        """Leads no longer: whoever waits for the high watermark is told NOT_LEADER_OR_FOLLOWER."""
        self.leader_id = NO_LEADER
        self.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} has lost its leader"))

    def fail(self, error: KafkaError) -> None:
        """What was appended cannot be promised: whoever waits for it is told `error`."""
        self._waiting_for_commit.fail(error)
        self._waiting_for_flush.fail(error)
        self.wake_fetches()

    # --- writing ---

    def append(
        self, batch: Buffer, header: BatchHeader, now_ms: int
    ) -> Appended | Duplicate | Reject:
        """Decides on and stores one validated batch. Raises `StorageError`."""
        result = self.log.append(batch, header, self.leader_epoch, now_ms)
        if isinstance(result, Appended):
            self._on_dirty(self)
            if not self._flushes_before_commit:
                self.advance_high_watermark()
        return result

    def advance_high_watermark(self) -> None:
        """Moves the high watermark to what every in-sync replica has, and wakes who waited."""
        # One in-sync replica: the leader itself.
        committed = self.durable_offset
        self._waiting_for_flush.reached(committed)
        if committed > self.high_watermark:
            self.high_watermark = committed
            self._waiting_for_commit.reached(committed)
            self.wake_fetches()

    def acknowledged(self, offset: int, *, by_all: bool) -> asyncio.Future[None]:
        """Done once everything below `offset` is committed (`by_all`), or durable on the leader.

        Raises `KafkaError` from the future when leadership ends first.
        """
        waiters = self._waiting_for_commit if by_all else self._waiting_for_flush
        return waiters.wait_for(offset)

    def advance_log_start(self, offset: int) -> None:
        """Deletes the records below `offset` (DeleteRecords), at most up to the high watermark."""
        if offset > self.high_watermark or offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} can be deleted up to {self.high_watermark}, not {offset}",
            )
        self.log.advance_log_start(offset)

    # --- reading ---

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset`, below the high watermark."""
        return self.log.read(offset, bytes_max, self.high_watermark)

    def notify_of_data(self, future: asyncio.Future[None]) -> None:
        """Resolves `future` when the high watermark next moves; `forget` it when no longer needed."""
        self._waiting_for_data.add(future)

    def forget(self, future: asyncio.Future[None]) -> None:
        self._waiting_for_data.discard(future)

    def wake_fetches(self) -> None:
        """Lets whoever waits for data look again."""
        if not self._waiting_for_data:
            return
        waiting, self._waiting_for_data = self._waiting_for_data, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
