"""A stream from one topic to another by reader and sink, in a separate process: `python -m tests.pipeline.reading.copying ...`.

It ends when everything is copied. Killed at any time and started again, it does the rest.
"""

from __future__ import annotations

import argparse

from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.session import open_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("checkpoint")
    parser.add_argument("--batch-records", default="1000")
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    spark = open_session("copying", master=arguments.master)
    register(spark)
    servers = {"kafka.bootstrap.servers": arguments.address}
    stream = spark.readStream.format("echoless").options(
        subscribe=arguments.source,
        startingOffsets="earliest",
        includeHeaders="true",
        maxOffsetsPerTrigger=arguments.batch_records,
        **{"kafka.isolation.level": "read_committed", **servers},
    )
    rows = stream.load().select("key", "value", "headers", "timestamp", "partition")
    writer = rows.writeStream.format("echoless").options(topic=arguments.target, **servers)
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
