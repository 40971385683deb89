"""Processor time that a broker takes per request, by kind of request.

Processor time is counted by the kernel in nanoseconds, and a client in the same process as the clock does
not change it, nor does a machine that is busy with something else, apart from its caches.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, message, nested
from tests.support.raw_produce import NO_TAGS, PRODUCE, PartitionData, encode_produce

_IN_FLIGHT: Final = 5
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 11
_RECORD_BYTES_MAX: Final = 16_384
_ACKS_ALL: Final = -1
_LENGTH: Final = struct.Struct(">i")
_PRODUCED: Final = struct.pack(">ih", 0, 0)
"""Partition 0, without an error."""


_SCHEDULER_TIME: Final = 2
"""Makes of a process id, as `clock_getcpuclockid` of Linux does, the clock of what its threads have taken, in nanoseconds."""


class Addresses(NamedTuple):
    """Addresses of the measured broker, `host:port`."""

    kafka: str
    native: str


class Kind(NamedTuple):
    """One kind of request."""

    run: Callable[[Addresses, str, int], Awaitable[None]]
    """Sends a number of requests to a topic; returns when all are answered."""
    partitions: int
    requests: int
    """How many one round sends by default."""


def processor_s(pid: int, *, main_thread_only: bool = False) -> float:
    """Processor time that the process has taken so far, in threads that have ended too; or in its event loop's alone."""
    if main_thread_only:
        schedule = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text()
        return int(schedule.split()[0]) / 1e9
    return time.clock_gettime(~pid << 3 | _SCHEDULER_TIME)


async def _produce(
    addresses: Addresses, topic: str, requests: int, *, batch_bytes: int, partitions: int = 1
) -> None:
    """Idempotent requests with one batch for each partition, five in flight, acks=all."""
    connection = await RawConnection.open(addresses.kafka)
    try:
        producer_id = await _producer_id(connection)
        for number in range(requests):
            batch = _batch(batch_bytes, number, producer_id)
            rows = [PartitionData(topic, index, batch) for index in range(partitions)]
            if number >= _IN_FLIGHT:
                await _receive_produced(connection)
            connection.send_produce(_PRODUCE_VERSION, _ACKS_ALL, rows)
        for _ in range(min(requests, _IN_FLIGHT)):
            await _receive_produced(connection)
    finally:
        await connection.close()


async def _produce_together(addresses: Addresses, topic: str, requests: int) -> None:
    """The same with 1 KB for one partition, but five are sent in one write, and made before.

    So the broker gets them in one read, and the next five at once: it is what limits, and nothing else runs here, so
    the socket may block.
    """
    connection = await RawConnection.open(addresses.kafka)
    producer_id = await _producer_id(connection)
    await connection.close()
    frames = [_produce_frame(topic, number, producer_id) for number in range(requests)]
    host, _, port = addresses.kafka.rpartition(":")
    with socket.create_connection((host, int(port))) as client, client.makefile("rb") as answers:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin in range(0, requests, _IN_FLIGHT):
            some = frames[begin : begin + _IN_FLIGHT]
            client.sendall(b"".join(some))
            for _ in some:
                (size,) = _LENGTH.unpack(answers.read(_LENGTH.size))
                answer = answers.read(size)
                assert _PRODUCED in answer, answer


def _produce_frame(topic: str, number: int, producer_id: int) -> bytes:
    batch = _batch(1024, number, producer_id)
    body = encode_produce(_PRODUCE_VERSION, _ACKS_ALL, [PartitionData(topic, 0, batch)])
    frame = struct.pack(">hhih", PRODUCE, _PRODUCE_VERSION, number, -1) + NO_TAGS + body
    return _LENGTH.pack(len(frame)) + frame


async def _produce_native(
    addresses: Addresses, topic: str, requests: int, *, batch_bytes: int
) -> None:
    """The same with ready-made batches on the native port."""
    kafka = await RawConnection.open(addresses.kafka)
    producer_id = await _producer_id(kafka)
    await kafka.close()
    native = await NativeConnection.open(addresses.native)
    try:
        for number in range(requests):
            if number >= _IN_FLIGHT:
                await _receive_native(native)
            batch = _batch(batch_bytes, number, producer_id)
            native.send(type="produce", topic=topic, partition=0, batch=batch)
        for _ in range(min(requests, _IN_FLIGHT)):
            await _receive_native(native)
    finally:
        await native.close()


