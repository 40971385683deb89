"""`fetch`: records of one partition from an offset on, by the long poll of the Kafka port.

Records are decoded here, in Python, at about 4 us each: meant for tests and tools. Of aborted transactions readers of
committed records get none, and no one gets markers. A client that moves a lot of data asks for raw batches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.native.failure import failure
from echoless.broker.network.request import Peer
from echoless.broker.records import fetch
from echoless.protocol.data_batches import data_batches
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.fetch import READ_COMMITTED, PartitionFetched, TopicFetched
from echoless.protocol.fetch_request import (
    NO_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from echoless.protocol.native.messages import Fetch
from echoless.protocol.native.records import to_entries
from echoless.protocol.record_batch import BatchHeader, walk
from echoless.protocol.record_check import is_quickly_opened
from echoless.protocol.records import Record, iterate_records

if TYPE_CHECKING:
    from echoless.broker.services import Services

DECODED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The decoded size up to which the records of a batch are returned; a larger batch must be fetched raw."""
RECORDS_MAX: Final = 10_000
"""The most records in one answer."""
DECODED_AT_ONCE_BYTES: Final = 16 * 1024
"""Bytes of batches that are decoded on the loop; more are decoded in a thread."""


def handle(
    message: Fetch, peer: Peer, services: Services
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """The available records, at once or after a wait."""
    rows = [FetchPartition(message.partition, message.offset, message.bytes_max)]
    wanted = FetchRequest(
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        bytes_max=message.bytes_max,
        isolation_level=message.isolation_level,
        session_epoch=NO_SESSION_EPOCH,
        topics=[FetchTopic(message.topic, rows)],
    )
    fetched = fetch.fetch(services.fetch, wanted, peer, fetch.count_rows(wanted))
    if isinstance(fetched, list):
        return _answer(message, fetched, peer.host, services)
    return _later(message, fetched, peer.host, services)


async def _later(
    message: Fetch, fetched: Awaitable[list[TopicFetched]], host: str, services: Services
) -> dict[str, Any]:
    answer = _answer(message, await fetched, host, services)
    return await answer if isinstance(answer, Awaitable) else answer


def _answer(
    message: Fetch, topics: list[TopicFetched], host: str, services: Services
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """Raises `KafkaError` if the records cannot be decoded."""
    ((_, (fetched,)),) = topics
    answer: dict[str, Any] = {
        "high_watermark": fetched.high_watermark,
        "last_stable_offset": fetched.last_stable_offset,
        "log_start_offset": fetched.log_start_offset,
    }
    if fetched.error_code:
        return answer | failure(KafkaError(fetched.error_code))
    if message.is_raw:
        return answer | _raw(message, fetched)
    if len(fetched.records) <= DECODED_AT_ONCE_BYTES and all(
        is_quickly_opened(header) for _, header in walk(fetched.records)
    ):
        return answer | _decoded(message, fetched)
    return _decoded_in_thread(message, fetched, answer, host, services)


async def _decoded_in_thread(
    message: Fetch,
    fetched: PartitionFetched,
    answer: dict[str, Any],
    host: str,
    services: Services,
) -> dict[str, Any]:
    return answer | await services.record_thread.run(host, _decoded, message, fetched)


def _raw(message: Fetch, fetched: PartitionFetched) -> dict[str, Any]:
    raw = {"batches": fetched.records, "next_offset": _end_of(message, fetched)}
    if message.isolation_level == READ_COMMITTED:
        raw["aborted"] = [list(one) for one in fetched.aborted or ()]
    return raw


def _end_of(message: Fetch, fetched: PartitionFetched) -> int:
    """The offset after the last batch."""
    next_offset = message.offset
    for _, header in walk(fetched.records):
        next_offset = header.next_offset
    return next_offset


def _decoded(message: Fetch, fetched: PartitionFetched) -> dict[str, Any]:
    """At most `RECORDS_MAX` records; a batch with more continues in the next answer."""
    records: list[Record] = []
    next_offset = at = message.offset
    view = memoryview(fetched.records)
    try:
        for position, header in data_batches(view, fetched.aborted or ()):
            at = header.base_offset
            for record in _read(view[position : position + header.size], header):
                if record.offset < message.offset:
                    continue
                if len(records) >= RECORDS_MAX:
                    return {"records": to_entries(records), "next_offset": next_offset}
                records.append(record)
                next_offset = record.offset + 1
            next_offset = at = header.next_offset
        next_offset = _end_of(message, fetched)
    except DecodeError as error:
        if not records:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at offset {at} cannot be shown as records ({error}); fetch it with raw",
            ) from error
    return {"records": to_entries(records), "next_offset": next_offset}


def _read(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    """The records of the batch; offsets must ascend, or a client continuing from the last would be stuck."""
    least = header.base_offset
    for record in iterate_records(batch, DECODED_BYTES_MAX):
        if not least <= record.offset < header.next_offset:
            raise DecodeError(f"a record has the offset {record.offset}")
        least = record.offset + 1
        yield record
