"""Fetch on the Kafka port, over a real socket: limits, long polls, sessions, and where logs part."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.waiters import EventWaiters
from echoless.broker.records.fetch import BYTES_MAX
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import plain_batch, split_log
from tests.support.raw_client import RawConnection, create_topic, nested, topic_id
from tests.support.raw_produce import PartitionData

VERSION = 12
"""The last one that names topics; it has `last_fetched_epoch` and the diverging epoch."""
INT32_MAX = 2**31 - 1


def wanted_partition(
    offset: int,
    last_fetched_epoch: int = -1,
    current_leader_epoch: int = -1,
    *,
    index: int = 0,
    bytes_max: int = INT32_MAX,
) -> Any:
    return nested("fetch", VERSION, "FetchPartition")(
        partition=index,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        current_leader_epoch=current_leader_epoch,
        partition_max_bytes=bytes_max,
    )


async def fetch(
    kafka: RawConnection,
    topics: Mapping[str, Sequence[Any]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    **fields: Any,
) -> Any:
    """The response to one request."""
    topic = nested("fetch", VERSION, "FetchTopic")
    return await kafka.call(
        "fetch",
        VERSION,
        max_wait=datetime.timedelta(milliseconds=max_wait_ms),
        min_bytes=min_bytes,
        topics=tuple(topic(topic=name, partitions=tuple(rows)) for name, rows in topics.items()),
        forgotten_topics_data=(),
        **fields,
    )


async def produce(kafka: RawConnection, index: int, *values: bytes) -> int:
    """Appends each value to t-`index` as a separate batch; returns the bytes of one."""
    size = 0
    for value in values:
        batch = plain_batch([value], producer_id=-1, producer_epoch=-1, base_sequence=-1).encode()
        (answer,) = await kafka.produce(9, -1, [PartitionData("t", index, batch)])
        assert answer.error == 0
        size = len(batch)
    return size


def counts(response: Any) -> list[int]:
    """How many whole batches came of each partition of the first topic."""
    rows = response.responses[0].partitions
    assert all(row.error_code == 0 for row in rows)
    return [len(split_log(row.records or b"")) for row in rows]


@pytest.fixture
async def size(kafka: RawConnection) -> int:
    """A topic `t` with three batches of this size in each of its three partitions."""
    await create_topic(kafka, "t", 3)
    for index in (0, 1):
        await produce(kafka, index, b"one", b"two", b"six")
    return await produce(kafka, 2, b"one", b"two", b"six")


# --- limits ---


@pytest.mark.parametrize(
    ("batches_max", "expected"),
    [(9, [3, 3, 3]), (5, [3, 2, 0]), (3.5, [3, 0, 0]), (2, [2, 0, 0]), (0.5, [1, 0, 0])],
)
async def test_the_answers_bytes_go_to_the_partitions_in_turn(
    kafka: RawConnection, size: int, batches_max: float, expected: list[int]
) -> None:
    """Whole batches, in the order of the request, until `max_bytes` are used; one at the least."""
    rows = [wanted_partition(0, index=index) for index in range(3)]
    response = await fetch(kafka, {"t": rows}, max_bytes=int(batches_max * size))
    assert counts(response) == expected


@pytest.mark.parametrize("bytes_max", [0, -1, -(2**31)])
async def test_no_room_at_all_still_gets_the_first_batch(
    kafka: RawConnection, size: int, bytes_max: int
) -> None:
    """A consumer that asks for less than one batch must get on (KIP-74)."""
    assert size > 0
    whole = [wanted_partition(0, index=index) for index in range(3)]
    assert counts(await fetch(kafka, {"t": whole}, max_bytes=bytes_max)) == [1, 0, 0]
    rows = [wanted_partition(0, index=index, bytes_max=bytes_max) for index in range(3)]
    assert counts(await fetch(kafka, {"t": rows})) == [1, 0, 0]


async def test_only_the_first_batch_of_the_answer_may_exceed_its_partitions_limit(
    kafka: RawConnection, size: int
) -> None:
    """A partition that is read to its end leaves the exception to the next one."""
    rows = [
        wanted_partition(3, index=0),
        wanted_partition(0, index=1, bytes_max=size - 1),
        wanted_partition(0, index=2, bytes_max=size - 1),
    ]
    assert counts(await fetch(kafka, {"t": rows})) == [0, 1, 0]
    rows[2] = wanted_partition(0, index=2, bytes_max=2 * size)
    assert counts(await fetch(kafka, {"t": rows})) == [0, 1, 2]


@pytest.mark.usefixtures("size")
async def test_an_offset_before_the_log_is_out_of_range_in_a_full_answer_too(
    running: Running, kafka: RawConnection
) -> None:
    """The row gets no records, whatever its offset; its error does not depend on those before it."""
    running.broker.partitions["t", 1].advance_log_start(2)
    rows = [wanted_partition(0, index=0), wanted_partition(1, index=1)]
    response = await fetch(kafka, {"t": rows}, max_bytes=1)
    codes = [int(row.error_code) for row in response.responses[0].partitions]
    assert codes == [0, ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_an_answer_holds_no_more_than_the_broker_allows(
    kafka: RawConnection, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client asks for."""
    assert BYTES_MAX < INT32_MAX
    monkeypatch.setattr("echoless.broker.records.fetch.BYTES_MAX", 4 * size)
    rows = [wanted_partition(0, index=index) for index in range(3)]
    assert counts(await fetch(kafka, {"t": rows}, max_bytes=INT32_MAX)) == [3, 1, 0]


