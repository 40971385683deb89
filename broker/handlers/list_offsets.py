"""ListOffsets (2), versions 1-9: the offset at a time, or at one end of the log.

Timestamps: >= 0 the first record at or after it; -1 latest (the high watermark); -2 earliest; -3
(v7, KIP-734) the record with the largest timestamp; -4 and -5 (KIP-405) ask about tiered storage:
-4 is the log start here, -5 does not exist. v4 leader epochs; v5 (KIP-207) OFFSET_NOT_AVAILABLE;
v6 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.handlers.topic_rows import partition_rows
from broker.partition import Partition
from broker.request import Outcome, Request
from protocol.errors import ErrorCode, KafkaError
from protocol.registry import Api
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=2, name="list_offsets", version_min=1, version_max=9, flexible_from=6)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
_MAX_TIMESTAMP_FROM: Final = 7
_OFFSET_NOT_AVAILABLE_FROM: Final = 5


def handle(request: Request, broker: Broker) -> Outcome:
    """One answer per partition asked for."""
    version = request.version
    return partition_rows(
        request.body.topics, lambda topic, wanted: _partition(broker, version, topic, wanted)
    )


def _partition(broker: Broker, version: int, topic: str, wanted: Any) -> dict[str, Any]:
    index = wanted.partition_index
    try:
        partition = broker.find_partition(topic, index)
        partition.check_leader(getattr(wanted, "current_leader_epoch", -1))
        _check_high_watermark(partition, version, wanted.timestamp)
        timestamp, offset = _offset(partition, version, wanted.timestamp)
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    except StorageError as error:
        broker.fail_storage(error)
        return {"partition_index": index, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": partition.leader_epoch if offset >= 0 else -1,
    }


def _check_high_watermark(partition: Partition, version: int, timestamp: int) -> None:
    """A new leader does not name an end that may lie before what the last one has shown (KIP-207).

    Raises `KafkaError`.
    """
    if timestamp in {EARLIEST, EARLIEST_LOCAL} or partition.knows_high_watermark:
        return
    late = ErrorCode.OFFSET_NOT_AVAILABLE
    code = late if version >= _OFFSET_NOT_AVAILABLE_FROM else ErrorCode.LEADER_NOT_AVAILABLE
    raise KafkaError(code, f"{partition.name}: the new leader does not know the high watermark yet")


def _offset(partition: Partition, version: int, timestamp: int) -> tuple[int, int]:
    """`(timestamp, offset)`; -1 for what does not exist."""
    log = partition.log
    if timestamp == LATEST:
        return -1, partition.high_watermark
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, log.log_start_offset
    if timestamp == MAX_TIMESTAMP and version >= _MAX_TIMESTAMP_FROM:
        found: tuple[int, int] | None = log.max_timestamp()
    elif timestamp >= 0:
        found = log.offset_at_timestamp(timestamp)
    elif timestamp == LATEST_TIERED:
        found = None
    else:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if found is None or found[1] >= partition.high_watermark:
        return -1, -1
    return found
