"""The tables that tasks write: whole files only, each part once, and the rows that a scan has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import InputPartition

from echoless.pipeline.audit.extents import extents_of_batches
from echoless.pipeline.audit.runs import runs_of_batches
from echoless.pipeline.audit.scan_tables import TABLES, NoDirectoryError, table_path, write_part
from echoless.pipeline.batches.batch_source import DirectoryReader
from tests.pipeline.audit.without_spark import read_batches
from tests.pipeline.seeded_logs import sound_log
from tests.pipeline.written_logs import write_logs


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return write_logs(tmp_path / "data", {("orders", 0): sound_log("tables", batches=40)})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in TABLES:
        table_path(tmp_path, name).mkdir()
    return tmp_path


def whole(data_dir: Path) -> tuple[DirectoryReader, InputPartition]:
    """A reader, and the one task that it plans."""
    reader = DirectoryReader([str(data_dir)], topic=None, split_bytes=1 << 30)
    (part,) = reader.partitions()
    return reader, part


def files_of(directory: Path) -> dict[str, list[str]]:
    return {name: [p.name for p in table_path(directory, name).iterdir()] for name in TABLES}


def test_a_part_that_is_written_twice_counts_once(data_dir: Path, directory: Path) -> None:
    """A task that runs again, or beside itself, ends with the same files and rows."""
    reader, part = whole(data_dir)
    for _ in range(2):
        write_part(reader, directory, (0, part))
    assert files_of(directory) == {name: ["part-00000.parquet"] for name in TABLES}
    tables = {name: pq.read_table(table_path(directory, name)).to_pylist() for name in TABLES}
    (joined,) = pa.Table.from_batches(read_batches(data_dir)).combine_chunks().to_batches()
    own = {"replica": str(data_dir)}
    for name, batches in (
        ("batches", [joined]),
        ("runs", runs_of_batches([joined])),
        ("extents", extents_of_batches([joined])),
    ):
        assert tables[name] == [row | own for batch in batches for row in batch.to_pylist()], name
    assert all(tables.pop(name) for name in ("batches", "runs", "extents"))
    assert tables == {"transaction_parts": []}, "nobody wrote in transactions"


def test_a_task_that_fails_leaves_no_file(data_dir: Path, directory: Path) -> None:
    """Neither a whole file nor a part of one, whatever was written before."""

    class Failing(DirectoryReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield from super().read(partition)
            raise OSError("the disk")

    _, part = whole(data_dir)
    reader = Failing([str(data_dir)], topic=None, split_bytes=1 << 30)
    with pytest.raises(OSError, match="the disk"):
        write_part(reader, directory, (0, part))
    assert files_of(directory) == {name: [] for name in TABLES}


def test_a_worker_that_does_not_see_the_directory_says_so(data_dir: Path, tmp_path: Path) -> None:
    """Tables on one machine of several would be found incomplete."""
    reader, part = whole(data_dir)
    with pytest.raises(NoDirectoryError, match="--output"):
        write_part(reader, tmp_path / "elsewhere", (0, part))
