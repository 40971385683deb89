"""A data directory as a broker leaves it, written by `storage` itself, for commands to inspect."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage import paths
from echoless.storage.appended import Appended
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.os_file_system import OsFileSystem

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=50)
"""Three batches of two records to a segment."""


@contextmanager
def open_directory(path: Path, config: LogConfig = CONFIG) -> Iterator[Log]:
    """The log of `orders-0` in an open directory that is closed cleanly afterwards."""
    with open_log_directory(path, config) as directory:
        yield directory.logs["orders", 0]


@contextmanager
def open_log_directory(path: Path, config: LogConfig = CONFIG) -> Iterator[LogDirectory]:
    """Like `open_directory`, for the whole directory."""
    directory = LogDirectory.open(
        str(path),
        broker_id=1,
        fs=OsFileSystem(),
        now_ms=now_ms(),
        config_for=lambda _: config,
    )
    log = directory.logs.get(("orders", 0))
    if log is None:
        log = directory.create("orders", 0, uuid.UUID(int=1), config, now_ms=now_ms())
        log.leader_epochs.assign(0, 0)
    try:
        yield directory
    finally:
        directory.close({("orders", 0): log.log_end_offset})


def append(log: Log, producer_id: int, base_sequence: int, *, timestamp: int | None = None) -> None:
    """Two records of one producer in one batch, through the decision."""
    timestamp = now_ms() if timestamp is None else timestamp
    batch = make_batch(producer_id, base_sequence, timestamp=timestamp)
    assert isinstance(log.append(batch, read_header(batch), 0, now_ms()), Appended)


def make_batch(
    producer_id: int, base_sequence: int, *, base_offset: int = 0, timestamp: int = 1000
) -> bytes:
    """Two records of one producer."""
    records = [
        Record(0, timestamp, b"key", b"value %d" % index, (("trace", b"\x00\xff"),))
        for index in range(2)
    ]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
        base_offset=base_offset,
    )


def fill(path: Path, batches: int = 8) -> Path:
    """Writes batches of two producers in turn; returns the partition's directory."""
    with open_directory(path) as log:
        for index in range(batches):
            append(log, 7 + index % 2, index // 2 * 2)
    return path / "orders-0"


def file_of(directory: Path, offset: int, suffix: str) -> Path:
    """A file that is named by an offset."""
    return Path(paths.offset_file(str(directory), offset, suffix))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
