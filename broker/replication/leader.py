"""The leader's side of replication: its answer to a follower's fetch of one partition.

The follower (`follower.py`) says how far its log goes and in which epoch it ends. The answer is the
batches that follow, or the point where the two logs diverge. A fetch from an offset also proves
that the follower has everything below it, by which the leader commits.

Called by `broker/native/replica_fetch.py`.
"""

from __future__ import annotations

from echoless.broker.partitions.core.divergence import can_compare, find_divergence
from echoless.broker.partitions.partition import Partition
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import ReplicaFetched
from echoless.storage.log import Log


def fetch_as_replica(  # noqa: PLR0917 - the fields of a message, in its order
    partition: Partition,
    broker_id: int,
    broker_epoch: int,
    leader_epoch: int,
    offset: int,
    last_epoch: int,
    bytes_max: int,
) -> ReplicaFetched:
    """Batches for a follower whose log ends at `offset` with one of `last_epoch` (-1: none).

    With `bytes_max` 0 nothing is read. Raises `KafkaError` NOT_LEADER_OR_FOLLOWER,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, REPLICA_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE (the
    follower has to start afresh); `StorageError`.
    """
    partition.check_leader(leader_epoch)
    in_sync, log = partition.in_sync, partition.log
    assert in_sync is not None
    if broker_id not in in_sync.largest or broker_id not in partition.replicas:
        _check_follower(partition, broker_id, last_epoch)
    epochs, end_offset = log.leader_epochs, log.log_end_offset
    batches, diverging = b"", None
    if (
        last_epoch != epochs.latest_epoch or offset > end_offset
    ):  # else the logs agree, the usual case
        diverging = find_divergence(epochs, end_offset, offset, last_epoch)
    if diverging is None:
        if offset != end_offset:
            batches = _batches(log, offset, bytes_max)
        partition.note_fetch(broker_id, broker_epoch, offset)
    return ReplicaFetched(
        ErrorCode.NONE, partition.high_watermark, log.log_start_offset, diverging, batches
    )


def read_further(
    partition: Partition, leader_epoch: int, offset: int, bytes_max: int
) -> ReplicaFetched:
    """Batches for a follower that `fetch_as_replica` had none for, at the end of its wait.

    The logs agreed then, and within a leader epoch the leader's only grows. Raises as `fetch_as_replica` does.
    """
    partition.check_leader(leader_epoch)
    log, batches = partition.log, b""
    if offset != log.log_end_offset:
        batches = _batches(log, offset, bytes_max)
    return ReplicaFetched(
        ErrorCode.NONE, partition.high_watermark, log.log_start_offset, None, batches
    )


def _batches(log: Log, offset: int, bytes_max: int) -> bytes:
    if bytes_max > 0 or not log.first_offset <= offset <= log.log_end_offset:
        return log.read_for_replica(offset, bytes_max)
    return b""


def _check_follower(partition: Partition, broker_id: int, last_epoch: int) -> None:
    if broker_id not in partition.replicas:
        raise KafkaError(
            ErrorCode.REPLICA_NOT_AVAILABLE,
            f"broker {broker_id} has no replica of {partition.name}",
        )
    if broker_id == partition.leader_id:
        raise KafkaError(
            ErrorCode.REPLICA_NOT_AVAILABLE,
            f"broker {broker_id} leads {partition.name} and cannot follow itself",
        )
    assert partition.in_sync is not None
    if broker_id in partition.in_sync.largest:
        # An in-sync replica has all that is committed, so it agrees up to the log start; and it
        # must not start afresh, because it may have to lead at any time.
        return
    if not can_compare(partition.log.leader_epochs, last_epoch):
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name}: nothing is left of leader epoch {last_epoch} to compare with",
        )
