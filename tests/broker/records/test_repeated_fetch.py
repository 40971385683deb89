"""Rows that a connection keeps answer as rows that are read anew, whatever happens to their partitions."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.handlers import fetch as fetch_handler
from echoless.broker.network.request import Peer
from echoless.broker.partitions.partition import Partition
from echoless.broker.records import repeated_fetch
from echoless.broker.records.fetch import fetch
from echoless.broker.records.repeated_fetch import RepeatedRows, fetch_repeated
from echoless.protocol.control_records import MarkerType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import encode_fetch_response
from echoless.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.broker.handlers.test_fetch_sessions import LONG_MS, delete_records, delete_topic
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData
from tests.support.session_client import INT32_MAX, found, send
from tests.support.transactions_by_hand import HandMadeTransactions

ROWS = 6


def joined(body: Any) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


async def produce(kafka: RawConnection, topic: str, index: int, size: int = 3) -> None:
    batch = plain_batch([b"x" * size], producer_id=-1, producer_epoch=-1, base_sequence=-1)
    (answer,) = await kafka.produce(9, -1, [PartitionData(topic, index, batch.encode())])
    assert answer.error == 0


class History:
    """Random requests of one connection, and what happens between them."""

    def __init__(self, running: Running, kafka: RawConnection, rng: random.Random) -> None:
        self.running = running
        self.kafka = kafka
        self.rng = rng
        self.peer = Peer(1, "127.0.0.1:1")
        self.offsets = {("t", index): 0 for index in range(ROWS)} | {("u", 0): 0, ("u", 1): 0}
        self.has_u = False
        self.in_transaction: dict[int, HandMadeTransactions] = {}

    def request(self) -> tuple[FetchRequest, int]:
        rng = self.rng
        version = rng.choice([4, 5, 11, 11, 11, 12, 13, 17])
        rows: dict[Any, list[FetchPartition]] = {}
        keys = [key for key in self.offsets if rng.random() < 0.95]
        first = rng.randrange(len(keys) + 1)
        for topic, index in keys[first:] + keys[:first]:
            name: Any = topic
            if version >= 13:
                known = self.running.broker.registry.topics.get(topic)
                if known is None:
                    continue
                name = known.topic_id
            epoch = rng.choice([-1] * 15 + [0, 5])
            row = FetchPartition(index, self.offsets[topic, index], INT32_MAX, epoch, -1)
            rows.setdefault(name, []).append(row)
        if rng.random() < 0.05 and rows:
            wanted = next(iter(rows.values()))
            wanted.append(wanted[0]._replace(offset=rng.randrange(3)))
        topics = [FetchTopic(name, wanted) for name, wanted in rows.items()]
        bytes_max = rng.choice([1, 200, 30_000, INT32_MAX])
        return FetchRequest(0, 1, bytes_max, rng.choice([0, 0, 0, 1]), -1, topics), version

    def compare(self) -> bool:
        """Whether the kept rows could be used."""
        wanted, version = self.request()
        parts = self.running.broker.services.fetch
        kept = fetch_repeated(parts, wanted, self.peer, version)
        if kept is None:
            return False
        assert isinstance(kept, bytes | list)
        anew = fetch(parts, wanted, Peer(2, "127.0.0.1:1"), ROWS)
        assert isinstance(anew, list)
        assert joined(kept) == joined(encode_fetch_response(version, ErrorCode.NONE, anew))
        return True

    async def happen(self) -> None:
        rng = self.rng
        topic, index = rng.choice(list(self.offsets))
        what = rng.choice(
            [
                *("produce", "produce", "big", "read", "read", "delete records", "topic", ""),
                *("transaction", "transaction"),
            ]
        )
        exists = topic == "t" or self.has_u
        if what in {"produce", "big"} and exists:
            await produce(self.kafka, topic, index, 20_000 if what == "big" else 3)
        elif what == "read":
            self.offsets[topic, index] = rng.randrange(12)
        elif what == "delete records" and topic == "t":
            await delete_records(self.kafka, index, rng.randrange(3))
        elif what == "transaction" and topic == "t":
            if index not in self.in_transaction:
                partition = self.running.broker.partitions["t", index]
                self.in_transaction[index] = HandMadeTransactions(partition)
                self.in_transaction[index].write(7, b"x")
            else:
                self.in_transaction.pop(index).end(7, rng.choice([*MarkerType]))
        elif what == "topic":
            if self.has_u:
                await delete_topic(self.kafka, "u")
            else:
                await create_topic(self.kafka, "u", 2)
            self.has_u = not self.has_u


@pytest.mark.parametrize("seed", range(4))
async def test_kept_rows_answer_as_rows_read_anew(
    running: Running, kafka: RawConnection, seed: int
) -> None:
    """The same bytes, in every version, after any events, in any order of the rows."""
    await create_topic(kafka, "t", ROWS)
    history = History(running, kafka, random.Random(seed))
    used = 0
    for _ in range(150):
        used += history.compare()
        await history.happen()
    assert used > 100
    for index in (0, 3):
        running.broker.partitions["t", index].resign()
        history.compare()
        history.compare()
    parts, rows = running.broker.services.fetch, history.peer.fetch_rows
    assert parts.repeated_rows == len(rows) == len(rows.by_key)
    assert sum(map(len, rows._by_wanted.values())) == len(rows)
    history.peer.connection_lost()
    assert parts.repeated_rows == 0
    partitions: dict[Any, Partition] = running.broker.partitions
    assert not any(partition.waiters.data for partition in partitions.values())


async def test_a_wait_ends_with_records_of_any_row(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next request is answered with all rows again."""
    monkeypatch.setattr(fetch_handler, "ROWS_MIN", 2)
    await create_topic(kafka, "t", ROWS)
    writer = await RawConnection.open(running.kafka_address)
    offsets = [0] * ROWS
    metrics = running.broker.metrics
    for turn in range(1, 9):
        index = turn * 5 % ROWS
        order = [(one + turn) % ROWS for one in range(ROWS)]
        before = metrics.fetch_rows_read_total
        rows = {"t": [(one, offsets[one]) for one in order]}
        send(kafka, (0, -1), rows, version=11, max_wait_ms=LONG_MS)
        await produce(writer, "t", index)
        response = await kafka.receive_response("fetch", 11)
        assert [row.partition_index for row in response.responses[0].partitions] == order
        answered = {key[1]: row[1] for key, row in found(response).items()}
        assert answered == {one: int(one == index) for one in range(ROWS)}
        assert metrics.fetch_rows_read_total - before <= (ROWS if turn == 1 else 1) + 1
        offsets[index] += 1
    await writer.close()


