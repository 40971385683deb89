"""ListOffsets (2), versions 1-9: the offset for a timestamp, or at either end of the log.

Timestamps: >= 0 the first record at or after it; -1 latest (the high watermark, or for read_committed
the last stable offset); -2 earliest; -3 (v7, KIP-734) the record with the largest timestamp; -4 (v8) and
-5 (v9, KIP-405) ask about tiered storage: -4 is the log start here, -5 does not exist. v2 isolation level;
v4 leader epochs; v5 (KIP-207) OFFSET_NOT_AVAILABLE; v6 flexible. A partition that is listed twice is
refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.topic_rows import partition_rows
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import ROWS_PER_TURN, awaited_in_turns, work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.fetch import READ_COMMITTED
from echoless.protocol.record_batch import read_header
from echoless.protocol.record_check import is_quickly_opened
from echoless.protocol.records import first_record_since
from echoless.protocol.typed_requests import typed
from echoless.storage.file_system import StorageError
from echoless.storage.time_lookup import Found, LookUp

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
_KNOWN_FROM: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
"""Timestamps with a special meaning, and the version that introduced each."""
_OFFSET_NOT_AVAILABLE_FROM: Final = 5


class ListOffsetsRequest(NamedTuple):
    isolation_level: int = 0


class WantedOffset(NamedTuple):
    """A partition of the request."""

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class _Terms(NamedTuple):
    """The terms of a request, which apply to each of its partitions."""

    read_committed: bool
    special_timestamps: frozenset[int]
    """The timestamps that have a special meaning in its version."""
    not_available: ErrorCode
    """The error for offsets that a new leader does not know yet."""


def _terms(request: Request) -> _Terms:
    body, version = typed(ListOffsetsRequest, request.body), request.version
    return _Terms(
        body.isolation_level == READ_COMMITTED,
        frozenset(timestamp for timestamp, known in _KNOWN_FROM.items() if version >= known),
        ErrorCode.OFFSET_NOT_AVAILABLE
        if version >= _OFFSET_NOT_AVAILABLE_FROM
        else ErrorCode.LEADER_NOT_AVAILABLE,
    )


_Place = tuple[str, int]
_LookUpResult = Found | KafkaError | StorageError
_LookedUp = Mapping[_Place, _LookUpResult]


def handle(request: Request, services: Services) -> Outcome:
    """One row per requested partition."""
    topics = request.body.topics
    if sum([len(topic.partitions) for topic in topics]) > ROWS_PER_TURN or any(
        _is_looked_up(row.timestamp) for topic in topics for row in topic.partitions
    ):
        return _handle_later(request, services)
    return _rows(request, services, {}, _listed_twice(topics))


async def _handle_later(request: Request, services: Services) -> Answer:
    """Searches batches first, which may wait for a thread; the rest is the same as without."""
    wanted: dict[_Place, Any] = {}
    repeated: set[_Place] = set()
    await work_in_turns(_sort(request.body.topics, wanted, repeated))
    looked_up: dict[_Place, _LookUpResult] = {}

    async def look_up(place: _Place, row: Any) -> None:
        if _is_looked_up(row.timestamp) and place not in repeated:
            asked = typed(WantedOffset, row)
            looked_up[place] = await _look_up(services, request.peer.host, place[0], asked)

    await awaited_in_turns(itertools.starmap(look_up, wanted.items()), lambda _: {})
    outcome = _rows(request, services, looked_up, repeated)
    return await outcome if isinstance(outcome, Awaitable) else outcome


def _sort(
    topics: Sequence[Any], wanted: dict[_Place, Any], repeated: set[_Place]
) -> Iterator[None]:
    """Adds the partitions to `wanted`, and those that are listed twice to `repeated`, one at a time."""
    for topic in topics:
        for row in topic.partitions:
            place = (topic.name, row.partition_index)
            if place in wanted:
                repeated.add(place)
            wanted[place] = row
            yield


def _is_looked_up(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _rows(
    request: Request, services: Services, looked_up: _LookedUp, repeated: Collection[_Place]
) -> Outcome:
    terms = _terms(request)

    def row(topic: str, wanted: Any) -> dict[str, Any]:
        if (topic, wanted.partition_index) in repeated:
            index = wanted.partition_index
            return {"partition_index": index, "error_code": ErrorCode.INVALID_REQUEST}
        found = looked_up.get((topic, wanted.partition_index))
        return _partition(services, terms, topic, typed(WantedOffset, wanted), found)

    return partition_rows(request.body.topics, row)


def _listed_twice(topics: Sequence[Any]) -> frozenset[tuple[str, int]]:
    mentions = [(topic.name, row.partition_index) for topic in topics for row in topic.partitions]
    if len(mentions) == len(set(mentions)):
        return frozenset()
    return frozenset(mention for mention, count in Counter(mentions).items() if count > 1)


def _partition(
    services: Services,
    terms: _Terms,
    topic: str,
    wanted: WantedOffset,
    found: _LookUpResult | None,
) -> dict[str, Any]:
    """One row of the answer; `found` is the result of a look-up."""
    index = wanted.partition_index
    try:
        partition = services.partitions.find(topic, index)
        partition.check_leader(wanted.current_leader_epoch)
        _check_high_watermark(partition, terms, wanted.timestamp)
        end = partition.visible_end(read_committed=terms.read_committed)
        timestamp, offset = _offset(partition, end, terms, wanted.timestamp, found)
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    except StorageError as error:
        services.fail_storage(error)
        return {"partition_index": index, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": partition.leader_epoch if offset >= 0 else -1,
    }


def _check_high_watermark(partition: Partition, terms: _Terms, timestamp: int) -> None:
    """Raises `KafkaError` while a new leader's end may be below the one last shown (KIP-207)."""
    if timestamp in {EARLIEST, EARLIEST_LOCAL} or partition.knows_high_watermark:
        return
    raise KafkaError(
        terms.not_available,
        f"{partition.name}: the new leader does not know the high watermark yet",
    )


