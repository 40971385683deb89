"""The Spark data source `echoless-batches`: the batch headers of data directories or of a cluster.

    spark.dataSource.register(BatchSource)
    spark.read.format("echoless-batches").load("/var/lib/echoless")

| option | meaning |
|---|---|
| `path`, `paths` | data directories; of a replicated cluster, one for each broker |
| `kafka.bootstrap.servers` | a running cluster instead |
| `kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*` | how to be let in there |
| `topic` | only this topic |
| `includeInternal` | `true`: internal topics, too, which are left out otherwise, unless `topic` names one |
| `splitBytes` | about how much one task reads, 64 MiB by default |

One row for each batch, with the columns of `batch_columns.py`. A task reads one range of a segment, or several small
ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from echoless.client.security import Security
from echoless.pipeline.batches.batch_columns import DDL
from echoless.pipeline.batches.cluster_scan import plan_tasks, read_range
from echoless.pipeline.batches.data_directory import (
    find_partitions,
    find_segment_ranges,
    is_read,
)
from echoless.pipeline.batches.segment_scan import SegmentRange, SegmentScan
from echoless.pipeline.security import security_in

FORMAT: Final = "echoless-batches"
_SPLIT_BYTES_DEFAULT: Final = 64 * 1024 * 1024
_OPENING_BYTES: Final = 64 * 1024
"""Cost of opening a file, in bytes that could be read instead."""


class BatchSource(DataSource):
    """The data source `echoless-batches`: batch headers as a table (`docs/audit.md`).

    Register it by `spark.dataSource.register(BatchSource)`.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        servers, topic = self.options.get("kafka.bootstrap.servers"), self.options.get("topic")
        with_internal = self.options.get("includeInternal", "false").lower() == "true"
        if servers is not None:
            security = security_in(self.options)
            return ClusterReader(servers, topic, security=security, with_internal=with_internal)
        return DirectoryReader(
            _paths(self.options),
            topic=topic,
            split_bytes=int(self.options.get("splitBytes", _SPLIT_BYTES_DEFAULT)),
            with_internal=with_internal,
        )


def _paths(options: Mapping[str, str]) -> list[str]:
    paths = json.loads(options["paths"]) if "paths" in options else []
    return [*paths, *([options["path"]] if "path" in options else [])]


class DirectoryReader(DataSourceReader):
    """Reader of data directories: planned on the driver, read by the tasks."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        topic: str | None,
        split_bytes: int,
        with_internal: bool = False,
    ) -> None:
        self._paths = paths
        self._topic = topic
        self._with_internal = with_internal
        self._split_bytes = split_bytes

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(segment_ranges) for segment_ranges in self._tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for segment_range in partition.value:
            assert isinstance(segment_range, SegmentRange)
            # Retention may have taken a log's first segments since the plan; if anything else is
            # gone, its offsets are reported missing.
            with suppress(FileNotFoundError), SegmentScan(segment_range) as scan:
                yield from scan.rows()

    def _tasks(self) -> Iterator[list[SegmentRange]]:
        """Groups neighbouring ranges until a task has enough to read."""
        task: list[SegmentRange] = []
        size = 0
        for segment_range in self._segment_ranges():
            if task and size + segment_range.bytes_planned > self._split_bytes:
                yield task
                task, size = [], 0
            task.append(segment_range)
            size += segment_range.bytes_planned + _OPENING_BYTES
        if task:
            yield task

    def _segment_ranges(self) -> Iterator[SegmentRange]:
        for path in self._paths:
            for part in find_partitions(Path(path)):
                if is_read(part.topic, self._topic, with_internal=self._with_internal):
                    yield from find_segment_ranges(path, part, self._split_bytes)


class ClusterReader(DataSourceReader):
    """Reader of a running cluster's logs, up to the high watermark."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | None,
        *,
        security: Security,
        with_internal: bool = False,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._topic = topic
        self._with_internal = with_internal

    def partitions(self) -> Sequence[InputPartition]:
        # Spark accepts no plan without a task: an empty cluster gets one that reads nothing.
        tasks = plan_tasks(
            self._bootstrap_servers,
            self._topic,
            self._security,
            with_internal=self._with_internal,
        )
        return [InputPartition(ranges) for ranges in tasks] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for wanted in partition.value:
            yield from read_range(wanted)
