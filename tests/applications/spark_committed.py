"""Spark's driver in a process of its own, which reads a topic as a batch and as a stream: bootstrap address, topic, directory.

Prints the values that each has read as one line of JSON. The stream takes a few offsets at a time, so that batches end before,
between and behind markers.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame

from echoless.pipeline.streaming.session import open_kafka_session

_OFFSETS_AT_ONCE = 10
_SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(bootstrap: str, topic: str, directory: str) -> None:
    spark = open_kafka_session("committed", master="local[2]", settings=_SMALL)
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    batch = _values(spark.read.format("kafka").options(**source).load())
    streamed: list[str] = []
    query = (
        spark.readStream.format("kafka")
        .options(**source, maxOffsetsPerTrigger=str(_OFFSETS_AT_ONCE))
        .load()
        .writeStream.foreachBatch(lambda frame, _: streamed.extend(_values(frame)))
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"batch": batch, "stream": streamed}))


def _values(frame: DataFrame) -> list[str]:
    return [row.value for row in frame.selectExpr("cast(value as string) as value").collect()]


if __name__ == "__main__":
    main(*sys.argv[1:])
