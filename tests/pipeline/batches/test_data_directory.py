"""The names and files of a data directory, as `storage` and Apache Kafka write them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from echoless.pipeline.batches import data_directory
from echoless.pipeline.batches.data_directory import (
    NotADataDirectoryError,
    find_partitions,
    find_segment_ranges,
    read_offsets,
)
from echoless.storage import paths
from tests.pipeline.written_logs import Sent, write_logs

LOG = [Sent(7, 0, number, 1) for number in range(40)]


def test_names_are_those_that_storage_writes(tmp_path: Path):
    """The rooms do not know each other, so a test compares what both take for granted."""
    assert data_directory.HIGH_WATERMARK_CHECKPOINT == paths.HIGH_WATERMARK_CHECKPOINT
    assert data_directory.RECOVERY_POINT_CHECKPOINT == paths.RECOVERY_POINT_CHECKPOINT
    assert paths.CLEAN_SHUTDOWN in data_directory.CLEAN_SHUTDOWN
    logs = {("a.b_c-d", 0): LOG, ("a.b_c-d", 12): LOG, ("plain", 3): LOG}
    write_logs(tmp_path, logs)
    deleted = tmp_path / paths.name_of(paths.deleted_directory("", "gone", 0, "0" * 32))
    deleted.mkdir()
    found = find_partitions(tmp_path)
    assert [(part.topic, part.partition) for part in found] == sorted(logs)


def test_a_partition_directory_is_taken_alone(tmp_path: Path):
    """It can be given as to `echoless dump`."""
    write_logs(tmp_path, {("orders", 0): LOG, ("orders", 1): LOG})
    (part,) = find_partitions(tmp_path / "orders-1")
    assert (part.topic, part.partition) == ("orders", 1)


@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_what_is_no_data_directory_is_refused(tmp_path: Path, name: str):
    """The error has the path, and what is expected there."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(NotADataDirectoryError, match=name):
        find_partitions(tmp_path / name)


def test_checkpoints_are_read(tmp_path: Path):
    """High watermarks as the broker wrote them; a broken file says nothing."""
    write_logs(
        tmp_path, {("orders", 0): LOG, ("orders", 1): []}, high_watermarks={("orders", 0): 9}
    )
    name = data_directory.HIGH_WATERMARK_CHECKPOINT
    assert read_offsets(tmp_path, name) == {("orders", 0): 9, ("orders", 1): 0}
    (tmp_path / name).write_text("0\n1\norders zero 9\n")
    assert read_offsets(tmp_path, name) == {}
    assert read_offsets(tmp_path, "no-such-file") == {}


def test_an_index_padded_with_zeros_is_read(tmp_path: Path):
    """Kafka writes the active segment's index ahead of need."""
    write_logs(tmp_path, {("orders", 0): LOG})
    (part,) = find_partitions(tmp_path)
    pieces = len(find_segment_ranges("r", part, 1))
    for index in (tmp_path / "orders-0").glob("*.index"):
        index.write_bytes(index.read_bytes() + struct.pack(">ii", 0, 0) * 100 + b"\0\0\0")
    assert len(find_segment_ranges("r", part, 1)) == pieces > 1
