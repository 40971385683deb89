"""The whole audit on Spark: damaged logs and replicas in one run, each finding accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.audit.findings import Finding, Kind, Severity
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


def findings_of(spark: SparkSession, directories: list[Path], output: Path) -> list[Finding]:
    import json

    from pipeline.audit.audit import audit, shown
    from pipeline.audit.promises import read_promises

    paths = [str(directory) for directory in directories]
    source = {"paths": json.dumps(paths), "splitBytes": "2000"}
    tables = audit(spark, source, output, promises=read_promises(paths))
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
        Kind.CRC,
        f"flipped-0/{segment.name}",
        0,
    )
    (diverging,) = [f for f in found if f.topic == "sound"]
    assert diverging.kind == Kind.DIVERGENCE
    assert diverging.base_offset == sum(sent.count for sent in sound[:60])
    assert {f.topic for f in found} == {*damages, "flipped", "sound"}