async def test_a_client_may_want_more_than_an_answer_holds(
    kafka: RawConnection, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for what cannot come, here for ten minutes."""
    monkeypatch.setattr("echoless.broker.records.fetch.MIN_BYTES_MAX", 2 * size)
    rows = {"t": [wanted_partition(0)]}
    assert counts(await fetch(kafka, rows, min_bytes=INT32_MAX, max_wait_ms=600_000)) == [3]


@pytest.mark.usefixtures("size")
async def test_a_wide_fetch_misses_nothing_between_its_turns(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that reaches a partition after it was read, but before the last one is, ends the wait."""
    for where in ("echoless.broker.records.fetch", "echoless.broker.network.turns"):
        monkeypatch.setattr(f"{where}.ROWS_PER_TURN", 1)
    first = running.broker.partitions["t", 0]
    looks = asyncio.Queue[None]()

    class Looks(EventWaiters):
        __slots__ = ()

        def add(self, future: asyncio.Future[None]) -> None:
            super().add(future)
            looks.put_nowait(None)
            if looks.qsize() == 1:
                asyncio.get_running_loop().call_soon(self.wake)

    monkeypatch.setattr(first.waiters, "data", Looks())
    rows = {"t": [wanted_partition(3, index=index) for index in range(3)]}
    asking = asyncio.ensure_future(fetch(kafka, rows, max_wait_ms=600_000))
    async with asyncio.timeout(60):
        while looks.qsize() < 2:  # noqa: ASYNC110 - the broker's looks, counted
            await asyncio.sleep(0)
    writer = await RawConnection.open(running.kafka_address)
    await produce(writer, 1, b"end")
    assert counts(await asking) == [0, 1, 0]
    await writer.close()


async def test_slow_clients_leave_one_batch_for_each_answer(
    running: Running, kafka: RawConnection, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that clients have not taken yet count against `UNSENT_BYTES_MAX` of all."""
    rows = {"t": [wanted_partition(0, index=index) for index in range(3)]}
    monkeypatch.setattr(running.broker.unsent_answers, "total", UNSENT_BYTES_MAX - 4 * size)
    assert counts(await fetch(kafka, rows)) == [3, 1, 0]
    monkeypatch.setattr(running.broker.unsent_answers, "total", UNSENT_BYTES_MAX)
    assert counts(await fetch(kafka, rows)) == [1, 0, 0]


@pytest.mark.usefixtures("size")
async def test_read_committed_ends_at_the_last_stable_offset(
    kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records between it and the high watermark are for isolation level 0 alone; so is their wait."""
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda _partition: 1))
    for isolation_level, expected in ((0, [3]), (1, [1]), (7, [3])):
        rows = {"t": [wanted_partition(0)]}
        response = await fetch(kafka, rows, isolation_level=isolation_level)
        assert counts(response) == expected
        row = response.responses[0].partitions[0]
        assert (row.high_watermark, row.last_stable_offset) == (3, 1)
    rows = {"t": [wanted_partition(1)]}
    assert counts(await fetch(kafka, rows, isolation_level=1, max_wait_ms=50)) == [0]
    assert counts(await fetch(kafka, rows, isolation_level=0)) == [2]


