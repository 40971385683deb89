"""One mirror as a Spark stream: its source, and the preparation of a batch for the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from echoless.client.security import NO_SECURITY, Security
from echoless.pipeline.mirror.arrangement import arrange
from echoless.pipeline.mirror.clusters import with_exclusion
from echoless.pipeline.mirror.offsets import Offsets, advanced, read_batch_offsets
from echoless.pipeline.security import spark_options

BATCH_RECORDS_DEFAULT: Final = 500_000
_FETCH_WAIT_MS: Final = 5


@dataclass(slots=True, frozen=True, kw_only=True)
class MirrorPlan:
    """Parameters of a mirror."""

    source: str
    """Bootstrap servers of the source."""
    topics: tuple[str, ...]
    pattern: str | None = None
    """A Java regular expression instead of topics; topics that match later are mirrored, too."""
    prefix: str = ""
    """Text before the topics' names in the target."""
    checkpoint: str
    """Directory of the progress: a path or URI that Spark accepts."""
    batch_records: int = BATCH_RECORDS_DEFAULT
    starting_offsets: str = "earliest"
    fails_on_data_loss: bool = True
    exclude: str | None = None
    """A regular expression: topics whose whole name matches are left out of those that match `pattern`."""
    once: bool = False
    interval_s: float = 1.0
    source_options: Mapping[str, str] = field(default_factory=dict)
    source_security: Security = NO_SECURITY

    def needed(self, offsets: Offsets) -> dict[str, int]:
        """Returns the number of partitions that each topic of the target must have."""
        return {self.prefix + topic: max(parts) + 1 for topic, parts in offsets.items()}


def read_source(session: SparkSession, plan: MirrorPlan) -> DataFrame:
    """Opens the stream of all topics' records."""
    topics = (
        {"subscribePattern": with_exclusion(plan.pattern, plan.exclude)}
        if plan.pattern is not None
        else {"subscribe": ",".join(plan.topics)}
    )
    options = {
        "kafka.bootstrap.servers": plan.source,
        "startingOffsets": plan.starting_offsets,
        "includeHeaders": "true",
        "failOnDataLoss": str(plan.fails_on_data_loss).lower(),
        "maxOffsetsPerTrigger": str(plan.batch_records),
        # Records of aborted transactions are left out.
        "kafka.isolation.level": "read_committed",
        # All records of a batch are there. A task's next request waits behind a fetch beyond its last one: half a second.
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
        **topics,
        **plan.source_options,
        **(spark_options(plan.source_security) if plan.source_security != NO_SECURITY else {}),
    }
    return session.readStream.format("kafka").options(**options).load()


def write_stream(frame: DataFrame, plan: MirrorPlan) -> DataStreamWriter:
    """Configures the stream's writer, but for the sink."""
    writer = frame.writeStream.option("checkpointLocation", plan.checkpoint)
    if plan.once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(plan.interval_s * 1000)} milliseconds")


class Preparation:
    """Prepares the rows of a batch for the sink: arranged, and with the target's topics."""

    def __init__(self, plan: MirrorPlan, ensure: Callable[[Mapping[str, int]], None]) -> None:
        """`ensure` creates or extends the target's topics."""
        self._plan = plan
        self._ensure = ensure

        self._reached: tuple[int, Offsets] = (-1, {})

    def __call__(self, frame: DataFrame, batch_id: int) -> DataFrame:
        session, checkpoint = frame.sparkSession, self._plan.checkpoint
        last, before = self._reached
        if last != batch_id - 1:
            before = read_batch_offsets(session, checkpoint, batch_id - 1) if batch_id else {}
        offsets = read_batch_offsets(session, checkpoint, batch_id)
        self._ensure(self._plan.needed(offsets))
        self._reached = batch_id, offsets
        rows = arrange(frame, advanced(offsets, before))
        topic = f.concat(f.lit(self._plan.prefix), "topic") if self._plan.prefix else f.col("topic")
        return rows.select(
            "key", "value", topic.alias("topic"), "partition", "headers", "timestamp"
        )

    @property
    def topics(self) -> list[str]:
        """Topics of the source that the last batch knew."""
        return list(self._reached[1])

    @property
    def reached(self) -> Offsets:
        """Ends of the last batch in the source, of all topics."""
        return self._reached[1]
