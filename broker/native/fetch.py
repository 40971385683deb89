"""`fetch`: records of one partition from an offset on, by the long poll of the Kafka port.

Records are decoded here, in Python, about 4 us each: meant for tests and tools. Whoever moves much
data asks for raw batches.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from broker.handlers import fetch
from broker.native.failure import failure
from broker.request import Peer
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.fetch import PartitionFetched, TopicFetched
from protocol.native.messages import Fetch
from protocol.native.records import to_entries
from protocol.record_batch import walk
from protocol.records import Record, read_records

if TYPE_CHECKING:
    from broker.broker import Broker

DECODED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What the records of one batch may grow to before they have to be asked for raw."""
RECORDS_MAX: Final = 10_000
"""In one answer; the batch that reaches it is the last one."""


def handle(
    message: Fetch, peer: Peer, broker: Broker
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """What there is, at once or after a wait."""
    wanted = fetch.WantedPartition(message.partition, message.offset, message.bytes_max)
    fetched = fetch.fetch(
        broker,
        fetch.Fetch(
            topics=[(message.topic, [wanted])],
            min_bytes=message.min_bytes,
            bytes_max=message.bytes_max,
            max_wait_s=message.max_wait_ms / 1000,
        ),
        peer,
    )
    return _answer(message, fetched) if isinstance(fetched, list) else _later(message, fetched)


async def _later(message: Fetch, fetched: Awaitable[list[TopicFetched]]) -> dict[str, Any]:
    return _answer(message, await fetched)


def _answer(message: Fetch, topics: list[TopicFetched]) -> dict[str, Any]:
    """Raises `KafkaError` where the records cannot be decoded."""
    fetched = topics[0].partitions[0]
    answer: dict[str, Any] = {
        "high_watermark": fetched.high_watermark,
        "log_start_offset": fetched.log_start_offset,
    }
    if fetched.error_code:
        return answer | failure(KafkaError(fetched.error_code))
    if message.is_raw:
        return answer | _raw(message, fetched)
    return answer | _decoded(message, fetched)


def _raw(message: Fetch, fetched: PartitionFetched) -> dict[str, Any]:
    next_offset = message.offset
    for _, header in walk(fetched.records):
        next_offset = header.next_offset
    return {"batches": fetched.records, "next_offset": next_offset}


def _decoded(message: Fetch, fetched: PartitionFetched) -> dict[str, Any]:
    records: list[Record] = []
    next_offset = message.offset
    view = memoryview(fetched.records)
    for position, header in walk(view):
        if len(records) >= RECORDS_MAX:
            break
        try:
            batch = read_records(view[position : position + header.size], DECODED_BYTES_MAX)
        except DecodeError as error:
            if records:
                break
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at offset {header.base_offset} cannot be shown as records ({error}); "
                f"fetch it with raw",
            ) from error
        records += [record for record in batch if record.offset >= message.offset]
        next_offset = header.next_offset
    return {"records": to_entries(records), "next_offset": next_offset}
