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
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints, read_checkpoints
from echoless.protocol.record_batch import leader_stamp, read_header
from echoless.storage.compaction.rewrite import emptied
from echoless.storage.log import Log
from echoless.storage.log_directory import LogDirectory
from echoless.storage.os_file_system import OsFileSystem
from tests.pipeline.audit.without_spark import judge_logs, read_batches
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
    """Makes the batches that the leader has appended, before any cleaning."""
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


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_replicas(tmp_path_factory.mktemp("replicas"))


def audited(
    spark: SparkSession,
    directories: Sequence[Path],
    output: Path,
    checkpoints: LogCheckpoints,
    compacted: Sequence[str] = (),
) -> list[Finding]:
    from echoless.pipeline.audit.audit import audit, shown

    source = {"paths": json.dumps([str(path) for path in directories])}
    tables = audit(spark, source, output, checkpoints=checkpoints, compacted=compacted)
    return list(shown(tables.findings))


def problems(found: Sequence[Finding]) -> list[tuple[str, str, str]]:
    return [(one.topic, one.kind, one.text) for one in found if one.severity == PROBLEM]


def test_a_copy_of_a_cleaned_log_is_sound(spark, tmp_path, replicas):
    """Its own cleaner has not been there; the replica that it copied has cleaned on since, and only now says so."""
    paths = [str(path) for path in replicas.values()]
    before = replace(read_checkpoints(paths), cleaned={}, compaction={})
    found = audited(spark, [*replicas.values()], tmp_path / "tables", before)
    assert problems(found) == []
    assert [one for one in found if one.kind == FindingKind.DIVERGENCE] == []


def test_of_a_copy_alone_its_user_knows_that_it_is_compacted(spark, tmp_path, replicas):
    """Nothing in its directory says so where no batch has lost some of its records."""
    copied = replicas["copied"]
    checkpoints = read_checkpoints([str(copied)])
    found = audited(spark, [copied], tmp_path / "tables", checkpoints, compacted=["plain"])
    assert problems(found) == []
    assert {one.topic for one in found if one.kind == FindingKind.OFFSET_GAP} == {*SHAPES}
    plain = [rows for rows in read_batches(copied) if rows.column("topic")[0].as_py() == "plain"]
    (hole,) = judge_logs(plain, is_compacted=False)
    assert hole.severity == PROBLEM
    assert "--compacted" in hole.text


def compared(
    spark: SparkSession,
    root: Path,
    logs: dict[str, tuple[Sequence[bytes], Sequence[bytes]]],
    *,
    cleaned_to: int = 0,
) -> dict[str, tuple[str, int | None, str]]:
    """Compares two replicas of compacted topics; what was found of each: severity, offset, and a word of the text."""
    import pyarrow as pa

    from echoless.pipeline.audit.replicas import compare_replicas

    batches, partitions = [], []
    for replica in (0, 1):
        directory = LogDirectory.open(
            str(root / str(replica)),
            broker_id=1,
            fs=OsFileSystem(),
            now_ms=NOW_MS,
            config_for=lambda _: CONFIG,
        )
        for topic, both in logs.items():
            log = directory.create(topic, 0, uuid.UUID(int=1), CONFIG, now_ms=NOW_MS)
            copy(log, both[replica])
            partitions.append((str(replica), topic, 0, 0, log.log_end_offset))
        directory.close({})
        batches += [
            rows.set_column(0, "replica", pa.repeat(str(replica), rows.num_rows))
            for rows in read_batches(root / str(replica))
        ]
    keys = [row[:3] for row in partitions]
    found = compare_replicas(
        spark.createDataFrame(pa.Table.from_batches(batches)),
        spark.createDataFrame(
            partitions,
            "replica string, topic string, partition int, first_offset long, end_offset long",
        ),
        spark.createDataFrame(
            [],
            "replica string, topic string, partition int, hidden_from long, hidden_to long, hidden long",
        ),
        LogCheckpoints(
            recovery_points={},
            high_watermarks=dict.fromkeys(keys, 27),
            cleaned=dict.fromkeys(keys[: len(logs)], cleaned_to),
            compaction={},
        ),
        dict.fromkeys(keys, True),
    )
    rows = [(row.topic, row.severity, row.base_offset, row.text) for row in found.collect()]
    assert len({row[0] for row in rows}) == len(rows), rows
    return {
        topic: (severity, offset, text.partition("; another")[2])
        for topic, severity, offset, text in rows
    }


def batch_at(number: int, *, epoch: int = 0, value: bytes = b"v", shift: int = 0) -> bytes:
    """The one with the offsets 3 * number to 3 * number + 2."""
    batch = keyed_batch(
        [(b"%d" % key, value) for key in range(3)],
        producer_id=7,
        epoch=epoch,
        sequence=3 * number,
        timestamp=NOW_MS,
    )
    return leader_stamp(read_header(batch), 3 * number + shift, 0) + batch[16:]


def without_records(batch: bytes) -> bytes:
    """As compaction leaves the last one of a producer."""
    return emptied(read_header(batch))


def test_only_what_two_replicas_kept_can_differ(spark, tmp_path):
    """Lost records may have been cleaned away: a note, where no cleaner that is known has been."""
    log = [batch_at(number) for number in range(10)]

    def other(number: int, *batches: bytes) -> tuple[list[bytes], list[bytes]]:
        return log, [*log[:number], *batches, *log[number + 1 :]]

    found = compared(
        spark,
        tmp_path,
        {
            "same": (log, log),
            "cleaned": other(1),
            "emptied": other(6, without_records(log[6])),
            "lost": other(6),
            "changed": other(6, batch_at(6, value=b"w")),
            "changed-below": other(1, batch_at(1, value=b"w")),
            "another-epoch": other(6, without_records(batch_at(6, epoch=1))),
            "overlapping": (log, [*log[:6], batch_at(6, shift=1), *log[8:]]),
            "uncommitted": other(9, batch_at(9, value=b"w")),
        },
        cleaned_to=12,
    )
    assert {topic: row[:2] for topic, row in found.items()} == {
        "lost": (NOTE, 18),
        "changed": (PROBLEM, 18),
        "changed-below": (PROBLEM, 3),
        "another-epoch": (PROBLEM, 18),
        "overlapping": (PROBLEM, 19),
        "uncommitted": (NOTE, 27),
    }
    assert found["lost"][2].startswith(" replica lacks it")
    assert found["overlapping"][2].startswith(" replica has a batch with some")
