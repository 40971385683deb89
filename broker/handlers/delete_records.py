"""DeleteRecords (21), versions 0-2: everything below an offset goes (KIP-107).

Offset -1 means the high watermark. The answer's low watermark is the new start of the log; an
offset below the present start changes nothing. What producers have written is remembered: a retry
of a deleted batch is still a repeat.

v1: no change. v2: flexible. The timeout bounds the wait for followers; the leader alone decides
here, so there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.request import Answer, Request
from protocol.errors import ErrorCode, KafkaError
from protocol.registry import Api
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=21, name="delete_records", version_min=0, version_max=2, flexible_from=2)

HIGH_WATERMARK: Final = -1
_NO_LOW_WATERMARK: Final = -1


def handle(request: Request, broker: Broker) -> Answer:
    """One row per partition, in the order of the request."""
    topics = [
        {
            "name": topic.name,
            "partitions": [
                _row(broker, topic.name, partition.partition_index, partition.offset)
                for partition in topic.partitions
            ],
        }
        for topic in request.body.topics
    ]
    return {"throttle_time": 0, "topics": topics}


def _row(broker: Broker, topic: str, index: int, offset: int) -> dict[str, Any]:
    low_watermark, code = _NO_LOW_WATERMARK, ErrorCode.NONE
    try:
        low_watermark = _delete(broker, topic, index, offset)
    except KafkaError as error:
        code = error.code
    except StorageError as error:
        broker.fail_storage(error)
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


def _delete(broker: Broker, topic: str, index: int, offset: int) -> int:
    """The start of the log afterwards."""
    partition = broker.find_partition(topic, index)
    partition.check_leader()
    partition.advance_log_start(partition.high_watermark if offset == HIGH_WATERMARK else offset)
    return partition.log.log_start_offset