# --- long polls ---


async def test_a_fetch_waits_for_as_many_bytes_as_it_wants(
    running: Running, kafka: RawConnection, size: int
) -> None:
    """It is answered by the append that makes them enough, and not by the one before."""
    producer = await RawConnection.open(running.kafka_address)
    rows = {"t": [wanted_partition(3)]}
    answer = asyncio.create_task(fetch(kafka, rows, max_wait_ms=600_000, min_bytes=2 * size))
    await produce(producer, 0, b"one")
    await produce(producer, 1, b"elsewhere")
    assert not answer.done()
    await produce(producer, 0, b"two")
    async with asyncio.timeout(60):
        assert counts(await answer) == [2]
    await producer.close()


async def test_a_fetch_that_waits_for_much_does_not_read_with_every_batch(
    running: Running, kafka: RawConnection, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks again when enough was appended, although each batch wakes it."""
    log = running.broker.partitions["t", 0].log
    read, reads = log.read, []

    def counting_read(offset: int, bytes_max: int, end_offset: int) -> bytes:
        reads.append(offset)
        return read(offset, bytes_max, end_offset)

    monkeypatch.setattr(log, "read", counting_read)
    rows = {"t": [wanted_partition(0)]}
    asking = asyncio.ensure_future(fetch(kafka, rows, min_bytes=13 * size, max_wait_ms=600_000))
    async with asyncio.timeout(60):
        while not reads:  # noqa: ASYNC110 - the broker's look before its wait
            await asyncio.sleep(0)
    writer = await RawConnection.open(running.kafka_address)
    await produce(writer, 0, *[b"one"] * 10)
    assert counts(await asking) == [13]
    assert len(reads) == 2
    await writer.close()


@pytest.mark.usefixtures("size")
async def test_a_wait_leaves_nothing_with_partitions_that_are_idle(
    running: Running, kafka: RawConnection
) -> None:
    """Each batch of one partition wakes it; it waits with the others once, not once per batch."""
    idle = running.broker.partitions["t", 1].waiters.data
    rows = {"t": [wanted_partition(0), wanted_partition(3, index=1)]}
    asking = asyncio.ensure_future(fetch(kafka, rows, min_bytes=10_000, max_wait_ms=600_000))
    async with asyncio.timeout(60):
        while not idle:  # noqa: ASYNC110 - the broker's look before its wait
            await asyncio.sleep(0)
    writer = await RawConnection.open(running.kafka_address)
    for _ in range(10):
        await produce(writer, 0, b"one")
        assert len(idle) == 1
    await produce(writer, 0, bytes(10_000))
    await asking
    assert not idle
    await writer.close()


@pytest.mark.usefixtures("size")
async def test_an_error_is_told_at_once(kafka: RawConnection) -> None:
    """One partition's error, or its diverging epoch, does not wait for the others' data."""
    for bad in (wanted_partition(0, index=9), wanted_partition(99), wanted_partition(9, 0)):
        async with asyncio.timeout(60):
            rows = {"t": [wanted_partition(3, index=1), bad]}
            response = await fetch(kafka, rows, max_wait_ms=600_000)
        assert response.error_code == 0


@pytest.mark.usefixtures("size")
async def test_a_wait_ends_without_data(kafka: RawConnection) -> None:
    """After `max_wait_ms` the answer is empty."""
    assert counts(await fetch(kafka, {"t": [wanted_partition(3)]}, max_wait_ms=50)) == [0]


# --- sessions (more: test_fetch_sessions.py) and names ---


@pytest.mark.parametrize("session_id", [0, 77])
@pytest.mark.parametrize("epoch", [0, -1, 1, 2, INT32_MAX, -2])
async def test_sessions_are_declined_where_there_is_no_place_for_them(
    tmp_path: Path, session_id: int, epoch: int
) -> None:
    """A request that begins or ends a session is a whole one; one that continues it is refused."""
    async with in_process(tmp_path, max_incremental_fetch_session_cache_slots=0) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        await produce(kafka, 0, b"one")
        rows = {"t": [wanted_partition(0)]}
        response = await fetch(kafka, rows, session_id=session_id, session_epoch=epoch)
        assert response.session_id == 0
        if epoch in {0, -1}:
            assert counts(response) == [1]
        else:
            code = response.error_code.name
            assert (code, response.responses) == ("fetch_session_id_not_found", ())
        await kafka.close()


@pytest.mark.usefixtures("size")
async def test_topics_are_found_by_their_ids(kafka: RawConnection) -> None:
    """It works from version 13 on; an unknown id is that partition's error."""
    ids = [await topic_id(kafka, "t"), uuid.UUID(int=9)]
    topic = nested("fetch", 13, "FetchTopic")
    row = nested("fetch", 13, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=INT32_MAX
    )
    response = await kafka.call(
        "fetch",
        13,
        max_wait=datetime.timedelta(0),
        min_bytes=0,
        topics=tuple(topic(topic_id=one, partitions=(row,)) for one in ids),
        forgotten_topics_data=(),
    )
    codes = [topic.partitions[0].error_code.name for topic in response.responses]
    assert codes == ["none", "unknown_topic_id"]


# --- where logs part ---


async def test_the_epoch_of_the_last_batch_shows_where_logs_part(tmp_path: Path) -> None:
    """Epoch 0 ended at 3 and epoch 1 continues to 5: a log with more of either has to be truncated."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        await produce(kafka, 0, b"0", b"1", b"2")
        await kafka.close()
    async with in_process(tmp_path) as running:  # leads in the next epoch
        kafka = await RawConnection.open(running.kafka_address)
        await produce(kafka, 0, b"3", b"4")

        async def found(offset: int, last_epoch: int) -> tuple[str, tuple[int, int] | int]:
            response = await fetch(kafka, {"t": [wanted_partition(offset, last_epoch)]})
            row = response.responses[0].partitions[0]
            end = row.diverging_epoch
            records = len(split_log(row.records or b""))
            assert end.epoch < 0 or not records
            return row.error_code.name, (end.epoch, end.end_offset) if end.epoch >= 0 else records

        assert await found(3, 0) == ("none", 2)
        assert await found(2, 0) == ("none", 3)
        assert await found(4, 0) == ("none", (0, 3))
        assert await found(9, 0) == ("none", (0, 3))
        assert await found(5, 1) == ("none", 0)
        assert await found(6, 1) == ("none", (1, 5))
        for offset in (0, 3, 5, 6):
            assert await found(offset, 2) == ("offset_out_of_range", 0)
            assert await found(offset, INT32_MAX) == ("offset_out_of_range", 0)
        await kafka.close()


@pytest.mark.parametrize("version", range(13, 18))
async def test_fetch_of_a_topic_id_of_zeros_is_an_unknown_topic_id(
    kafka: RawConnection, version: int
) -> None:
    """100 for each partition, as Kafka answers; it once ended the broker."""
    partition = nested("fetch", version, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=1000
    )
    topic = nested("fetch", version, "FetchTopic")(topic_id=None, partitions=(partition,) * 2)
    response = await kafka.call(
        "fetch",
        version,
        max_wait=datetime.timedelta(seconds=5),
        min_bytes=1,
        topics=(topic,),
        forgotten_topics_data=(),
    )
    (row,) = response.responses
    assert row.topic_id is None
    assert [one.error_code for one in row.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("version", range(4, 18))
async def test_every_version_reads_the_same(kafka: RawConnection, version: int) -> None:
    """All batches from the offset on, at once."""
    row = nested("fetch", version, "FetchPartition")(
        partition=1, fetch_offset=1, partition_max_bytes=INT32_MAX
    )
    key = {"topic_id": await topic_id(kafka, "t")} if version >= 13 else {"topic": "t"}
    forgotten = {"forgotten_topics_data": ()} if version >= 7 else {}
    response = await kafka.call(
        "fetch",
        version,
        max_wait=datetime.timedelta(seconds=30),
        min_bytes=1,
        isolation_level=1,
        topics=(nested("fetch", version, "FetchTopic")(**key, partitions=(row,)),),
        **forgotten,
    )
    assert counts(response) == [2]
    assert response.responses[0].partitions[0].high_watermark == 3
