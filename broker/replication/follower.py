"""The follower of one partition: its requests to the leader, and how it applies the answers.

States: *fetching*, and *bootstrapping* if the leader's log begins after the end of this one. Each
fetch says how far the log goes and in which epoch; if the leader's log diverges from it, the leader
says so and the follower truncates (`core/divergence.py`). So a new leader epoch needs no state of
its own: the first answer without a divergence is the proof that the logs agree.

Bootstrapping: the leader's producer state comes first, in pieces, then an empty log begins at the
offset of the snapshot. A follower never has a log without the producer state below it.

Both change the log in a thread: they return a `LogChange`, and the next request waits for it.

One object per partition and leader epoch. Knows nothing of connections (`fetcher.py`).
"""

from __future__ import annotations

import logging
from functools import partial

from echoless.broker.metrics import Metrics
from echoless.broker.partitions.core.divergence import Divergence, cut_offset
from echoless.broker.partitions.log_changes import LogChange
from echoless.broker.partitions.partition import Partition
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.replication import (
    NEWEST_SNAPSHOT,
    ReplicaFetched,
    ReplicaSnapshot,
    ReplicaWanted,
    SnapshotPiece,
)

logger = logging.getLogger(__name__)


class Follower:
    """Brings one partition's log up to its leader's, in one leader epoch."""

    def __init__(self, partition: Partition, metrics: Metrics) -> None:
        self.metrics = metrics
        self.partition = partition
        self.leader_id = partition.leader_id
        self.leader_epoch = partition.leader_epoch
        self.bootstrap: Bootstrap | None = None
        """Set while the producer state is being received."""
        if (
            not partition.is_in_sync
            and 0 < partition.log.first_offset == partition.log.log_end_offset
        ):
            # An empty log may have lost its end below the log start, and the producers with it.
            self.restart_bootstrap()

    @property
    def is_current(self) -> bool:
        """Whether the partition still follows this leader in this epoch."""
        partition = self.partition
        return partition.leader_id == self.leader_id and partition.leader_epoch == self.leader_epoch

    def restart_bootstrap(self) -> None:
        """Discards the pieces received so far and asks for the first one again."""
        self.bootstrap = Bootstrap(self)

    def wanted(self) -> ReplicaWanted:
        """The next request to the leader."""
        partition = self.partition
        log = partition.log
        return ReplicaWanted(
            partition.topic,
            partition.topic_id,
            partition.index,
            self.leader_epoch,
            log.log_end_offset,
            log.leader_epochs.latest_epoch,
        )

    def take(self, fetched: ReplicaFetched, now_ms: int) -> LogChange | None:
        """Applies the leader's answer; returns the change of the log that has to be made for it.

        Raises `KafkaError` if the leader refuses, `DecodeError` if it sends what cannot follow this
        log (which then is unchanged), `StorageError`.
        """
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.restart_bootstrap()
        elif fetched.error is not ErrorCode.NONE:
            raise KafkaError(fetched.error)
        elif fetched.diverging is not None:
            return self._cut(Divergence(*fetched.diverging))
        else:
            self._append(fetched, now_ms)
        return None

    def _append(self, fetched: ReplicaFetched, now_ms: int) -> None:
        partition, log = self.partition, self.partition.log
        if fetched.batches:
            end_offset = log.log_end_offset
            try:
                moved_back = log.append_replicated(fetched.batches, now_ms).epochs_moved_back
            except DecodeError:
                if log.log_end_offset == log.first_offset:
                    # An empty log that begins where no batch of this leader does, as after an
                    # unclean election: there is nothing in it to agree upon.
                    self.restart_bootstrap()
                raise
            finally:
                if log.log_end_offset > end_offset:
                    partition.mark_dirty()  # also if the rest could not be appended
            self.metrics.replicated_bytes_total += len(fetched.batches)
            self.metrics.producer_epochs_moved_back_total += moved_back
            if moved_back:
                logger.warning(
                    "%s: %d batches carried an older epoch than their producer had before",
                    partition.name,
                    moved_back,
                )
        partition.learn_high_watermark(fetched.high_watermark)
        log_start_offset = min(fetched.log_start_offset, log.log_end_offset)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(log_start_offset)

    def _cut(self, divergence: Divergence) -> LogChange | None:
        partition, log = self.partition, self.partition.log
        end, epochs = log.log_end_offset, log.leader_epochs
        offset = cut_offset(epochs, end, divergence)
        if offset < log.first_offset:
            # Nothing of it is left in the leader's log, so its producer state is void too.
            self.restart_bootstrap()
            return None
        self.metrics.log_cuts_total += 1
        latest_epoch = epochs.latest_epoch
        pending = log.start_truncation(offset)
        if pending is not None:
            return LogChange(partition, pending, partial(self._was_cut, end, divergence))
        if epochs.latest_epoch == latest_epoch:
            raise DecodeError(f"the leader sees a divergence where there is none: {divergence}")
        self._was_cut(end, divergence)
        return None

    def _was_cut(self, end: int, divergence: Divergence) -> None:
        logger.info(
            "%s: cut from offset %d to %d, where leader epoch %d ended at %d on broker %d",
            self.partition.name,
            end,
            self.partition.log.log_end_offset,
            divergence.epoch,
            divergence.end_offset,
            self.leader_id,
        )


class Bootstrap:
    """The producer state that an empty log begins with, received in pieces."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._offset = NEWEST_SNAPSHOT
        self._data = bytearray()

    def wanted(self, broker_id: int, bytes_max: int) -> ReplicaSnapshot:
        """The request for the next piece."""
        partition = self._follower.partition
        return ReplicaSnapshot(
            broker_id=broker_id,
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.index,
            leader_epoch=self._follower.leader_epoch,
            offset=self._offset,
            position=len(self._data),
            bytes_max=bytes_max,
        )

    def take(self, piece: SnapshotPiece, now_ms: int) -> LogChange | None:
        """Keeps the piece; with the last one the log is to start afresh at the snapshot's offset."""
        self._offset = piece.offset
        self._data += piece.data
        if len(self._data) < piece.size:
            return None
        partition = self._follower.partition
        pending = partition.log.start_replacement(
            piece.offset, bytes(self._data), clock_ahead_ms=now_ms - piece.now_ms, now_ms=now_ms
        )
        return LogChange(partition, pending, self._has_begun)

    def _has_begun(self) -> None:
        follower, partition = self._follower, self._follower.partition
        follower.bootstrap = None
        follower.metrics.bootstraps_total += 1
        logger.info(
            "%s: started anew at offset %d with %d producers of broker %d",
            partition.name,
            self._offset,
            len(partition.log.producers),
            follower.leader_id,
        )
