"""`echoless verify` and `echoless dump` of a log that was compacted."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.protocol.record_batch import Codec
from echoless.storage import paths
from echoless.storage.compaction.plan import CompactionRules
from echoless.storage.log_config import LogConfig
from tests.cli.command import Command
from tests.cli.data_directory import file_of, now_ms, open_log_directory
from tests.storage.compaction import keyed_log
from tests.storage.compaction.keyed_log import keyed_batch

CONFIG = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=50,
    is_compacted=True,
    compaction_rules=CompactionRules(min_dirty_ratio=0.0, delete_retention_ms=60_000),
)


def compacted(path: Path, seed: int, passes: int = 2) -> Path:
    """A directory whose log three producers wrote, and that was cleaned in between."""
    rng, sequences = random.Random(seed), [0, 0, 0]
    with open_log_directory(path, CONFIG) as directory:
        log = directory.logs["orders", 0]
        for _ in range(passes):
            for _ in range(40):
                producer_id = rng.randrange(3)
                pairs = [
                    (b"%d" % rng.randrange(12), None if rng.random() < 0.1 else rng.randbytes(9))
                    for _ in range(rng.randrange(1, 5))
                ]
                batch = keyed_batch(
                    pairs,
                    producer_id=producer_id,
                    sequence=sequences[producer_id],
                    timestamp=now_ms(),
                    codec=rng.choice([Codec.NONE, Codec.LZ4]),
                )
                keyed_log.append(log, batch, now_ms())
                sequences[producer_id] += len(pairs)
            log.roll()
            log.flush()
            directory.checkpoint({("orders", 0): log.log_end_offset})
            assert keyed_log.clean(log, now_ms=now_ms(), steady_ms=now_ms())
    return path / "orders-0"


@pytest.mark.parametrize("seed", range(4))
def test_a_compacted_log_has_no_problem(tmp_path: Path, echoless: Command, seed: int) -> None:
    """Holes, sparse and empty batches, merged segments and rewritten CRCs are as they should be."""
    compacted(tmp_path, seed)
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert any("compaction removed them" in str(note) for note in ran.json["notes"])


def test_a_first_pass_that_only_thins_batches_out_has_no_problem(
    tmp_path: Path, echoless: Command
) -> None:
    """Without a hole between batches every snapshot is still compared, but for what was rewritten."""
    with open_log_directory(tmp_path, replace(CONFIG, segment_bytes=300)) as directory:
        log = directory.logs["orders", 0]
        for number in range(4):
            batch = keyed_batch(
                [(b"same", b"v"), (b"%d" % number, b"v")],
                producer_id=1,
                sequence=2 * number,
                timestamp=now_ms(),
            )
            keyed_log.append(log, batch, now_ms())
        log.roll()
        log.flush()
        directory.checkpoint({("orders", 0): log.log_end_offset})
        assert keyed_log.clean(log, now_ms=now_ms(), steady_ms=now_ms())
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    (note,) = ran.json["notes"]
    assert "lacks 3 records in 3 batches" in note


def test_a_swap_that_a_crash_cut_short_is_noted(tmp_path: Path, echoless: Command) -> None:
    """The next start finishes it; until then the old segments promise nothing."""
    directory = compacted(tmp_path, 5)
    segment = file_of(directory, 0, paths.LOG)
    segment.rename(segment.with_suffix(".log.swap"))
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert any("in place of others" in str(note) for note in ran.json["notes"])


def test_dump_shows_batches_that_lost_their_records(tmp_path: Path, echoless: Command) -> None:
    """Empty and sparse batches, and the bit of a delete horizon."""
    directory = compacted(tmp_path, 6)
    for segment in sorted(directory.glob("*.log")):
        assert echoless("dump", segment, "--records").code == 0
