"""Every damage of a log is found, and nothing else; without Spark, which `test_audit.py` adds."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from echoless.pipeline.audit.findings import Finding
from tests.pipeline.audit.without_spark import judge_logs, judge_producers, read_batches
from tests.pipeline.seeded_logs import Expected, damaged_log, sound_log
from tests.pipeline.written_logs import write_logs

pytestmark = pytest.mark.slow


def as_expected(finding: Finding) -> Expected:
    return Expected(finding.kind, finding.producer_id, finding.base_sequence, finding.records)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_in_a_sound_log(tmp_path: Path, seed: int):
    """A broker's own log has no findings, however it is divided into tasks."""
    write_logs(tmp_path, {("orders", 0): sound_log(f"sound {seed}")})
    for split_bytes in (1, 1000, 1 << 30):
        batches = read_batches(tmp_path, split_bytes)
        assert list(judge_producers(batches)) == []
        assert list(judge_logs(batches)) == []


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_however_the_pieces_are_read(tmp_path: Path, seed: int):
    """Spark hands out the pieces of a table by size, and several of them in one batch of rows."""
    write_logs(tmp_path, {("orders", 0): sound_log(f"sound {seed}")})
    pieces = read_batches(tmp_path, 1)
    random.Random(seed).shuffle(pieces)
    together = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    assert list(judge_producers(together)) == []
    assert list(judge_logs(together)) == []


@pytest.mark.parametrize("seed", range(20))
def test_each_damage_is_found_and_nothing_else(tmp_path: Path, seed: int):
    """A repeat, a gap, a reordering and an old epoch, each with its producer and sequences."""
    damage = damaged_log(f"damage {seed}")
    write_logs(tmp_path, {("orders", 0): damage.log})
    for split_bytes in (1, 1000, 1 << 30):
        batches = read_batches(tmp_path, split_bytes)
        found = sorted(map(as_expected, judge_producers(batches)))
        assert found == sorted(damage.expected)
        assert list(judge_logs(batches)) == []
