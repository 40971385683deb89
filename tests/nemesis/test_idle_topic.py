"""Idle partitions hold one record each, on every replica, and the judge names those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nemesis.idle_topic import TOPIC, IdleTopic
from tests.support.raw_batches import plain_batch


@pytest.fixture
def replicas(tmp_path: Path) -> dict[int, Path]:
    """Three replicas of two partitions, as they should be."""
    found = {broker_id: tmp_path / str(broker_id) for broker_id in (1, 2, 3)}
    for directory in found.values():
        for partition in (0, 1):
            log_of(directory, partition).parent.mkdir(parents=True)
            log_of(directory, partition).write_bytes(plain_batch([b"%d" % partition]).encode())
    return found


def log_of(directory: Path, partition: int) -> Path:
    return directory / f"{TOPIC}-{partition}" / f"{0:020d}.log"


def test_a_record_in_each_is_right(replicas: dict[int, Path]) -> None:
    assert IdleTopic(2).problems(replicas) == []


def test_a_replica_without_it_is_named(replicas: dict[int, Path]) -> None:
    log_of(replicas[2], 1).write_bytes(b"")
    assert [text.split(":")[0] for text in IdleTopic(2).problems(replicas)] == [
        f"{TOPIC}-1",
        f"{TOPIC}-1 on broker 2",
    ]


def test_a_record_that_is_stored_twice_is_named(replicas: dict[int, Path]) -> None:
    """On all of them, so that they do not differ."""
    for directory in replicas.values():
        log = log_of(directory, 0)
        log.write_bytes(log.read_bytes() + plain_batch([b"0"]).encode())
    assert len(IdleTopic(2).problems(replicas)) == 3
