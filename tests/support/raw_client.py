"""A minimal Kafka client: one asyncio connection, exact bytes, no retries.

Requests may be pipelined: `send` several, then `receive` as often, in the same order. Produce is
packed by hand (`raw_produce`); the rest goes through kio's messages.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import importlib
import io
import ssl
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.raw_batches import StoredBatch, split_log
from tests.support.raw_produce import (
    NO_TAGS,
    PRODUCE,
    PartitionAnswer,
    PartitionData,
    decode_produce,
    encode_produce,
    is_flexible,
)

_CLIENT_ID = b"raw"
ANSWER_TIMEOUT_S = 30.0
_FETCH_BYTES = 64 * 1024 * 1024


class ProducerRow(NamedTuple):
    """One active producer from DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class ConnectionEndedError(Exception):
    """The broker closed the connection instead of answering."""


class RawConnection:
    """One connection to one broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0
        self._received = 0
        self.answer_timeout_s = ANSWER_TIMEOUT_S

    @classmethod
    async def open(
        cls, address: str, context: ssl.SSLContext | None = None, source: str | None = None
    ) -> RawConnection:
        """`address` is `host:port`; with a context, by TLS. `source` is the client's own address, if not any."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), limit=2**20, ssl=context, local_addr=source and (source, 0)
        )
        return cls(reader, writer)

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return

    def send(
        self, api_key: int, version: int, body: bytes, *, flexible: bool, answered: bool = True
    ) -> None:
        """Writes one frame. `answered` is False for produce with acks 0."""
        self._sent += answered
        frame = encode_frame(api_key, version, self._sent, body, flexible=flexible)
        self._writer.write(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Writes any bytes, even invalid requests."""
        self._writer.write(data)

    async def receive(self) -> bytes:
        """The next answer, after its correlation id. Raises `ConnectionEndedError` at the end."""
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                frame = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ConnectionEndedError from error
        self._received += 1
        (correlation_id,) = struct.unpack_from(">i", frame)
        assert correlation_id == self._received, "answers left their order"
        return frame[4:]

    def send_produce(
        self,
        version: int,
        acks: int,
        rows: Sequence[PartitionData],
        transactional_id: str | None = None,
    ) -> None:
        body = encode_produce(version, acks, rows, transactional_id=transactional_id)
        self.send(PRODUCE, version, body, flexible=is_flexible(version), answered=acks != 0)

    async def receive_produce(self, version: int) -> list[PartitionAnswer]:
        body = await self.receive()
        return decode_produce(version, body[is_flexible(version) :])

    async def produce(
        self,
        version: int,
        acks: int,
        rows: Sequence[PartitionData],
        transactional_id: str | None = None,
    ) -> list[PartitionAnswer]:
        """Sends one request and returns its answer; not for acks 0."""
        self.send_produce(version, acks, rows, transactional_id)
        return await self.receive_produce(version)

    def send_request(self, request: Any) -> None:
        """Writes one kio request."""
        body, flexible = encode_body(request)
        self.send(request.__api_key__, request.__version__, body, flexible=flexible)

    async def receive_response(self, api: str, version: int) -> Any:
        return decode_whole(message(api, version, "Response"), await self.receive())[0]

    async def call(self, api: str, version: int, **fields: Any) -> Any:
        """Sends one kio request and returns its response."""
        self.send_request(message(api, version, "Request")(**fields))
        return await self.receive_response(api, version)


def encode_frame(
    api_key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool
) -> bytes:
    """A request with its header, without its length."""
    header = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    return header + NO_TAGS * flexible + body


def encode_body(request: Any) -> tuple[bytes, bool]:
    """The body of a kio request, and whether its header is flexible."""
    buffer = io.BytesIO()
    entity: Any = type(request)
    _writer(entity)(buffer, request)
    flexible = request.__flexible__ and request.__header_schema__.__version__ == 2
    return buffer.getvalue(), flexible


def decode_whole(response: Any, body: bytes) -> tuple[Any, int]:
    """The response in what `receive` returned, and the number of bytes left after it."""
    skip = 1 if response.__header_schema__.__version__ == 1 else 0
    entity, size = _reader(response)(body, skip)
    return entity, len(body) - skip - size


@functools.cache
def message(api: str, version: int, kind: str) -> Any:
    """kio's class, e.g. `message("fetch", 11, "Request")`; nested ones through `nested`."""
    module = _module(api, version, kind.lower())
    name = "".join(part.capitalize() for part in api.split("_")) + kind
    return getattr(module, name)


def nested(api: str, version: int, name: str) -> Any:
    """A class nested inside a request of kio."""
    return getattr(_module(api, version, "request"), name)


def _module(api: str, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


@functools.cache
def _writer(entity: Any) -> Any:
    return importlib.import_module("kio.serial").entity_writer(entity)


@functools.cache
def _reader(entity: Any) -> Any:
    return importlib.import_module("kio.serial").entity_reader(entity)


async def create_topic(
    connection: RawConnection, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Creates a topic with one replica and waits until every partition has a leader."""
    topic = nested("create_topics", 5, "CreatableTopic")(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            nested("create_topics", 5, "CreatableTopicConfig")(name=key, value=value)
            for key, value in (configs or {}).items()
        ),
    )
    response = await connection.call("create_topics", 5, topics=(topic,))
    row = response.topics[0]
    assert row.error_code == 0, f"creating {name}: {row.error_code!r} {row.error_message}"
    await wait_for_leaders(connection, name, partitions)


async def wait_for_leaders(connection: RawConnection, name: str, partitions: int) -> None:
    """Polls until every partition of the topic has a leader."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while not await _has_leaders(connection, name, partitions):
            pass


async def _has_leaders(connection: RawConnection, name: str, partitions: int) -> bool:
    """Whether the broker answers for all of them: metadata may name a leader too early."""
    rows = await _list_offsets(connection, name, range(partitions), timestamp=-1)
    return all(row.error_code == 0 for row in rows)


async def topic_id(connection: RawConnection, name: str) -> uuid.UUID:
    """The id by which Produce v13 names the topic."""
    found = (await _topic_metadata(connection, name)).topic_id
    assert found is not None
    return uuid.UUID(bytes=found.bytes)


async def _topic_metadata(connection: RawConnection, name: str) -> Any:
    topic = nested("metadata", 12, "MetadataRequestTopic")(topic_id=None, name=name)
    response = await connection.call(
        "metadata",
        12,
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return response.topics[0]


async def fetch_log(connection: RawConnection, topic: str, partition: int) -> list[StoredBatch]:
    """Every stored batch of one partition up to its high watermark."""
    batches: list[StoredBatch] = []
    offset = 0
    while True:
        row = await _fetch(connection, topic, partition, offset)
        assert row.error_code == 0, f"fetching {topic}-{partition}: {row.error_code!r}"
        found = split_log(row.records or b"")
        if not found:
            return batches
        batches += found
        offset = next_offset(found[-1])
        if offset >= row.high_watermark:
            return batches


def next_offset(batch: StoredBatch) -> int:
    """The offset after the batch's last record."""
    (last_offset_delta,) = struct.unpack_from(">i", batch.data, 23)
    return batch.base_offset + int(last_offset_delta) + 1


async def _fetch(connection: RawConnection, topic: str, partition: int, offset: int) -> Any:
    row = nested("fetch", 11, "FetchPartition")(
        partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    response = await connection.call(
        "fetch",
        11,
        max_wait=datetime.timedelta(0),
        min_bytes=0,
        topics=(nested("fetch", 11, "FetchTopic")(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
    )
    return response.responses[0].partitions[0]


async def list_offset(
    connection: RawConnection, topic: str, partition: int, timestamp: int = -1
) -> int:
    """The offset at `timestamp` (ms); -1 requests the latest, -2 the earliest."""
    (found,) = await _list_offsets(connection, topic, [partition], timestamp=timestamp)
    assert found.error_code == 0, f"listing {topic}-{partition}: {found.error_code!r}"
    return int(found.offset)


async def _list_offsets(
    connection: RawConnection, topic: str, partitions: Iterable[int], *, timestamp: int
) -> Sequence[Any]:
    row = nested("list_offsets", 5, "ListOffsetsPartition")
    rows = tuple(row(partition_index=index, timestamp=timestamp) for index in partitions)
    response = await connection.call(
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=0,
        topics=(nested("list_offsets", 5, "ListOffsetsTopic")(name=topic, partitions=rows),),
    )
    found: Sequence[Any] = response.topics[0].partitions
    return found


def describe_producers_request(topic: str, partitions: Iterable[int]) -> Any:
    row = nested("describe_producers", 0, "TopicRequest")(
        name=topic, partition_indexes=tuple(partitions)
    )
    return message("describe_producers", 0, "Request")(topics=(row,))


def producer_rows(partition_response: Any) -> list[ProducerRow]:
    """The active producers of one partition, by id."""
    return sorted(
        ProducerRow(*(int(getattr(row, name)) for name in ProducerRow._fields))
        for row in partition_response.active_producers
    )
