"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch.

Consumers send it after a leader change, to find out whether the log they have read was truncated
(KIP-320). The answer gives the newest epoch not above the requested one, and its end offset; -1 and
-1 if the epoch is unknown.

v2: the client's current leader epoch is checked. v3 (KIP-392): replica id; followers ask on the
native port, so it is ignored. v4: flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.topic_rows import partition_rows
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)


def handle(request: Request, services: Services) -> Outcome:
    """One row per partition, in the order of the request."""
    return partition_rows(request.body.topics, partial(_row, services), name="topic")


def _row(services: Services, topic: str, wanted: Any) -> dict[str, Any]:
    index = wanted.partition
    try:
        partition = services.partitions.find(topic, index)
        partition.check_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        return {"partition": index, "error_code": error.code}
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_for(wanted.leader_epoch, log.log_end_offset)
    return {
        "partition": index,
        "error_code": ErrorCode.NONE,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    return {"topics": refused_partitions(refusal, topic="topic", partition="partition")}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.topics(AclOperation.DESCRIBE, or_cluster=AclOperation.CLUSTER_ACTION),
)
