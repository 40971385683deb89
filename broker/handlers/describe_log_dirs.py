"""DescribeLogDirs (35), versions 1-4: the replicas that this broker holds, their bytes, and the space of their volume.

KIP-113; v2 flexible, v3 an error code of the whole answer, v4 (KIP-827) the bytes of the volume. There is one
directory. Null asks for all replicas; a partition that this broker does not hold is left out, one that is named
several times is listed once. The offset lag is that of a replica which moves to another directory, so 0.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import ManyRows, in_thread, work_in_turns
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.partitions.partition import Partition
    from echoless.broker.services import Services

API = declared(__name__)

Sizes = defaultdict[str, dict[int, int]]
"""Bytes by topic and partition."""

_ERROR_CODE_FROM: Final = 3
_UNKNOWN_BYTES: Final = -1


def handle(request: Request, services: Services) -> Outcome:
    """The one directory; KAFKA_STORAGE_ERROR in its row if it has failed."""
    return _described(request.body.topics, services)


async def _described(topics: Iterable[Any] | None, services: Services) -> Answer:
    directory = services.config.data_dir
    row: dict[str, Any] = {"log_dir": directory, "topics": ()}
    if services.partitions.failure is not None:
        row["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        total, usable = await in_thread(lambda: _volume(directory))
        sizes: Sizes = defaultdict(dict)
        await work_in_turns(_measured(_wanted(topics, services), sizes))
        row |= {
            "error_code": ErrorCode.NONE,
            "topics": [_topic(*one) for one in sizes.items()],
            "total_bytes": total,
            "usable_bytes": usable,
        }
    return ManyRows({"error_code": ErrorCode.NONE, "results": [row]})


def _volume(directory: str) -> tuple[int, int]:
    """The bytes of the volume, and those that are free for this process."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return usage.total, usage.free


def _wanted(
    topics: Iterable[Any] | None, services: Services
) -> Iterator[tuple[str, int, Partition | None]]:
    held = services.partitions.held
    if topics is None:
        yield from ((*key, partition) for key, partition in list(held.items()))
        return
    for topic in topics:
        for index in topic.partitions:
            yield topic.topic, index, held.get((topic.topic, index))


def _measured(
    wanted: Iterable[tuple[str, int, Partition | None]], sizes: Sizes
) -> Iterator[object]:
    for topic, index, partition in wanted:
        if partition is not None:
            sizes[topic][index] = partition.log.size_bytes
        yield None


def _topic(name: str, sizes: dict[int, int]) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [
            {
                "partition_index": index,
                "partition_size": size,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for index, size in sizes.items()
        ],
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of the whole answer from version 3 on; before, in a row.

    There no row at all means that the client may not ask, as in Kafka.
    """
    code = refusal.error.code
    is_row = refusal.request.version < _ERROR_CODE_FROM
    rows: tuple[dict[str, Any], ...] = ({"error_code": code, "log_dir": "", "topics": ()},)
    is_denied = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return {"error_code": code, "results": rows if is_row and not is_denied else ()}


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.DESCRIBE))
