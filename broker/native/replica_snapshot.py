"""`replica_snapshot`: the producer state that a follower without a log has to start from.

The leader keeps the snapshot at its first offset for this (`storage/retention.py`), and sends it in
pieces: it may be larger than an answer should be. If the snapshot is deleted meanwhile, the answer is
OFFSET_OUT_OF_RANGE, and the follower starts over with the newest one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import NEWEST_SNAPSHOT, ReplicaSnapshot, SnapshotPiece
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.services import Services

PIECE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest piece in one answer, whatever the follower asks for."""


def handle(message: ReplicaSnapshot, _peer: Peer, services: Services) -> dict[str, Any]:
    """The piece at `position`. Raises `KafkaError` with the errors of replica_fetch for a partition."""
    partition = services.partitions.find(message.topic_id, message.partition)
    partition.check_leader(message.leader_epoch)
    offset = None if message.offset == NEWEST_SNAPSHOT else message.offset
    try:
        chunk = partition.log.producer_snapshot_chunk(
            offset, message.position, min(message.bytes_max, PIECE_BYTES_MAX)
        )
    except StorageError as error:
        services.fail_storage(error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    return SnapshotPiece(
        offset=chunk.offset,
        size=chunk.size,
        position=chunk.position,
        data=chunk.data,
        log_start_offset=partition.log.log_start_offset,
        now_ms=services.clock.steady_ms(),
    ).to_answer()
