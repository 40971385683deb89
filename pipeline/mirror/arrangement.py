"""Arrangement of records in Spark partitions that is the same in every attempt at a batch.

Spark's Kafka source gives each source partition a task, but numbers the tasks in an order that may change when the
batch is rerun, and the sink's promise holds per Spark partition. So records are moved to the Spark partition that the
batch's own offsets give them, and sorted again. A topic without new records gets none.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from echoless.pipeline.mirror.offsets import Offsets


def arrange(frame: DataFrame, offsets: Offsets) -> DataFrame:
    """Arranges the rows of a batch: each source partition is one Spark partition, sorted by offset.

    `offsets`: of the topics that have records in the batch (`advanced`).
    """
    first, count = _spark_partitions(offsets)
    if count <= 1:  # the source's only task has them in order
        return frame
    spark_partition = _first_of_topic(first) + f.col("partition")
    rows = frame.repartitionById(count, spark_partition.cast("int"))
    return rows.sortWithinPartitions("offset")


def _spark_partitions(offsets: Offsets) -> tuple[dict[str, int], int]:
    """Returns the Spark partition of each topic's partition 0, and the number of Spark partitions."""
    first: dict[str, int] = {}
    count = 0
    for topic in sorted(offsets):
        first[topic] = count
        count += max(offsets[topic]) + 1
    return first, count


def _first_of_topic(first: dict[str, int]) -> Column:
    if len(first) == 1:
        return f.lit(0)
    pairs = [f.lit(part) for item in first.items() for part in item]
    return f.create_map(*pairs)[f.col("topic")]
