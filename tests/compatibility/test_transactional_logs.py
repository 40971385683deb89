"""A log with transactions that a real Kafka has written, served by Echoless beside that Kafka.

Four producers commit, abort and leave open what they write; then the segments are copied into the data directory of a
broker, which makes everything else again from them. Readers of both isolation levels see the same in both.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.protocol.data_batches import data_batches
from echoless.protocol.record_batch import walk
from echoless.protocol.records import read_records
from echoless.storage import paths
from echoless.storage.transaction_index import TransactionIndex
from tests.broker.handlers.test_fetch import INT32_MAX, fetch, wanted_partition
from tests.cli.command import Command
from tests.compatibility.kafka_tools import run_tool
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.raw_client import (
    RawConnection,
    describe_producers_request,
    nested,
    producer_rows,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC: Final = "copied"
PRODUCERS: Final = 4
STEPS: Final = 240
LEVELS: Final = ("read_uncommitted", "read_committed")
_PATIENCE_S: Final = 120
Record = tuple[int, bytes]


class Pair(NamedTuple):
    """The two brokers with the same log."""

    kafka: ApacheKafka
    echoless: Echoless
    directory: Path
    """The partition's directory as Kafka has left it."""


def create(address: str) -> None:
    """The topic, of small segments."""
    admin = AdminClient({"bootstrap.servers": address})
    config = {"segment.bytes": "3000", "index.interval.bytes": "200"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result()


def write(address: str) -> list[Producer]:
    """Transactions side by side; returns the producers, some with an open one."""
    server = {"bootstrap.servers": address, "log_level": 0}
    create(address)
    producers = [
        Producer(
            {
                **server,
                "transactional.id": f"copied-{n}",
                "transaction.timeout.ms": 600_000,
                "linger.ms": 0,
            }
        )
        for n in range(PRODUCERS)
    ]
    for producer in producers:
        producer.init_transactions(_PATIENCE_S)
    rng, begun = random.Random(5), set[int]()
    for step in range(STEPS):
        place = rng.randrange(PRODUCERS)
        producer = producers[place]
        if place in begun and rng.random() < 0.35:
            rng.choice((producer.abort_transaction, producer.commit_transaction))(_PATIENCE_S)
            begun.remove(place)
            continue
        if place not in begun:
            producer.begin_transaction()
            begun.add(place)
        for part in range(rng.choice([1, 1, 3])):
            producer.produce(TOPIC, b"%d-%d-%d" % (place, step, part))
        producer.flush(_PATIENCE_S)
    if 0 not in begun:
        producers[0].begin_transaction()
    producers[0].produce(TOPIC, b"left open")
    producers[0].flush(_PATIENCE_S)
    return producers


@pytest.fixture(scope="module")
def pair(apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    producers = write(apache_kafka.address)
    echoless = Echoless(tmp_path_factory.mktemp("copy"))
    echoless.start()
    create(echoless.kafka_address)
    echoless.terminate()
    here, there = echoless.data_dir / f"{TOPIC}-0", apache_kafka.data_dir / f"{TOPIC}-0"
    for file in here.iterdir():
        if file.name != paths.PARTITION_METADATA:
            file.unlink()
    for file in there.glob("*.log"):
        shutil.copy(file, here)
    (echoless.data_dir / paths.CLEAN_SHUTDOWN).unlink(missing_ok=True)
    for name in (paths.RECOVERY_POINT_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT):
        (echoless.data_dir / name).write_text("0\n0\n")
    echoless.start()
    yield Pair(apache_kafka, echoless, there)
    echoless.kill()
    for producer in producers:
        producer.purge()


@pytest.fixture
async def both(pair: Pair) -> AsyncIterator[tuple[RawConnection, RawConnection]]:
    """Connections to Kafka and to Echoless."""
    addresses = (pair.kafka.address, pair.echoless.kafka_address)
    kafka, echoless = [await RawConnection.open(address) for address in addresses]
    yield kafka, echoless
    for one in (kafka, echoless):
        await one.close()


def read(address: str, level: str) -> list[Record]:
    """Everything that librdkafka reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": level,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 1000,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[Record] = []
    while (one := consumer.poll(_PATIENCE_S)) is not None and one.error() is None:
        found.append((one.offset(), one.value() or b""))
    consumer.close()
    return found


async def ends(connection: RawConnection) -> list[int]:
    """The ends for both levels."""
    row = nested("list_offsets", 5, "ListOffsetsPartition")(partition_index=0, timestamp=-1)
    topic = nested("list_offsets", 5, "ListOffsetsTopic")(name=TOPIC, partitions=(row,))
    answers = [
        await connection.call(
            "list_offsets", 5, replica_id=-1, isolation_level=level, topics=(topic,)
        )
        for level in range(len(LEVELS))
    ]
    return [int(answer.topics[0].partitions[0].offset) for answer in answers]


def aborted_in(directory: Path) -> list[tuple[int, int, int]]:
    """Producer, first offset and marker of each aborted transaction, as Kafka has written them down."""
    found = []
    for path in sorted(directory.glob("*.txnindex")):
        index = TransactionIndex.decode(int(path.stem), path.read_bytes())
        assert index is not None
        found += [one[:3] for one in index]
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_librdkafka_reads_the_same(pair: Pair, level: str) -> None:
    """In small parts, up to the end of what it may see."""
    expected = read(pair.kafka.address, level)
    assert read(pair.echoless.kafka_address, level) == expected
    assert len(expected) > 30


@pytest.mark.parametrize("level", LEVELS)
def test_java_reads_the_same(pair: Pair, level: str) -> None:
    """Kafka's console consumer, beside what librdkafka reads from Kafka."""
    expected = read(pair.kafka.address, level)
    printed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", pair.echoless.kafka_address, "--topic", TOPIC),
        *("--partition", "0", "--offset", "earliest", "--isolation-level", level),
        *("--property", "print.offset=true", "--timeout-ms", "20000"),
        *("--max-messages", str(len(expected))),
    )
    assert printed.splitlines() == [f"Offset:{at}\t{value.decode()}" for at, value in expected]


@pytest.mark.parametrize("level", LEVELS)
def test_consume_prints_the_same(
    pair: Pair, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`echoless consume`, from both brokers."""
    command = Command(capsys)
    expected = read(pair.kafka.address, level)
    for address in (pair.kafka.address, pair.echoless.kafka_address):
        options = ("--bootstrap-server", address, "--isolation", level, "--json")
        lines = command("consume", TOPIC, *options).out.splitlines()
        rows = [json.loads(line) for line in lines]
        assert [(row["offset"], row["value"].encode()) for row in rows] == expected


async def test_both_end_at_the_same_offsets(
    both: tuple[RawConnection, RawConnection],
) -> None:
    """High watermark and last stable offset, of which the second is held back by an open transaction."""
    kafka, echoless = [await ends(one) for one in both]
    assert echoless == kafka
    assert kafka[1] < kafka[0]


async def test_every_fetch_has_what_it_needs(
    pair: Pair, both: tuple[RawConnection, RawConnection]
) -> None:
    """The same batches from any offset, and all aborted transactions that overlap them, as Kafka names them."""
    stable = (await ends(both[0]))[1]
    aborted = aborted_in(pair.directory)
    assert len(aborted) > 10
    expected = await asyncio.to_thread(read, pair.kafka.address, "read_committed")
    for offset in range(0, stable, 3):
        for bytes_max in (1, 700, INT32_MAX):
            kafka, echoless = [await row_of(one, offset, bytes_max=bytes_max) for one in both]
            assert kafka.records.startswith(echoless.records)  # Kafka cuts the last batch
            assert (echoless.high_watermark, echoless.last_stable_offset) == (
                kafka.high_watermark,
                kafka.last_stable_offset,
            )
            headers = [header for _, header in walk(echoless.records)]
            begin, end = headers[0].base_offset, headers[-1].next_offset
            needed = {
                (producer_id, first)
                for producer_id, first, marker in aborted
                if marker >= begin and first < end
            }
            named = names(echoless)
            assert needed <= named
            assert needed <= names(kafka)
            assert named <= {one[:2] for one in aborted if one[2] >= begin}
            view = memoryview(echoless.records)
            shown = [
                (record.offset, record.value or b"")
                for position, header in data_batches(view, named)
                for record in read_records(view[position : position + header.size])
            ]
            assert shown == [one for one in expected if begin <= one[0] < end]


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_lists_that_are_empty(
    both: tuple[RawConnection, RawConnection], isolation_level: int
) -> None:
    """Null for readers of all records and beside an error, without entries for those of committed records, as Kafka's."""
    (high_watermark, stable) = await ends(both[0])
    for offset in (0, stable, high_watermark, 10**9):
        kafka, echoless = [
            await row_of(one, offset, bytes_max=1, isolation_level=isolation_level) for one in both
        ]
        assert echoless.error_code == kafka.error_code
        if kafka.aborted_transactions:
            assert echoless.aborted_transactions
        else:
            assert echoless.aborted_transactions == kafka.aborted_transactions, offset


async def row_of(
    connection: RawConnection, offset: int, *, bytes_max: int, isolation_level: int = 1
) -> Any:
    """The row of a fetch."""
    rows = {TOPIC: [wanted_partition(offset, bytes_max=bytes_max)]}
    response = await fetch(connection, rows, isolation_level=isolation_level)
    return response.responses[0].partitions[0]


def names(row: Any) -> set[tuple[int, int]]:
    return {(int(one.producer_id), int(one.first_offset)) for one in row.aborted_transactions}


async def test_producers_are_described_alike(
    both: tuple[RawConnection, RawConnection],
) -> None:
    """Epochs, sequences and times, the coordinator's epoch, and the start of what is open."""
    found = []
    for connection in both:
        connection.send_request(describe_producers_request(TOPIC, [0]))
        response = await connection.receive_response("describe_producers", 0)
        found.append(producer_rows(response.topics[0].partitions[0]))
    kafka, echoless = found
    assert echoless == kafka
    assert len(kafka) == PRODUCERS
    assert any(row.current_txn_start_offset >= 0 for row in kafka)


def test_the_aborted_transactions_are_made_again(pair: Pair) -> None:
    """`.txnindex` files that Echoless writes for the closed segments are Kafka's, byte for byte."""
    pair.echoless.terminate()
    try:
        here = pair.echoless.data_dir / f"{TOPIC}-0"
        for path in pair.directory.glob("*.txnindex"):
            mine = here / path.name
            data = mine.read_bytes() if mine.exists() else b""
            assert data == path.read_bytes(), path.name
        assert len([*here.glob("*.log")]) > 5
    finally:
        pair.echoless.start()


async def test_a_hanging_transaction_is_found_and_aborted(pair: Pair) -> None:
    """Kafka's own tool: no coordinator here knows the transactions that were copied. The last test of the log."""
    tool = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server")
    address, where = pair.echoless.kafka_address, ("--topic", TOPIC, "--partition", "0")
    described = await asyncio.to_thread(run_tool, *tool, address, "describe-producers", *where)
    names_of, *rows = [line.split() for line in described.splitlines() if line.strip()]
    starts = [
        dict(zip(names_of, row, strict=False))["CurrentTransactionStartOffset"] for row in rows
    ]
    open_at = sorted(int(start) for start in starts if start != "None")
    assert open_at
    connection = await RawConnection.open(address)
    for start in open_at:
        assert (await ends(connection))[1] == start
        options = ("abort", *where, "--start-offset", str(start))
        await asyncio.to_thread(run_tool, *tool, address, *options)
    high_watermark, stable = await ends(connection)
    assert stable == high_watermark
    await connection.close()
