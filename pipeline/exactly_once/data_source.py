"""Spark's data source `echoless`: the sink, on Arrow batches (`writers.py`), and the reader (`pipeline/reading`).

    register(spark)
    frame.writeStream.format("echoless").options(**options).start()
    frame.write.format("echoless").options(**options).mode("append").save()
    spark.read.format("echoless").options(**options).load()

The two Python processes in which Spark plans a read load this file, and nothing of the sink, which takes 0.14 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from echoless.pipeline.exactly_once.default_places import DefaultPlaces, default_places
from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.frozen_imports import freeze_imports
from echoless.pipeline.reading.batch_reader import TopicReader
from echoless.pipeline.reading.columns import check_schema, ddl_of
from echoless.pipeline.reading.options import read_reader_options, schema_options
from echoless.pipeline.reading.stream_reader import TopicStreamReader
from echoless.pipeline.security import hide_keys

if TYPE_CHECKING:
    from echoless.pipeline.exactly_once.writers import ExactlyOnceJobWriter, ExactlyOnceStreamWriter

FORMAT: Final = "echoless"


class ExactlyOnceDataSource(DataSource):
    """Spark's data source `echoless`. The options are in `docs/sink.md` and `docs/reader.md`."""

    places = DefaultPlaces()
    """Default places of the session that it is registered with."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl_of(schema_options(self.options))

    def reader(self, schema: StructType) -> TopicReader:
        check_schema(schema.simpleString(), schema_options(self.options))
        return TopicReader(read_reader_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802  Spark's name
        check_schema(schema.simpleString(), schema_options(self.options))
        return TopicStreamReader(read_reader_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> ExactlyOnceJobWriter:
        from echoless.pipeline.exactly_once.writers import job_writer  # noqa: PLC0415  a door

        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        return job_writer(self.options, schema, self.places)

    def streamWriter(  # noqa: N802  Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002  Spark checks the output mode itself
    ) -> ExactlyOnceStreamWriter:
        from echoless.pipeline.exactly_once.writers import stream_writer  # noqa: PLC0415  a door

        writer = stream_writer(self.options, schema, self.places)
        freeze_imports("streamWriter")
        return writer


def register(spark: SparkSession) -> None:
    """Registers the sink and the reader as `format("echoless")` with the session (`docs/sink.md`, `docs/reader.md`).

    The session hides options that are keys in its plans from then on, beside what it hides already.
    """
    hide_keys(spark)
    spark.dataSource.register(_with_places(default_places(spark)))


def _with_places(places: DefaultPlaces) -> type[ExactlyOnceDataSource]:
    """Returns the data source for a session with such places; Spark pickles it with them."""
    return type(ExactlyOnceDataSource.__name__, (ExactlyOnceDataSource,), {"places": places})
