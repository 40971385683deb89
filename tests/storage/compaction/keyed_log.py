"""A log of records with keys, the driver that cleans it at once, and the naive model of what must be left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.record_batch import BatchHeader, Codec, read_header, walk
from echoless.protocol.records import Record, build_batch, iterate_records
from echoless.storage.appended import Appended
from echoless.storage.compaction.plan import CompactionRules
from echoless.storage.compaction.swap import Cleaned
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from tests.storage.log_workload import read_all
from tests.storage.one_log import NOW_MS

RULES = CompactionRules(min_dirty_ratio=0.0, delete_retention_ms=1000)
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=200,
    retention_ms=-1,
    is_compacted=True,
    compaction_rules=RULES,
)

Pair = tuple[bytes | None, bytes | None]


def keyed_batch(
    pairs: Iterable[Pair],
    *,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
) -> bytes:
    """A client's batch of these keys and values, each a millisecond after the one before."""
    records = [Record(0, timestamp + index, key, value) for index, (key, value) in enumerate(pairs)]
    has_producer = producer_id >= 0
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch if has_producer else -1,
        base_sequence=sequence if has_producer else -1,
        codec=codec,
        is_transactional=is_transactional,
    )


def append(
    log: Log, batch: bytes, now_ms: int = NOW_MS, leader_epoch: int = 0
) -> Appended | Duplicate | Reject:
    """Appends a batch as the leader."""
    return log.append(batch, read_header(batch), leader_epoch, now_ms)


def clean(
    log: Log,
    *,
    limit: int | None = None,
    now_ms: int = NOW_MS,
    steady_ms: int = NOW_MS,
    map_bytes_max: int = 1 << 20,
    is_rolled: bool = True,
) -> bool:
    """Does one whole pass over everything that can be cleaned; returns whether there was one.

    Not above `limit`, the last stable offset by default.
    """
    if is_rolled:
        log.roll(now_ms)
    log.flush()
    compaction = log.compaction
    found = compaction.find_pass(
        log.config,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        limit=log.last_stable_offset(log.log_end_offset) if limit is None else limit,
        now_ms=now_ms,
    )
    if found is None or not found.is_due:
        return False
    cleaning = compaction.start(
        found, log.config, map_bytes_max=map_bytes_max, now_ms=now_ms, steady_ms=steady_ms
    )
    for step in cleaning.steps():
        if isinstance(step, Cleaned):
            swap = compaction.start_swap(step, log.config)
            assert swap is not None, "no flush is pending"
            try:
                swap.run()
            finally:
                log.finish_swap(swap)
    compaction.note_pass(cleaning.report)
    return True


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of the log, empty ones included."""
    data = read_all(log)
    return [(header, data[at : at + header.size]) for at, header in walk(data)]


def records_of(batches: Iterable[tuple[BatchHeader, bytes]]) -> list[Record]:
    """The records in them, by offset."""
    return [record for _, data in batches for record in iterate_records(data)]


def records_in(log: Log) -> list[Record]:
    """Every record of the log."""
    return records_of(batches_of(log))


def compacted_view(records: Iterable[Record]) -> dict[bytes, tuple[int, bytes, int]]:
    """The table that the records make: offset, value and time of each key that is not deleted."""
    view: dict[bytes, tuple[int, bytes, int]] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            view.pop(record.key, None)
        else:
            view[record.key] = (record.offset, record.value, record.timestamp)
    return view


def with_rules(config: LogConfig, **rules: float | None) -> LogConfig:
    """The configuration with other rules of compaction."""
    return replace(config, compaction_rules=config.compaction_rules._replace(**rules))  # type: ignore[arg-type]
