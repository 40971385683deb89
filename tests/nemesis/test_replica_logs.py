"""Replicas are compared byte by byte, however they are divided into segments."""

from __future__ import annotations

from pathlib import Path

from tests.nemesis.replica_logs import first_difference, read_batches, read_numbers
from tests.support.raw_batches import plain_batch


def _batch(offset: int, values: list[bytes], epoch: int = 0) -> bytes:
    batch = plain_batch(values)
    batch.base_offset, batch.partition_leader_epoch = offset, epoch
    return batch.encode()


def _write(directory: Path, segments: dict[int, bytes]) -> Path:
    log = directory / "t-0"
    log.mkdir(parents=True)
    for offset, content in segments.items():
        (log / f"{offset:020d}.log").write_bytes(content)
    return directory


FIRST, SECOND = _batch(0, [b"a", b"b"]), _batch(2, [b"c"])


def test_replicas_may_have_rolled_at_different_offsets(tmp_path: Path) -> None:
    """One segment or two: the batches are the same."""
    one = _write(tmp_path / "one", {0: FIRST + SECOND})
    two = _write(tmp_path / "two", {0: FIRST, 2: SECOND})
    assert first_difference({1: one, 2: two}, "t", 0) is None


def test_a_replica_that_ends_early_differs(tmp_path: Path) -> None:
    """All replicas are in sync when they are compared, so a shorter one has lost something."""
    one = _write(tmp_path / "one", {0: FIRST + SECOND})
    two = _write(tmp_path / "two", {0: FIRST})
    difference = first_difference({1: one, 2: two}, "t", 0)
    assert difference is not None
    assert "broker 2: ends" in difference


def test_the_leader_epoch_is_compared_too(tmp_path: Path) -> None:
    """The same records under another epoch are another history."""
    one = _write(tmp_path / "one", {0: FIRST + SECOND})
    two = _write(tmp_path / "two", {0: FIRST + _batch(2, [b"c"], epoch=1)})
    difference = first_difference({1: one, 2: two}, "t", 0)
    assert difference is not None
    assert "epoch 1 at 2" in difference


def test_gaps_and_wrong_checksums_are_told(tmp_path: Path) -> None:
    """A log has every offset, and every batch its checksum."""
    damaged = bytearray(_batch(3, [b"d"]))
    damaged[-2] ^= 1
    directory = _write(tmp_path, {0: FIRST + bytes(damaged)})
    numbers, problems = read_numbers(read_batches(directory, "t", 0))
    assert len(numbers) == 3
    assert problems == ["wrong checksum at 3", "offset 3 instead of 2"]