async def test_the_work_of_a_request_does_not_depend_on_idle_rows(
    running: Running, kafka: RawConnection
) -> None:
    """Rows looked at, for one record at a time: the same beside 30 and 3,000 idle partitions."""
    await create_topic(kafka, "t", 1)
    await create_topic(kafka, "idle", 3000)
    metrics, looks, offset = running.broker.metrics, [], 0
    for idle in (30, 3000):
        rows = {"idle": [(index, 0) for index in range(idle)]}
        send(kafka, (0, -1), {"t": [(0, offset)], **rows}, version=11)
        await kafka.receive_response("fetch", 11)
        before = metrics.fetch_rows_read_total
        for _ in range(5):
            await produce(kafka, "t", 0)
            for expected in (1, 0):
                send(kafka, (0, -1), {"t": [(0, offset)], **rows}, version=11)
                answered = found(await kafka.receive_response("fetch", 11))
                assert len(answered) == idle + 1
                assert answered["t", 0][1] == expected
                offset = answered["t", 0][2]
        looks.append(metrics.fetch_rows_read_total - before)
    assert looks[0] == looks[1] <= 2 * 5


async def test_requests_of_one_connection_at_the_same_time(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is read without the rows that the first one waits with."""
    monkeypatch.setattr(fetch_handler, "ROWS_MIN", 2)
    await create_topic(kafka, "t", ROWS)
    for _ in range(2):
        send(kafka, (0, -1), {"t": [(0, 0), (1, 0)]}, version=11, max_wait_ms=100)
        send(kafka, (0, -1), {"t": [(1, 0), (2, 0), (3, 9)]}, version=11, max_wait_ms=100)
        assert len(found(await kafka.receive_response("fetch", 11))) == 2
        codes = [row[0] for row in found(await kafka.receive_response("fetch", 11)).values()]
        assert codes == [0, 0, 1]


async def test_the_rows_of_all_connections_are_bounded(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound a request is answered without them."""
    monkeypatch.setattr(repeated_fetch, "ROWS_MAX", 5)
    await create_topic(kafka, "t", ROWS)
    parts = running.broker.services.fetch
    few, many = (
        FetchRequest(0, 1, 9, 0, -1, [FetchTopic("t", [FetchPartition(i, 0, 9) for i in range(n)])])
        for n in (3, 4)
    )
    first, second = Peer(1, "127.0.0.1:1"), Peer(2, "127.0.0.1:1")
    assert fetch_repeated(parts, few, first, 11) is not None
    assert fetch_repeated(parts, few, second, 11) is None
    assert parts.repeated_rows == 3
    first.connection_lost()
    assert fetch_repeated(parts, many, first, 11) is None
    assert fetch_repeated(parts, many, second, 11) is not None
    assert parts.repeated_rows == 4
    second.connection_lost()


async def test_a_connection_takes_its_rows_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits with partitions for a client that is gone, in the midst of a wait either."""
    monkeypatch.setattr(fetch_handler, "ROWS_MIN", 2)
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", ROWS)
        rows = {"t": [(index, 0) for index in range(ROWS)]}
        send(kafka, (0, -1), rows, version=11, max_wait_ms=LONG_MS)
        parts = running.broker.services.fetch
        async with asyncio.timeout(30):
            while parts.repeated_rows != ROWS:  # noqa: ASYNC110 - the broker has read it
                await asyncio.sleep(0)
            await kafka.close()
            while parts.repeated_rows:  # noqa: ASYNC110 - the broker has noticed
                await asyncio.sleep(0)
        partitions = running.broker.partitions.values()
        assert not any(partition.waiters.data for partition in partitions)


def test_a_connection_that_has_ended_keeps_nothing() -> None:
    """Its last request may be read after its end."""
    peer = Peer(1, "127.0.0.1:1")
    peer.connection_lost()
    assert not peer.keep(RepeatedRows(object()))  # type: ignore[arg-type]
    assert peer.fetch_rows is None
