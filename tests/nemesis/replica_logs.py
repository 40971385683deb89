"""The logs of stopped brokers, read from their files with the oracle's own decoder.

Segments may be cut at different offsets on different replicas; only the bytes of the batches, in
order, are compared.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from aiokafka.record.memory_records import MemoryRecords

from tests.support.raw_batches import StoredBatch, split_log


def read_batches(data_dir: Path, topic: str, partition: int) -> Iterator[StoredBatch]:
    """Every complete batch of one replica, in order."""
    directory = data_dir / f"{topic}-{partition}"
    for segment in sorted(directory.glob("*.log")):
        yield from split_log(segment.read_bytes())


def first_difference(replicas: Mapping[int, Path], topic: str, partition: int) -> str | None:
    """The position at which the replicas of a partition differ; None if they never do."""
    logs = [read_batches(data_dir, topic, partition) for data_dir in replicas.values()]
    for batches in itertools.zip_longest(*logs):
        contents = {None if batch is None else batch.data for batch in batches}
        if len(contents) > 1:
            accounts = zip(replicas, map(_describe, batches), strict=True)
            return ", ".join(f"broker {broker_id}: {said}" for broker_id, said in accounts)
    return None


def read_numbers(batches: Iterable[StoredBatch]) -> tuple[array[int], list[str]]:
    """The number of the record at each offset from 0, and the faults of the batches."""
    numbers, problems = array("q"), []
    for batch in batches:
        if not batch.crc_is_right:
            problems.append(f"wrong checksum at {batch.base_offset}")
        if batch.base_offset != len(numbers):
            problems.append(f"offset {batch.base_offset} instead of {len(numbers)}")
        for record in MemoryRecords(batch.data).next_batch():
            numbers.append(_number(record.headers))
    return numbers, problems


def _number(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The number in the header `n`, as the client programs write it."""
    return next((int(value) for name, value in headers if name == "n" and value), -1)


def _describe(batch: StoredBatch | None) -> str:
    if batch is None:
        return "ends"
    epoch, size = batch.partition_leader_epoch, len(batch.data)
    return f"{size} bytes of epoch {epoch} at {batch.base_offset}"
