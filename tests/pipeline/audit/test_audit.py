"""The whole audit on Spark: damaged logs and replicas in one run, each finding accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from tests.pipeline.seeded_logs import damaged_log, sound_log
from tests.pipeline.written_logs import write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEEDS = [f"spark {number}" for number in range(3)]


def flip_bit(path: Path, position: int) -> None:
    """Flips the lowest bit of one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def findings_of(
    spark: SparkSession, directories: list[Path], output: Path, **options: str
) -> list[Finding]:
    import json

    from echoless.pipeline.audit.audit import audit, shown
    from echoless.pipeline.audit.log_checkpoints import read_checkpoints

    paths = [str(directory) for directory in directories]
    source = {"paths": json.dumps(paths), "splitBytes": "2000", **options}
    tables = audit(spark, source, output, checkpoints=read_checkpoints(paths))
    return list(shown(tables.findings))


def test_everything_that_was_damaged_is_found_and_nothing_else(spark, tmp_path):
    """Repeats, gaps, reorderings, old epochs, flipped bits and a diverging replica."""
    damages = {seed.replace(" ", "-"): damaged_log(seed) for seed in SEEDS}
    logs = {(topic, 0): damage.log for topic, damage in damages.items()}
    sound = sound_log("sound")
    first = write_logs(tmp_path / "a", {**logs, ("sound", 0): sound, ("flipped", 0): sound})
    other = [*sound[:60], sound[60]._replace(timestamp=7), *sound[61:]]
    second = write_logs(tmp_path / "b", {("sound", 0): other, ("flipped", 0): sound})
    segment = sorted((first / "flipped-0").glob("*.log"))[1]
    flip_bit(segment, 70)

    found = findings_of(spark, [first, second], tmp_path / "tables")

    for topic, damage in damages.items():
        about = Counter(
            (f.kind, f.producer_id, f.base_sequence, f.records) for f in found if f.topic == topic
        )
        assert about == Counter(damage.expected)
    (flipped,) = [f for f in found if f.topic == "flipped" and f.severity == Severity.PROBLEM]
    assert (flipped.kind, flipped.file, flipped.position) == (
        FindingKind.CRC,
        f"flipped-0/{segment.name}",
        0,
    )
    (diverging,) = [f for f in found if f.topic == "sound"]
    assert diverging.kind == FindingKind.DIVERGENCE
    assert diverging.base_offset == sum(sent.count for sent in sound[:60])
    assert {f.topic for f in found} == {*damages, "flipped", "sound"}


def segments_of(data_dir: Path, topic: str) -> list[Path]:
    return sorted((data_dir / f"{topic}-0").glob("*.log"))


def test_replicas_agree_below_the_high_watermark(spark, tmp_path):
    """A difference is a problem below the high watermark, a note above; lagging is neither."""
    log = sound_log("replicas")
    other = [*log[:100], log[100]._replace(timestamp=7), *log[101:]]
    offset = sum(sent.count for sent in log[:100])
    end = sum(sent.count for sent in log)
    names = ("same", "behind", "begins-later", "committed", "uncommitted", "missing")
    first = write_logs(
        tmp_path / "a", {(name, 0): log for name in names}, high_watermarks={("uncommitted", 0): 9}
    )
    second = write_logs(
        tmp_path / "b",
        {
            ("same", 0): log,
            ("behind", 0): log[:70],
            ("begins-later", 0): log,
            ("committed", 0): other,
            ("uncommitted", 0): other,
            ("missing", 0): log,
        },
        log_starts={("begins-later", 0): int(segments_of(first, "begins-later")[1].stem)},
    )
    segments_of(second, "begins-later")[0].unlink()  # as a start of the broker would
    gone = segments_of(second, "missing")[2]
    gone.unlink()

    found = findings_of(spark, [first, second], tmp_path / "tables")

    diverging = {f.topic: f for f in found if f.kind == FindingKind.DIVERGENCE}
    assert diverging.keys() == {"committed", "uncommitted", "missing"}
    assert {diverging[name].base_offset for name in ("committed", "uncommitted")} == {offset}
    assert diverging["committed"].severity == Severity.PROBLEM
    assert diverging["uncommitted"].severity == Severity.NOTE
    assert diverging["missing"].base_offset == int(gone.stem)
    assert {f.topic for f in found} == diverging.keys()
    assert offset < end


def test_what_a_running_broker_deleted_is_not_missed(spark, tmp_path):
    """Logs roll in Apache Kafka between the reading of bounds and batches, and one loses a record."""
    import json

    from echoless.pipeline.audit.audit import audit, shown
    from echoless.pipeline.audit.log_checkpoints import read_checkpoints
    from echoless.pipeline.batches.data_directory import RECOVERY_POINT_CHECKPOINT

    log = sound_log("rolled")
    end = sum(sent.count for sent in log)
    data_dir = write_logs(tmp_path / "data", {("rolled", 0): log, ("cut", 0): log})
    stored = f"0\n2\nrolled 0 {end}\ncut 0 {end}\n"
    (data_dir / RECOVERY_POINT_CHECKPOINT).write_text(stored)
    paths = [str(data_dir)]
    checkpoints = read_checkpoints(paths)
    for topic, rolled_at in (("rolled", end), ("cut", end - 1)):
        for segment in segments_of(data_dir, topic):
            segment.unlink()
        (data_dir / f"{topic}-0" / f"{rolled_at:020d}.log").touch()

    source = {"paths": json.dumps(paths), "splitBytes": "2000"}
    tables = audit(spark, source, tmp_path / "tables", checkpoints=checkpoints)
    found = list(shown(tables.findings))
    assert [(one.topic, one.base_offset, one.records) for one in found] == [("cut", end - 1, 1)]


