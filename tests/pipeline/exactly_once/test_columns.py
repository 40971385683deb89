"""A frame that cannot be written is refused before anything runs."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from echoless.pipeline.exactly_once.columns import check_columns
from echoless.pipeline.exactly_once.data_source import ExactlyOnceDataSource
from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.options import read_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


TEXT = StringType()
BYTES = BinaryType()
HEADERS = ArrayType(StructType().add("key", TEXT).add("value", BYTES))


def check(columns: dict[str, DataType], **options: str) -> None:
    given = read_options({**SERVERS, **options}, name="orders", ledger="/ledger")
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    check_columns(schema, given)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": TEXT},
        {"Key": BYTES, "VALUE": BYTES, "partition": IntegerType(), "more": DoubleType()},
        {"value": TEXT, "headers": HEADERS, "timestamp": LongType()},
        {"value": TEXT, "timestamp": TimestampType()},
    ],
)
def test_what_sparks_own_sink_takes_is_taken(columns):
    """It takes a timestamp besides."""
    check(columns, topic="t")


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"key": TEXT}, {"topic": "t"}, "need a column value"),
        ({"value": TEXT}, {}, "need a column topic, or the sink the option topic"),
        ({"value": LongType()}, {"topic": "t"}, "value is bigint, and has to be string or binary"),
        ({"value": TEXT, "headers": ArrayType(TEXT)}, {"topic": "t"}, "headers is array<string>"),
        ({"value": TEXT}, {"topic": "t", "sortWithinPartitions": "at"}, "there is no column at"),
    ],
)
def test_what_cannot_be_written_is_named(columns, options, reason):
    """The error says what it has to be."""
    with pytest.raises(OptionError, match=reason):
        check(columns, **options)


def test_a_topic_is_not_overwritten():
    """Spark's modes overwrite and error have no meaning for a topic."""
    with pytest.raises(OptionError, match=r'mode\("append"\)'):
        ExactlyOnceDataSource(SERVERS).writer(StructType(), overwrite=True)