async def _fetch(addresses: Addresses, topic: str, requests: int, *, batch_bytes: int) -> None:
    """One batch per request, from offset 0 on, five in flight."""
    connection = await RawConnection.open(addresses.kafka)
    try:
        for number in range(requests):
            if number >= _IN_FLIGHT:
                await _receive_fetched(connection, batch_bytes)
            connection.send_request(
                _fetch_request(topic, number % _FETCHED, batch_bytes, wait_ms=0)
            )
        for _ in range(min(requests, _IN_FLIGHT)):
            await _receive_fetched(connection, batch_bytes)
    finally:
        await connection.close()


_POLLING: Final = 20
_POLL_MS: Final = 5


async def _poll(addresses: Addresses, topic: str, requests: int) -> None:
    """Requests for data that never comes: each is answered, empty, at the end of its wait."""
    connections = [await RawConnection.open(addresses.kafka) for _ in range(_POLLING)]
    try:
        for _ in range(max(1, requests // _POLLING)):
            for connection in connections:
                connection.send_request(_fetch_request(topic, 0, 1024, wait_ms=_POLL_MS))
            for connection in connections:
                answer = await connection.receive()
                assert len(answer) < 1024, len(answer)
    finally:
        for connection in connections:
            await connection.close()


_FETCHED: Final = 20
"""Batches that `_fill` writes: they stay in the page cache."""


async def _fill(addresses: Addresses, topic: str, batch_bytes: int) -> None:
    """Writes what `_fetch` reads."""
    connection = await RawConnection.open(addresses.kafka)
    await create_topic(connection, topic, 1)
    now_ms = time.time_ns() // 1_000_000  # what is older than retention allows is gone in 5 s
    for number in range(_FETCHED):
        batch = plain_batch([os.urandom(batch_bytes)], timestamp=now_ms + number).encode()
        connection.send_produce(_PRODUCE_VERSION, _ACKS_ALL, [PartitionData(topic, 0, batch)])
        await _receive_produced(connection)
    await connection.close()


def _fetch_request(topic: str, offset: int, batch_bytes: int, *, wait_ms: int) -> Any:
    row = nested("fetch", _FETCH_VERSION, "FetchPartition")(
        partition=0, fetch_offset=offset, partition_max_bytes=batch_bytes
    )
    topics = (nested("fetch", _FETCH_VERSION, "FetchTopic")(topic=topic, partitions=(row,)),)
    return message("fetch", _FETCH_VERSION, "Request")(
        max_wait=datetime.timedelta(milliseconds=wait_ms),
        min_bytes=min(wait_ms, 1),
        topics=topics,
        forgotten_topics_data=(),
    )


async def _receive_fetched(connection: RawConnection, batch_bytes: int) -> None:
    answer = await connection.receive()
    assert batch_bytes < len(answer) < 2 * batch_bytes + 1024, len(answer)


async def _receive_produced(connection: RawConnection) -> None:
    for answer in await connection.receive_produce(_PRODUCE_VERSION):
        assert answer.error == 0, answer


async def _receive_native(native: NativeConnection) -> None:
    answer = await native.receive()
    assert answer["error"]["code"] == 0, answer


async def _producer_id(connection: RawConnection) -> int:
    timeout = datetime.timedelta(seconds=60)
    response = await connection.call(
        "init_producer_id", 2, transactional_id=None, transaction_timeout=timeout
    )
    return int(response.producer_id)


def _batch(batch_bytes: int, number: int, producer_id: int) -> bytes:
    """The producer's batch number `number`, of records of 16 KB at most."""
    records = max(1, batch_bytes // _RECORD_BYTES_MAX)
    return plain_batch(
        [bytes(batch_bytes // records)] * records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=number * records,
        timestamp=time.time_ns() // 1_000_000,
    ).encode()


def _producing(batch_bytes: int, partitions: int = 1) -> Callable[..., Awaitable[None]]:
    async def run(addresses: Addresses, topic: str, requests: int) -> None:
        await _produce(addresses, topic, requests, batch_bytes=batch_bytes, partitions=partitions)

    return run


def _producing_native(batch_bytes: int) -> Callable[..., Awaitable[None]]:
    async def run(addresses: Addresses, topic: str, requests: int) -> None:
        await _produce_native(addresses, topic, requests, batch_bytes=batch_bytes)

    return run


def _fetching(batch_bytes: int) -> Callable[..., Awaitable[None]]:
    async def run(addresses: Addresses, topic: str, requests: int) -> None:
        await _fetch(addresses, topic, requests, batch_bytes=batch_bytes)

    return run


_COMMITTING: Final = 32
_GROUP: Final = "committers"


async def _commit_offsets(addresses: Addresses, topic: str, requests: int) -> None:
    """Offset commits of one group and one partition each, over connections that each wait for the answer."""
    connections = [await RawConnection.open(addresses.kafka) for _ in range(_COMMITTING)]
    try:
        bodies = [_offset_commit(topic, index) for index in range(_COMMITTING)]
        for sent in range(0, requests, _COMMITTING):
            asking = connections[: requests - sent]
            for connection, body in zip(asking, bodies, strict=False):
                connection.send(*_OFFSET_COMMIT, body, flexible=True)
            for connection in asking:
                answer = await connection.receive()
                assert answer.endswith(_COMMITTED), answer
    finally:
        for connection in connections:
            await connection.close()


_OFFSET_COMMIT: Final = (8, 8)
_COMMITTED: Final = bytes(2 + 3)
"""No error, and no tagged fields of partition, topic and response."""


def _offset_commit(topic: str, partition: int) -> bytes:
    """By no member: without a generation."""
    group, name = _compact(_GROUP), _compact(topic)
    row = struct.pack(">iqi", partition, 42, -1) + _compact("") + b"\0"
    return (
        group + struct.pack(">i", -1) + _compact("") + b"\0" + b"\2" + name + b"\2" + row + b"\0\0"
    )


def _compact(text: str) -> bytes:
    return bytes((len(text) + 1,)) + text.encode()


async def _coordinated(addresses: Addresses, topic: str) -> None:
    """Returns when the group's coordinator takes commits."""
    connection = await RawConnection.open(addresses.kafka)
    code, answer = -1, b""
    while code:
        found = await connection.call("find_coordinator", 4, key_type=0, coordinator_keys=(_GROUP,))
        code = found.coordinators[0].error_code
    while not answer.endswith(_COMMITTED):
        connection.send(*_OFFSET_COMMIT, _offset_commit(topic, 0), flexible=True)
        answer = await connection.receive()
    await connection.close()


FETCHES: Final = {"fetch-1k": 1024, "fetch-1m": 1_000_000}
"""Bytes per batch of the kinds that read what `_fill` has written."""
OFFSET_COMMIT: Final = "offset-commit"
KINDS: Final = {
    "produce-100": Kind(_producing(100), 1, 4000),
    "produce-1k": Kind(_producing(1024), 1, 4000),
    "produce-16k": Kind(_producing(16_384), 1, 2000),
    "produce-1m": Kind(_producing(1_000_000), 1, 200),
    "produce-1k-of-4": Kind(_producing(1024, 4), 4, 2000),
    "produce-1k-together": Kind(_produce_together, 1, 4000),
    "native-100": Kind(_producing_native(100), 1, 4000),
    "native-1k": Kind(_producing_native(1024), 1, 4000),
    "native-16k": Kind(_producing_native(16_384), 1, 2000),
    "fetch-1k": Kind(_fetching(FETCHES["fetch-1k"]), 1, 4000),
    "fetch-1m": Kind(_fetching(FETCHES["fetch-1m"]), 1, 200),
    "fetch-idle": Kind(_poll, 1, 2000),
    OFFSET_COMMIT: Kind(_commit_offsets, _COMMITTING, 4000),
}
PRODUCES: Final = ("produce-100", "produce-1k", "produce-16k", "produce-1k-of-4")
"""Kinds that are compared under every way of storing: by one broker, with followers, with syncs."""


def request_cost_us(
    pid: int,
    addresses: Addresses,
    name: str,
    topic: str,
    *,
    requests: int | None = None,
    main_thread_only: bool = False,
    creates_topic: bool = True,
) -> float:
    """Microseconds of the broker's processor time per request of a kind in `KINDS`.

    A tenth of the requests is sent before it counts.
    """
    kind = KINDS[name]
    count = requests or kind.requests

    async def run() -> float:
        if creates_topic:
            await prepare(addresses, name, topic)
        await kind.run(addresses, topic, count // 10)
        begun = processor_s(pid, main_thread_only=main_thread_only)
        await kind.run(addresses, topic, count)
        return processor_s(pid, main_thread_only=main_thread_only) - begun

    return asyncio.run(run()) / count * 1e6


async def prepare(addresses: Addresses, name: str, topic: str) -> None:
    """Creates a topic for requests of this kind, with what they read."""
    if name in FETCHES:
        await _fill(addresses, topic, FETCHES[name])
        return
    connection = await RawConnection.open(addresses.kafka)
    await create_topic(connection, topic, KINDS[name].partitions)
    await connection.close()
    if name == OFFSET_COMMIT:
        await _coordinated(addresses, topic)
