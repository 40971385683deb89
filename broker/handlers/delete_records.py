"""DeleteRecords (21), versions 0-2: deletes everything below an offset (KIP-107).

Offset -1 means the high watermark. The answer's low watermark is the new log start offset; an
offset below the present one changes nothing. Producer state is kept: a retry of a deleted batch is
still a duplicate.

v1: no change. v2: flexible. In Kafka the timeout bounds the wait for followers; here the leader
alone decides, so there is no wait.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.topic_rows import partition_rows
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

HIGH_WATERMARK: Final = -1
_NO_LOW_WATERMARK: Final = -1


def handle(request: Request, services: Services) -> Outcome:
    """One row per partition, in the order of the request."""
    return partition_rows(request.body.topics, partial(_row, services))


def _row(services: Services, topic: str, wanted: Any) -> dict[str, Any]:
    index, low_watermark, code = wanted.partition_index, _NO_LOW_WATERMARK, ErrorCode.NONE
    try:
        low_watermark = _delete(services, topic, index, wanted.offset)
    except KafkaError as error:
        code = error.code
    except StorageError as error:
        services.fail_storage(error)
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


def _delete(services: Services, topic: str, index: int, offset: int) -> int:
    """The log start offset afterwards."""
    partition = services.partitions.find(topic, index)
    if partition.rules.is_internal:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)  # the answer has no message
    if not partition.rules.may_be_deleted:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    partition.check_leader()
    partition.advance_log_start(partition.high_watermark if offset == HIGH_WATERMARK else offset)
    return partition.log.log_start_offset


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    return {"topics": refused_partitions(refusal, low_watermark=_NO_LOW_WATERMARK)}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.topics(AclOperation.DELETE),
)