def test_what_retention_deletes_during_the_audit_is_a_note(spark, tmp_path, monkeypatch):
    """The first file has been read before retention takes the first three: no record and no sequence was lost."""
    import json

    from echoless.pipeline.audit import audit as audit_module
    from echoless.pipeline.audit.log_checkpoints import read_checkpoints

    data_dir = write_logs(tmp_path / "data", {("orders", 0): sound_log("sound")})
    paths = [str(data_dir)]
    checkpoints = read_checkpoints(paths)
    first, second, third, fourth, *_ = segments_of(data_dir, "orders")
    scan = audit_module.scan

    def scan_while_retention_works(*arguments: object) -> None:
        second.unlink()
        third.unlink()
        scan(*arguments)
        first.unlink()

    monkeypatch.setattr(audit_module, "scan", scan_while_retention_works)
    source = {"paths": json.dumps(paths)}
    tables = audit_module.audit(spark, source, tmp_path / "tables", checkpoints=checkpoints)
    found = audit_module.shown(tables.findings)
    assert {one.severity for one in found} == {Severity.NOTE}
    (deleted,) = [one for one in found if one.kind == FindingKind.DELETED]
    assert (deleted.base_offset, deleted.last_offset) == (int(second.stem), int(fourth.stem) - 1)
    assert {one.kind for one in found} == {FindingKind.DELETED, FindingKind.GAP}


def test_the_command_tells_sound_from_damaged(spark, tmp_path):
    """Exit code 0 or 1, the verdict on the terminal, the tables and the report on disk."""
    from typer.testing import CliRunner

    from echoless.pipeline.commands import app

    sound = write_logs(tmp_path / "sound", {("orders", 0): sound_log("sound")})
    damage = damaged_log("command")
    damaged = write_logs(tmp_path / "damaged", {("orders", 0): damage.log})
    report = tmp_path / "report.html"

    result = CliRunner().invoke(app, ["audit", str(sound), "--report", str(report)])
    assert result.exit_code == 0, result.output
    assert "no problems" in result.output
    assert "no problems" in report.read_text()

    tables = tmp_path / "tables"
    arguments = ["audit", str(damaged), "--report", str(report), "--output", str(tables)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert f"{len(damage.expected)} problems" in result.output
    text = report.read_text()
    for kind, producer_id, _, _ in damage.expected:
        assert kind.replace("_", " ") in text
        assert f"producer {producer_id} on orders-0" in text
    assert "<script" not in text
    assert spark.read.parquet(str(tables / "batches.parquet")).count() == len(damage.log)

    assert CliRunner().invoke(app, arguments).exit_code == 2, "the tables are not overwritten"


def test_a_running_broker_is_audited(spark, echoless, tmp_path):
    """Nothing is wrong with what an idempotent producer wrote; its metrics go into the report."""
    from typer.testing import CliRunner

    from echoless.pipeline.commands import app
    from tests.pipeline.batches.test_cluster_scan import produce

    produce(echoless.kafka_address, "live")
    arguments = ["audit", "--bootstrap-server", echoless.kafka_address, "--topic", "live"]
    arguments += ["--admin-server", echoless.admin_address, "--report", str(tmp_path / "r.html")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert ", 400 records," in result.output
    assert "0 batches came again" in (tmp_path / "r.html").read_text()


@pytest.mark.kafka
def test_apache_kafkas_files_are_audited(spark, apache_kafka, tmp_path):
    """While it runs: its producers' topic, and the logs that it keeps for itself."""
    from tests.pipeline.batches.test_cluster_scan import produce

    produce(apache_kafka.address, "audited")
    tables = tmp_path / "tables"
    assert findings_of(spark, [apache_kafka.data_dir], tables, includeInternal="true") == []
    counted = spark.read.parquet(str(tables / "partitions.parquet")).groupBy("topic").sum("records")
    records = {row[0]: row[1] for row in counted.collect()}
    assert records["audited"] == 400
    assert records["__cluster_metadata"] > 0


def test_a_topic_that_no_directory_has_is_not_sound(tmp_path):
    """Its name is wrong: nothing would be read, so nothing would be proven."""
    from typer.testing import CliRunner

    from echoless.pipeline.commands import app

    write_logs(tmp_path, {("orders", 0): []})
    result = CliRunner().invoke(app, ["audit", str(tmp_path), "--topic", "ordrs"])
    assert result.exit_code == 2
    assert "ordrs" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["{empty}"],
        ["{empty}", "--bootstrap-server", "127.0.0.1:1"],
        ["--bootstrap-server", "127.0.0.1:1", "--admin-server", "127.0.0.1:1"],
    ],
)
def test_wrong_usage_is_told_before_spark_starts(tmp_path, arguments):
    """Exit code 2 and what is wrong."""
    from typer.testing import CliRunner

    from echoless.pipeline.commands import app

    given = [text.format(empty=tmp_path) for text in arguments]
    assert CliRunner().invoke(app, ["audit", *given]).exit_code == 2
