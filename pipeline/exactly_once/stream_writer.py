"""The base of a stream's writer that takes Arrow batches, in each Spark from 4.0 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """In Spark 4.0, which gives Arrow batches to any writer that is one of a job with Arrow, also in a stream."""


__all__ = ["StreamArrowWriter"]