def _offset(
    partition: Partition, end: int, terms: _Terms, timestamp: int, found: _LookUpResult | None
) -> tuple[int, int]:
    """`(timestamp, offset)` of what lies below `end`; -1 for what does not exist."""
    if timestamp < 0 and timestamp not in terms.special_timestamps:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {timestamp} has no meaning in this version",
        )
    if timestamp == LATEST:
        return -1, end
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, partition.log.log_start_offset
    if timestamp == LATEST_TIERED:
        return -1, -1
    if isinstance(found, Exception):
        raise found
    if found is None or found[1] >= end:
        return -1, -1
    return found


async def _look_up(
    services: Services, host: str, topic: str, wanted: WantedOffset
) -> _LookUpResult:
    """The result, or the error to refuse the row with."""
    try:
        partition = services.partitions.find(topic, wanted.partition_index)
        partition.check_leader(wanted.current_leader_epoch)
        log, timestamp = partition.log, wanted.timestamp
        look_up = log.max_timestamp() if timestamp < 0 else log.offset_at_timestamp(timestamp)
        return await _opened(services, host, partition, look_up)
    except (KafkaError, StorageError) as error:
        return error


async def _opened(services: Services, host: str, partition: Partition, look_up: LookUp) -> Found:
    """Performs a look-up; a batch that cannot be opened quickly is opened in a thread.

    Raises `KafkaError` CORRUPT_MESSAGE for a stored batch that cannot be opened.
    """
    try:
        wanted = next(look_up)
        while True:
            if is_quickly_opened(read_header(wanted.batch)):
                found = first_record_since(*wanted)
                await asyncio.sleep(0)  # a request may ask for thousands of partitions
            else:
                found = await services.record_thread.run(host, first_record_since, *wanted)
            wanted = look_up.send(found)
    except StopIteration as end:
        answer: Found = end.value
        return answer
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition.name}: {error}") from error


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    return {"topics": refused_partitions(refusal)}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.topics(AclOperation.DESCRIBE),
)
