"""The exactly-once sink: rows of Spark, stored once, whatever is run again; `docs/sink.md`."""

from pipeline.exactly_once.data_source import ExactlyOnceDataSource, register
from pipeline.exactly_once.sink import ExactlyOnceSink

__all__ = ["ExactlyOnceDataSource", "ExactlyOnceSink", "register"]
