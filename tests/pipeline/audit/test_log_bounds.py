"""Records that a log lacks at its ends: cut off at the end of a batch, so that nothing in it tells."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from echoless.pipeline.audit.cluster_facts import read_cluster_facts
from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.log_bounds import findings_about_bounds
from echoless.pipeline.audit.log_checkpoints import read_checkpoints
from echoless.protocol.record_batch import walk
from echoless.storage.log_config import LogConfig
from tests.pipeline.audit.without_spark import judge_logs, read_batches
from tests.pipeline.batches.test_cluster_scan import produce
from tests.pipeline.written_logs import Sent, write_logs

LOG = [Sent(7, 0, 2 * number, 2) for number in range(6)]
SMALL_FILES = LogConfig(segment_bytes=250)


@pytest.fixture
def segments(tmp_path: Path) -> list[Path]:
    """The files of a log of 12 records, closed cleanly, beside another log."""
    write_logs(tmp_path, {("orders", 0): LOG, ("sound", 0): LOG}, config=SMALL_FILES)
    found = sorted((tmp_path / "orders-0").glob("*.log"))
    assert len(found) >= 3
    return found


def judge(data_dir: Path) -> list[Finding]:
    """Findings from batches and bounds together, about the log that was changed only."""
    batches = read_batches(data_dir)
    ends: dict[tuple[str, int], int] = {}
    for batch in batches:
        for row in batch.to_pylist():
            if row["crc_ok"]:
                ends[row["topic"], row["partition"]] = row["last_offset"] + 1
    bounds = read_checkpoints([str(data_dir)]).bounds
    found = [
        one
        for key, of_log in bounds.items()
        for one in findings_about_bounds(key, of_log, ends.get(key[1:]))
    ]
    found += judge_logs(batches, is_compacted=False)
    assert {one.topic for one in found} <= {"orders"}
    return found


def missing(found: list[Finding]) -> tuple[int | None, int | None]:
    (one,) = found
    assert (one.severity, one.kind) == (Severity.PROBLEM, FindingKind.OFFSET_GAP)
    assert {type(one.severity), type(one.kind)} == {str}, "Spark takes no enums from the driver"
    assert one.base_offset is not None
    assert one.last_offset is not None
    assert one.records == one.last_offset - one.base_offset + 1
    return one.base_offset, one.last_offset


def test_a_whole_log_lacks_nothing(tmp_path: Path, segments: list[Path]):
    """Nor does one of which only the name of the next file is left."""
    assert judge(tmp_path) == []
    (tmp_path / "orders-0" / f"{12:020}.log").touch()
    assert judge(tmp_path) == []
    for segment in segments:
        segment.unlink()
    (tmp_path / "log-start-offset-checkpoint").unlink()
    assert judge(tmp_path) == []


def test_a_last_batch_that_is_cut_off_is_missed(tmp_path: Path, segments: list[Path]):
    """The checkpoint says that it was on disk."""
    data = segments[-1].read_bytes()
    *_, (position, header) = walk(data)
    segments[-1].write_bytes(data[:position])
    assert missing(judge(tmp_path)) == (header.base_offset, 11)


def test_a_last_file_that_is_gone_is_missed(tmp_path: Path, segments: list[Path]):
    """And all of them, if they are empty."""
    segments[-1].unlink()
    assert missing(judge(tmp_path)) == (int(segments[-1].stem), 11)
    for segment in segments[1:-1]:
        segment.unlink()
    segments[0].write_bytes(b"")
    assert missing(judge(tmp_path)) == (0, 11)


def test_the_name_of_an_empty_file_says_where_the_log_ended(tmp_path: Path, segments: list[Path]):
    """Without any checkpoint, too."""
    segments[-1].write_bytes(b"")
    segments[-2].write_bytes(b"")
    for checkpoint in tmp_path.glob("*-checkpoint"):
        checkpoint.unlink()
    assert missing(judge(tmp_path)) == (int(segments[-2].stem), int(segments[-1].stem) - 1)


def test_a_first_file_that_was_not_deleted_by_the_broker_is_missed(
    tmp_path: Path, segments: list[Path]
):
    """The log start has not come up to the next one; without the checkpoint that is not known."""
    segments[0].unlink()
    assert missing(judge(tmp_path)) == (0, int(segments[1].stem) - 1)
    (tmp_path / "log-start-offset-checkpoint").unlink()
    assert judge(tmp_path) == []


def test_a_log_that_is_gone_is_missed_unless_it_is_set_aside(tmp_path: Path, segments: list[Path]):
    """A partition that is being deleted keeps its name, with a suffix."""
    directory = segments[0].parent
    aside = directory.rename(tmp_path / f"orders-0.{'0' * 32}-delete")
    assert judge(tmp_path) == []
    shutil.rmtree(aside)
    assert missing(judge(tmp_path)) == (0, 11)


def test_a_loss_that_was_accepted_is_none(tmp_path: Path, segments: list[Path]):
    """The next start opens the log with what it has."""
    segments[-1].unlink()
    (segments[0].parent / "accepted-loss").touch()
    assert judge(tmp_path) == []


def test_the_end_of_a_log_in_a_cluster_is_never_a_write_cut_short(echoless):
    """A cluster shows what is committed: damage there is a problem, in the last batch, too."""
    produce(echoless.kafka_address, "promised")
    facts = read_cluster_facts(echoless.kafka_address, "promised")
    assert facts.recovery_points[echoless.kafka_address, "promised", 0] == 2**63 - 1
