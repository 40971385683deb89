"""Arrow columns into batches: all records at once (`echoless.client.column_batch`), or one by one?

    python -m benchmarks.columns [--rounds N] [--rows N]

The same columns, in chunks of 10,000 rows as Spark hands them over, take both paths in one process. *encode*
ends with numbered batches and *partition* with the partition of each key, both by the processor's time;
*send* ends with the last acknowledgement of a broker of Echoless, by the clock.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.pairs import in_turn, print_pair
from echoless.client.batch import encode_batch, partition_of
from echoless.client.column_batch import ColumnBatches
from echoless.client.column_partitions import partitions_of
from echoless.client.columns import columns
from echoless.client.open_batches import OpenBatches
from echoless.client.producer import Producer
from echoless.client.settings import Settings
from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record
from tests.support.echoless import Echoless

CHUNK_ROWS = 10_000
VALUE_BYTES = (10, 100, 1000)
_TIME_MS = 1_795_000_000_000
Chunk = tuple[Any, ...]
"""Keys, values, timestamps, and perhaps headers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    for value_bytes in VALUE_BYTES:
        chunks = make_chunks(arguments.rows, value_bytes)
        compare(f"encode, {value_bytes} B", arguments, chunks, encode_columns, encode_records)
    compare("encode, 100 B, zstd", arguments, make_chunks(arguments.rows, 100), *zstd())
    compare(
        *("encode, 100 B, 2 headers", arguments, with_headers(make_chunks(arguments.rows, 100))),
        *(encode_columns, encode_records),
    )
    compare(
        "partition", arguments, make_chunks(arguments.rows, 10), partition_columns, partition_keys
    )
    with tempfile.TemporaryDirectory() as directory:
        broker = Echoless(Path(directory), {"log_retention_bytes": "1000000000"})
        broker.start()
        try:
            chunks = make_chunks(arguments.rows, 100)
            together, one_by_one = senders(broker.kafka_address)
            compare("send, 100 B", arguments, chunks, together, one_by_one, clock=time.perf_counter)
        finally:
            broker.kill()


def make_chunks(rows: int, value_bytes: int) -> list[Chunk]:
    value = b"v" * value_bytes
    return [
        (
            pa.array(
                [b"key-%d" % number for number in range(start, start + CHUNK_ROWS)], pa.binary()
            ),
            pa.array([value] * CHUNK_ROWS, pa.binary()),
            pa.array(range(_TIME_MS + start, _TIME_MS + start + CHUNK_ROWS), pa.int64()),
        )
        for start in range(0, rows, CHUNK_ROWS)
    ]


def with_headers(chunks: list[Chunk]) -> list[Chunk]:
    """The same rows with two headers each."""
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    lists = [
        [{"key": "trace", "value": b"%d" % number}, {"key": "type", "value": b"order"}]
        for number in range(CHUNK_ROWS)
    ]
    return [(*chunk, pa.array(lists, kind)) for chunk in chunks]


def compare(
    name: str,
    arguments: argparse.Namespace,
    chunks: list[Chunk],
    together: Callable[[list[Chunk]], object],
    one_by_one: Callable[[list[Chunk]], object],
    *,
    clock: Callable[[], float] = time.process_time,
) -> None:
    pairs = in_turn(
        arguments.rounds,
        lambda: timed(together, chunks, clock),
        lambda: timed(one_by_one, chunks, clock),
    )
    print_pair(f"{name}, 1000 records/s", pairs["rate"], "columns", "records")


def timed(
    work: Callable[[list[Chunk]], object], chunks: list[Chunk], clock: Callable[[], float]
) -> Mapping[str, float]:
    begin = clock()
    work(chunks)
    return {"rate": len(chunks) * CHUNK_ROWS / (clock() - begin) / 1000}


def encode_columns(chunks: list[Chunk], settings: Settings = Settings()) -> None:  # noqa: B008  frozen
    sequence = 0
    for batch in ready_batches(chunks, settings):
        batch.stamped(producer_id=1, producer_epoch=0, base_sequence=sequence)
        sequence += len(batch)


def ready_batches(chunks: list[Chunk], settings: Settings) -> Iterator[Any]:
    batches = ColumnBatches(settings)
    for chunk in chunks:
        yield from batches.add(columns(*chunk))
    yield from batches.finish()


def encode_records(chunks: list[Chunk], codec: Codec = Codec.NONE) -> None:
    sequence = 0

    def encode(batch: Any) -> None:
        nonlocal sequence
        encode_batch(batch.records, codec, producer_id=1, producer_epoch=0, base_sequence=sequence)
        sequence += len(batch.records)

    batches: OpenBatches[Future[Any]] = OpenBatches(Settings(), Future, encode)
    for chunk in chunks:
        for record in records_of(chunk):
            batches.add("t", 0, record)
    batches.cut_all()


def records_of(chunk: Chunk) -> Iterator[Record]:
    keys, values, timestamps, *lists = (column.to_pylist() for column in chunk)
    headers = lists[0] if lists else [()] * len(keys)
    for key, value, timestamp, ones in zip(keys, values, timestamps, headers, strict=True):
        yield Record(-1, timestamp, key, value, tuple((one["key"], one["value"]) for one in ones))


def zstd() -> tuple[Callable[[list[Chunk]], object], Callable[[list[Chunk]], object]]:
    settings = Settings(compression=Codec.ZSTD)
    return (
        lambda chunks: encode_columns(chunks, settings),
        lambda chunks: encode_records(chunks, Codec.ZSTD),
    )


def partition_columns(chunks: list[Chunk]) -> None:
    for keys, _, _ in chunks:
        partitions_of(keys, 12)


def partition_keys(chunks: list[Chunk]) -> None:
    for keys, _, _ in chunks:
        [partition_of(key, 12) for key in keys.to_pylist()]


def senders(
    address: str,
) -> tuple[Callable[[list[Chunk]], object], Callable[[list[Chunk]], object]]:
    def together(chunks: list[Chunk]) -> None:
        with Producer(address) as producer:
            for batch in ready_batches(chunks, producer.settings):
                producer.send_batch("columns", 0, batch)

    def one_by_one(chunks: list[Chunk]) -> None:
        with Producer(address) as producer:
            for chunk in chunks:
                for _, timestamp, key, value, _ in records_of(chunk):
                    producer.send("records", value, key=key, partition=0, timestamp_ms=timestamp)

    return together, one_by_one


if __name__ == "__main__":
    main()
