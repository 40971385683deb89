"""Fetch (1), versions 4-17: record batches from the high watermark downwards, by long poll.

Answers at once when `min_bytes` are there, when a partition has an error, or when `max_wait` is 0;
otherwise waits for data, at most `max_wait`. At least one batch is returned even when it is larger
than the limits (KIP-74). Both isolation levels see the same: there are no transactions, so the last
stable offset is the high watermark.

v5 log_start_offset; v7 (KIP-227) fetch sessions: declined, every answer carries session id 0, which
tells the client to go on with full requests; v9 leader epochs; v12 flexible, last_fetched_epoch;
v13 topic ids. Followers replicate over the native port, not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.partition import Partition
from broker.request import Answer, Outcome, Request
from protocol.errors import ErrorCode, KafkaError
from protocol.fetch import NO_SESSION, PartitionFetched, TopicFetched, encode_fetch_response
from protocol.registry import Api
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=1, name="fetch", version_min=4, version_max=17, flexible_from=12)

_TOPIC_IDS_FROM: Final = 13
_FINAL_EPOCH: Final = -1
BYTES_MAX: Final = 57_671_680
"""Records in one answer, whatever the client asks for (Kafka's `fetch.max.bytes`, 55 MiB)."""


class _Read(NamedTuple):
    """One look at all partitions of the request."""

    topics: list[TopicFetched]
    size: int
    """Bytes of records."""
    has_error: bool
    partitions: list[Partition]
    """Those whose next data may make the request complete."""


def handle(request: Request, broker: Broker) -> Outcome:
    """Reads what there is; waits if that is not enough."""
    body = request.body
    if getattr(body, "session_id", NO_SESSION) != NO_SESSION:
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return encode_fetch_response(request.version, code, [])
    read = _read(request, broker)
    if read.size >= body.min_bytes or read.has_error or not body.max_wait or not read.partitions:
        return encode_fetch_response(request.version, ErrorCode.NONE, read.topics)
    return _wait_for_data(request, broker, read)


async def _wait_for_data(request: Request, broker: Broker, read: _Read) -> Answer:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.body.max_wait.total_seconds()
    while read.size < request.body.min_bytes and not read.has_error:
        timeout_s = deadline - loop.time()
        if timeout_s <= 0 or not await _data_arrived(read.partitions, timeout_s):
            break
        read = _read(request, broker)
    return encode_fetch_response(request.version, ErrorCode.NONE, read.topics)


async def _data_arrived(partitions: Sequence[Partition], timeout_s: float) -> bool:
    """Whether a high watermark (or a role) moved before the time was up."""
    arrived = asyncio.get_running_loop().create_future()
    for partition in partitions:
        partition.notify_of_data(arrived)
    try:
        async with asyncio.timeout(timeout_s):
            await arrived
    except TimeoutError:
        return False
    finally:
        for partition in partitions:
            partition.forget(arrived)
    return True


def _read(request: Request, broker: Broker) -> _Read:
    version, body = request.version, request.body
    left = min(body.max_bytes, BYTES_MAX)
    topics: list[TopicFetched] = []
    partitions: list[Partition] = []
    size, has_error = 0, False
    for wanted_topic in body.topics:
        topic = wanted_topic.topic_id if version >= _TOPIC_IDS_FROM else wanted_topic.topic
        fetched = []
        for wanted in wanted_topic.partitions:
            one, partition = _read_partition(broker, topic, wanted, left, is_first=size == 0)
            fetched.append(one)
            size += len(one.records)
            left -= len(one.records)
            has_error |= one.error_code != ErrorCode.NONE or one.diverging_epoch is not None
            if partition is not None:
                partitions.append(partition)
        topics.append(TopicFetched(topic, fetched))
    broker.metrics.fetch_bytes_total += size
    return _Read(topics, size, has_error, partitions)


def _read_partition(
    broker: Broker, topic: Any, wanted: Any, left: int, *, is_first: bool
) -> tuple[PartitionFetched, Partition | None]:
    """One partition's answer; the partition itself where the answer is not an error."""
    index = wanted.partition
    try:
        partition = broker.find_partition(topic, index)
        partition.check_leader(getattr(wanted, "current_leader_epoch", -1))
        diverging = _diverging_epoch(partition, wanted)
        records = b""
        if diverging is None:
            records = _records(partition, wanted, left, is_first=is_first)
    except KafkaError as error:
        return PartitionFetched(index, error.code), None
    except StorageError as error:
        broker.fail_storage(error)
        return PartitionFetched(index, ErrorCode.KAFKA_STORAGE_ERROR), None
    high_watermark, start = partition.high_watermark, partition.log.log_start_offset
    fetched = PartitionFetched(
        index, ErrorCode.NONE, high_watermark, high_watermark, start, records, diverging
    )
    return fetched, partition


def _records(partition: Partition, wanted: Any, left: int, *, is_first: bool) -> bytes:
    """Whole batches within the limits; the first of the answer may exceed them."""
    limit = min(wanted.partition_max_bytes, left)
    offset = wanted.fetch_offset
    if partition.log.log_start_offset <= offset and partition.high_watermark <= offset:
        if offset > partition.log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return b""
    if limit <= 0 and not is_first:
        return b""
    records = partition.read(offset, max(limit, 0))
    return records if is_first or len(records) <= limit else b""


def _diverging_epoch(partition: Partition, wanted: Any) -> tuple[int, int] | None:
    """`(epoch, end offset)` of ours where the fetcher's log is not a prefix of it (KIP-595)."""
    last_fetched_epoch = getattr(wanted, "last_fetched_epoch", _FINAL_EPOCH)
    if last_fetched_epoch < 0:
        return None
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
    if epoch < last_fetched_epoch or end_offset < wanted.fetch_offset:
        return epoch, end_offset
    return None
