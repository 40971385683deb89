"""Replicas of compacted logs, each cleaned at a time of its own, or never: only what two of them kept can differ."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.log_checkpoints import read_checkpoints
from echoless.protocol.record_batch import leader_stamp, read_header
from echoless.storage.log import Log
from echoless.storage.log_directory import LogDirectory
from echoless.storage.os_file_system import OsFileSystem
from tests.pipeline.written_logs import NOW_MS
from tests.storage.compaction.keyed_log import CONFIG, batches_of, clean, keyed_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROBLEM, NOTE = Severity.PROBLEM, Severity.NOTE
OTHER_CONFIG: Final = replace(CONFIG, segment_bytes=900)
"""A follower's files begin and end where it rolls them."""


class Shape(NamedTuple):
    """The batches of a topic."""

    records_max: int
    producers: Sequence[int]
    keys: int = 8


SHAPES: Final = {
    "mixed": Shape(4, (-1, 7, 8)),
    "sequenced": Shape(1, (7, 8)),
    "plain": Shape(1, (-1,)),
    "hot": Shape(3, (-1, 7), keys=2),
}


def history(topic: str, batches: int = 120) -> list[bytes]:
    """What the leader has appended, before any cleaning."""
    rng, shape, offset = random.Random(topic), SHAPES[topic], 0
    sequences = dict.fromkeys(shape.producers, 0)
    found = []
    for number in range(batches):
        producer_id, count = rng.choice(shape.producers), rng.randint(1, shape.records_max)
        pairs = [
            (b"%d" % rng.randrange(shape.keys), None if rng.random() < 0.1 else rng.randbytes(9))
            for _ in range(count)
        ]
        batch = keyed_batch(
            pairs,
            producer_id=producer_id,
            sequence=sequences[producer_id],
            timestamp=NOW_MS + number,
        )
        found.append(leader_stamp(read_header(batch), offset, number // 50) + batch[16:])
        sequences[producer_id] += count
        offset += count
    return found


def copy(log: Log, batches: Sequence[bytes]) -> None:
    """Appends what the log lacks, as a follower does."""
    for batch in batches:
        if read_header(batch).base_offset >= log.log_end_offset:
            log.append_replicated(batch, NOW_MS)


def kept(log: Log) -> list[bytes]:
    return [data for _, data in batches_of(log)]


def clean_all(directory: LogDirectory, log: Log, now_ms: int) -> None:
    """Cleans all that the log has, once it is on disk."""
    log.roll(now_ms)
    log.flush()
    directory.checkpoint({})
    assert clean(log, now_ms=now_ms, is_rolled=False)


def write_replicas(root: Path) -> dict[str, Path]:
    """Three replicas of each topic: one never cleaned, one cleaned twice, and its copy, begun between the passes."""
    paths = {name: root / name for name in ("full", "cleaned", "copied")}
    opened = {
        name: LogDirectory.open(
            str(path), broker_id=1, fs=OsFileSystem(), now_ms=NOW_MS, config_for=lambda _: CONFIG
        )
        for name, path in paths.items()
    }
    for topic in SHAPES:
        full, cleaned, copied = (
            directory.create(topic, 0, uuid.UUID(int=1), config, now_ms=NOW_MS)
            for directory, config in zip(
                opened.values(), (CONFIG, CONFIG, OTHER_CONFIG), strict=True
            )
        )
        batches = history(topic)
        copy(full, batches)
        copy(cleaned, batches[:80])
        clean_all(opened["cleaned"], cleaned, NOW_MS)
        copy(copied, kept(cleaned)[:-10])
        copy(cleaned, batches)
        clean_all(opened["cleaned"], cleaned, NOW_MS + 2000)
        copy(copied, kept(cleaned))
        copy(copied, batches)
    for directory in opened.values():
        ends = {key: log.log_end_offset for key, log in directory.logs.items()}
        directory.close(ends)
    return paths


def audited(spark: SparkSession, directories: Sequence[Path], output: Path) -> list[Finding]:
    from echoless.pipeline.audit.audit import audit, shown

    paths = [str(directory) for directory in directories]
    source = {"paths": json.dumps(paths), "splitBytes": "20000"}
    tables = audit(spark, source, output, checkpoints=read_checkpoints(paths))
    return list(shown(tables.findings))


def problems(found: Sequence[Finding]) -> list[tuple[str, str, str]]:
    return [(one.topic, one.kind, one.text) for one in found if one.severity == PROBLEM]


def test_a_copy_of_a_cleaned_log_is_sound(spark, tmp_path):
    """Its own cleaner has not been there; the replica that it copied has cleaned on since."""
    paths = write_replicas(tmp_path)
    found = audited(spark, [*paths.values()], tmp_path / "all")
    assert problems(found) == []
    assert [one for one in found if one.kind == FindingKind.DIVERGENCE] == []
