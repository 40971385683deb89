"""Data directories written by the real `Log`, batch by batch as a test wants them.

Batches go in as a follower takes them, undecided, so that a log can hold what no leader would have
let in.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.record_batch import leader_stamp, read_header
from echoless.protocol.records import Record, build_batch
from echoless.protocol.sequence import increment
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.os_file_system import OsFileSystem

TopicPartition = tuple[str, int]
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300, retention_ms=-1)


class Sent(NamedTuple):
    """One batch as its producer numbered it."""

    producer_id: int
    epoch: int
    sequence: int
    count: int
    timestamp: int = NOW_MS
    leader_epoch: int = 0
    missing: int = 0
    """Offsets that the log lacks before this batch, as after compaction."""
    is_transactional: bool = False
    marker: MarkerType | None = None
    """The end of a transaction: such a batch has one control record, and no sequence."""

    @property
    def next_sequence(self) -> int:
        return increment(self.sequence, self.count)


def encode(sent: Sent, base_offset: int = 0) -> bytes:
    """The batch's bytes at `base_offset`; the same numbers always make the same records."""
    if sent.marker is not None:
        return build_marker(
            EndMarker(sent.marker, 0),
            sent.producer_id,
            sent.epoch,
            sent.timestamp,
            base_offset=base_offset,
            leader_epoch=sent.leader_epoch,
        )
    values = random.Random(f"{sent.producer_id} {sent.epoch} {sent.sequence}")
    records = [
        Record(0, sent.timestamp, None, values.randbytes(values.randrange(40)), ())
        for _ in range(sent.count)
    ]
    batch = build_batch(
        records,
        producer_id=sent.producer_id,
        producer_epoch=sent.epoch,
        base_sequence=sent.sequence,
        is_transactional=sent.is_transactional,
    )
    return leader_stamp(read_header(batch), base_offset, sent.leader_epoch) + batch[16:]


def write_logs(
    data_dir: Path,
    logs: Mapping[TopicPartition, Sequence[Sent]],
    *,
    config: LogConfig = CONFIG,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
    log_starts: Mapping[TopicPartition, int] | None = None,
) -> Path:
    """A cleanly closed data directory that holds these logs, from their starts on; everything committed by itself."""
    directory = LogDirectory.open(
        str(data_dir), broker_id=1, fs=OsFileSystem(), now_ms=NOW_MS, config_for=lambda _: config
    )
    ends = {}
    for (topic, partition), batches in logs.items():
        log = directory.create(topic, partition, uuid.UUID(int=1), config, now_ms=NOW_MS)
        for sent in batches:
            log.append_replicated(encode(sent, log.log_end_offset + sent.missing), NOW_MS)
        ends[topic, partition] = log.log_end_offset
        if log_starts and (topic, partition) in log_starts:
            log.advance_log_start(log_starts[topic, partition])
    directory.close({**ends, **(high_watermarks or {})})
    return data_dir
