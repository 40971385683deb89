"""The exactly-once sink: Spark's rows, stored once however often a batch runs; `docs/sink.md`."""

from echoless.pipeline.exactly_once.data_source import ExactlyOnceDataSource, register
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink

__all__ = ["ExactlyOnceDataSource", "ExactlyOnceSink", "register"]
