"""How long an audit of a large log takes, how it scales with cores, and whether it finds the damage.

    python -m benchmarks.audit [--records 50000000] [--cores 1 2] [--directory DIR] [--keep]

Two replicas of one topic are written by the real log, with one fault in each of five partitions: a
repeated batch, a lost one, two in the wrong order, a flipped bit, and one batch that differs
between the replicas. Then `python -m echoless.spark audit` runs on both with each number of cores,
including Spark's start. It must find the five faults and nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from echoless.protocol.record_batch import BatchHeader, compute_crc, read_header, seal_batch, walk
from echoless.protocol.records import Record, build_batch
from echoless.protocol.sequence import increment
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.os_file_system import OsFileSystem

TOPIC = "audited"
PARTITIONS = 8
PRODUCERS = 100
BATCH_RECORDS_MAX = 40
VALUE = bytes(range(40))
BEGIN_MS = 1_763_685_000_000
WRITTEN_AT_ONCE = 1000
CONFIG = LogConfig(retention_ms=-1)
REPEAT, GAP, REORDERING, DIVERGENCE, CRC = range(5)
EXPECTED = Counter(
    {
        ("problem", "repeat", REPEAT): 2,  # once in each replica, and so on
        ("problem", "gap", GAP): 2,
        ("problem", "reordering", REORDERING): 2,
        ("problem", "divergence", DIVERGENCE): 1,
        ("problem", "crc", CRC): 1,
        ("note", "gap", CRC): 1,  # the records in the damaged bytes
    }
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000_000)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument(
        "--directory", type=Path, help="where to write; default: a temporary directory"
    )
    parser.add_argument("--keep", action="store_true", help="leave the logs, or use those there")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="echoless-audit-"))
    replicas = [directory / "replica-1", directory / "replica-2"]
    try:
        if not replicas[0].exists():
            write(replicas, arguments.records)
        for cores in arguments.cores:
            measure(replicas, cores, directory / "tables")
    finally:
        if not arguments.keep:
            shutil.rmtree(directory)


def write(replicas: list[Path], records: int) -> None:
    """Writes both replicas, with faults."""
    begin = time.perf_counter()
    directory = LogDirectory.open(
        str(replicas[0]),
        broker_id=1,
        fs=OsFileSystem(),
        now_ms=BEGIN_MS,
        config_for=lambda _: CONFIG,
    )
    ends = {}
    for partition in range(PARTITIONS):
        log = directory.create(TOPIC, partition, uuid.UUID(int=1), CONFIG, now_ms=BEGIN_MS)
        fill(log, partition, records // PARTITIONS)
        ends[TOPIC, partition] = log.log_end_offset
    directory.close(ends)
    shutil.copytree(replicas[0], replicas[1])
    change_batch(first_segment(replicas[1], DIVERGENCE), reseal=True)
    change_batch(first_segment(replicas[0], CRC), reseal=False)
    print(f"written in {time.perf_counter() - begin:.0f} s", flush=True)


def fill(log: Log, partition: int, records: int) -> None:
    """Appends batches of many producers in turn; one fault amid each of the first partitions."""
    batches = damaged(partition, numbered(partition, records))
    while some := list(islice(batches, WRITTEN_AT_ONCE)):
        offset, data = log.log_end_offset, bytearray()
        for header, body in some:
            data += seal_batch(header._replace(base_offset=offset), body)
            offset += header.record_count
        log.append_replicated(data, BEGIN_MS)


def numbered(partition: int, records: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Headers and record bytes of sound batches, about `records` records."""
    rng = random.Random(partition)
    templates = [template(count) for count in range(1, BATCH_RECORDS_MAX)]
    sequences = dict.fromkeys(range(partition * PRODUCERS, (partition + 1) * PRODUCERS), 0)
    written = 0
    while written < records:
        header, body = rng.choice(templates)
        producer_id = partition * PRODUCERS + rng.randrange(PRODUCERS)
        sequence = sequences[producer_id]
        sequences[producer_id] = increment(sequence, header.record_count)
        timestamp = BEGIN_MS + written // 100
        yield (
            header._replace(
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                base_timestamp=timestamp,
                max_timestamp=timestamp,
                partition_leader_epoch=0,
            ),
            body,
        )
        written += header.record_count


def template(count: int) -> tuple[BatchHeader, bytes]:
    batch = build_batch([Record(0, 0, None, VALUE, ())] * count)
    return read_header(batch), batch[61:]


def damaged(
    partition: int, batches: Iterator[tuple[BatchHeader, bytes]]
) -> Iterator[tuple[BatchHeader, bytes]]:
    """The same batches, with one fault at the 1000th of each of the first three partitions."""
    yield from islice(batches, 1000)
    batch = next(batches)
    if partition == REORDERING:
        producer_id = batch[0].producer_id
        for other in batches:
            yield other if other[0].producer_id != producer_id else exchanged(other, batch)
            if other[0].producer_id == producer_id:
                yield batch
                break
    elif partition != GAP:
        yield batch
    yield from islice(batches, 1000)
    if partition == REPEAT:
        yield batch
    yield from batches


def exchanged(
    later: tuple[BatchHeader, bytes], earlier: tuple[BatchHeader, bytes]
) -> tuple[BatchHeader, bytes]:
    """The later of two consecutive batches, changed to be written first."""
    assert later[0].base_sequence == increment(earlier[0].base_sequence, earlier[0].record_count)
    return later


def first_segment(replica: Path, partition: int) -> Path:
    return replica / f"{TOPIC}-{partition}" / f"{0:020d}.log"


def change_batch(segment: Path, *, reseal: bool) -> None:
    """Flips one bit in the records of the 1000th batch; `reseal` corrects its checksum."""
    with segment.open("r+b") as file:
        data = file.read(10_000_000)
        position, header = next(islice(walk(data), 1000, None))
        batch = bytearray(data[position : position + header.size])
        batch[-5] ^= 1
        if reseal:
            batch[17:21] = compute_crc(batch).to_bytes(4, "big")
        file.seek(position)
        file.write(batch)


def measure(replicas: list[Path], cores: int, tables: Path) -> None:
    """One audit; prints its time and rate, and fails if it found anything else."""
    shutil.rmtree(tables, ignore_errors=True)
    size = sum(path.stat().st_size for replica in replicas for path in replica.rglob("*.log"))
    begin = time.perf_counter()
    command = [sys.executable, "-m", "echoless.spark", "audit", *map(str, replicas)]
    command += ["--master", f"local[{cores}]", "--output", str(tables)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert done.returncode == 1, done.stdout + done.stderr
    rows = pq.read_table(tables / "findings.parquet").to_pylist()
    found = Counter((row["severity"], row["kind"], row["partition"]) for row in rows)
    assert found == EXPECTED, rows
    batches, records = total(tables)
    print(
        f"{cores} cores: {seconds:.1f} s for {records:,} records in {batches:,} batches, "
        f"{size / 1e9:.2f} GB: {size / seconds / 1e6:.0f} MB/s, {batches / seconds:,.0f} batches/s; "
        "found the five damages and nothing else",
        flush=True,
    )


def total(tables: Path) -> tuple[int, int]:
    """Batches and records of all replicas."""
    columns = pq.read_table(tables / "partitions.parquet", columns=["batches", "records"])
    return sum(columns["batches"].to_pylist()), sum(columns["records"].to_pylist())


if __name__ == "__main__":
    main()
