"""The driver's part of a stream, without Spark: how far micro-batches go, and what is noticed in between."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from echoless.client.connection import BrokerConnection
from echoless.pipeline.reading import (
    partition_log,
    source_topics,
    spark_admission,
)
from echoless.pipeline.reading.errors import DataLossError, ReadError, ReadOptionError
from echoless.pipeline.reading.options import read_reader_options
from echoless.pipeline.reading.stream_reader import TopicStreamReader
from echoless.pipeline.reading.topic_metadata import read_topics
from tests.pipeline.reading.written import BASE_MS, TOPIC, write

Offset = dict[str, Any]


class Stream:
    """Plays Spark: passes offsets through JSON, and notes what tasks read."""

    def __init__(self, address: str, **options: str) -> None:
        options = {"subscribe": TOPIC, "startingOffsets": "earliest"} | options
        options = {name.replace("__", "."): text for name, text in options.items() if text}
        self.options = read_reader_options(
            {"kafka.bootstrap.servers": address, "fetchOffset.retryIntervalMs": "1", **options},
            is_stream=True,
        )
        self.restart()
        self.at: Offset = self._through_json(self.reader.initialOffset())

    def restart(self) -> None:
        """Another driver goes on from the checkpoint."""
        self.reader = TopicStreamReader(self.options)

    def next_end(self) -> Offset:
        """The end of the next micro-batch."""
        limit = self.reader.getDefaultReadLimit()
        return self._through_json(self.reader.latestOffset(self.at, limit))

    def batch(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of each row of the next micro-batch."""
        end = self.next_end()
        rows = self.rows(self.at, end)
        self.at = end
        return rows

    def rows(self, start: Offset, end: Offset) -> list[tuple[str, int, int]]:
        """The rows of a micro-batch between two offsets, read by another reader, as in tasks."""
        parts = self.reader.partitions(start, end)
        tasks = TopicStreamReader(self.options)
        return [
            (row["topic"], row["partition"], row["offset"])
            for part in parts
            for batch in tasks.read(part)
            for row in batch.to_pylist()
        ]

    @staticmethod
    def _through_json(offset: Offset) -> Offset:
        found: Offset = json.loads(json.dumps(offset))
        return found


def row(offset: int, partition: int = 0, topic: str = TOPIC) -> tuple[str, int, int]:
    return topic, partition, offset


def rows(partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [row(offset, partition) for offset in range(start, end)]


def test_batches_follow_each_other_without_a_hole(broker):
    """Limited by maxOffsetsPerTrigger; the end is the start of the next; a restart changes nothing."""
    broker.create(TOPIC, 2)
    write(broker.address, 0, 30)
    write(broker.address, 1, 10)
    stream = Stream(broker.address, maxOffsetsPerTrigger="20")
    assert stream.batch() == rows(0, 0, 15) + rows(1, 0, 5)
    before, stream_at = stream.at, stream.next_end()
    stream.restart()
    assert stream.next_end() == stream_at
    assert stream.batch() == rows(0, 15, 30) + rows(1, 5, 10)
    assert stream.rows(before, stream.at) == rows(0, 15, 30) + rows(1, 5, 10)
    assert stream.next_end() == stream.at
    assert stream.batch() == []
    write(broker.address, 1, 1, first=10)
    assert stream.batch() == rows(1, 10, 11)


def test_spark_decides_about_the_limit(broker):
    """ReadAllAvailable means all, whatever the options say."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 30)
    reader = Stream(broker.address, maxOffsetsPerTrigger="20").reader
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    assert reader.latestOffset(start, ReadMaxRows(20))[TOPIC] == {"0": 20}
    assert reader.latestOffset(start, ReadAllAvailable())[TOPIC] == {"0": 30}
    assert reader.reportLatestOffset()[TOPIC] == {"0": 30}
    few = Stream(broker.address, minOffsetsPerTrigger="20").reader
    assert few.getDefaultReadLimit() == ReadMinRows(20)


def test_without_admission_control_there_is_no_limit(broker, monkeypatch):
    """PySpark 4.0 and 4.1 pass neither start nor limit, and end an availableNow query at the first end that they hear."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    monkeypatch.setattr(spark_admission, "has_admission_control", False)
    reader = Stream(broker.address).reader
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert end[TOPIC] == {"0": 5}
    assert len(reader.partitions(start, end)) == 1
    assert reader.latestOffset() == end
    write(broker.address, 0, 2, first=5)
    assert reader.latestOffset()[TOPIC] == {"0": 7}
    with pytest.raises(ReadOptionError, match=r"maxOffsetsPerTrigger: it needs PySpark 4\.2"):
        Stream(broker.address, maxOffsetsPerTrigger="20")


def test_a_batch_waits_for_enough_offsets(broker):
    """minOffsetsPerTrigger, except for the first batch."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 3)
    stream = Stream(broker.address, minOffsetsPerTrigger="5")
    assert stream.batch() == rows(0, 0, 3)
    write(broker.address, 0, 4, first=3)
    assert stream.batch() == []
    write(broker.address, 0, 1, first=7)
    assert stream.batch() == rows(0, 3, 8)


def test_available_now_ends_where_it_began(broker):
    """Records and partitions that come later are for the next run."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 30)
    stream = Stream(broker.address, maxOffsetsPerTrigger="20", minOffsetsPerTrigger="15")
    stream.reader.prepareForTriggerAvailableNow()
    write(broker.address, 0, 10, first=30)
    broker.grow(TOPIC, 2)
    write(broker.address, 1, 10)
    assert stream.batch() == rows(0, 0, 20)
    assert stream.batch() == rows(0, 20, 30)
    assert stream.batch() == []
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == rows(0, 30, 40) + rows(1, 0, 10)


def test_a_stream_begins_where_it_is_to(broker):
    """At the end by default, at a time, or at offsets for each partition."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    latest = Stream(broker.address, startingOffsets="")
    timed = Stream(broker.address, startingOffsets="", startingTimestamp=str(BASE_MS + 7))
    named = Stream(broker.address, startingOffsets='{"orders": {"0": 9}}')
    write(broker.address, 0, 1, first=10)
    assert [one.batch() for one in (latest, timed, named)] == [
        rows(0, 10, 11),
        rows(0, 7, 11),
        rows(0, 9, 11),
    ]


def test_new_partitions_are_read_from_their_first_offset(broker):
    """The end of their first batch says where they began: planned again later, it reads the same."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    stream = Stream(broker.address, failOnDataLoss="false")
    stream.batch()
    broker.grow(TOPIC, 2)
    write(broker.address, 1, 4)
    broker.delete_records(TOPIC, 2)
    write(broker.address, 1, 3, first=4)
    start = stream.at
    assert stream.batch() == rows(1, 4, 7)
    assert stream.at["$firsts"] == {TOPIC: {"1": 4}}
    stream.restart()
    assert stream.rows(start, stream.at) == rows(1, 4, 7)
    write(broker.address, 1, 1, first=7)
    assert stream.batch() == rows(1, 7, 8)


def test_a_new_partition_that_has_lost_records_is_an_error(broker):
    """Unless failOnDataLoss=false."""
    broker.create(TOPIC, 1)
    stream = Stream(broker.address)
    broker.grow(TOPIC, 2)
    write(broker.address, 1, 4)
    broker.delete_records(TOPIC, 2)
    with pytest.raises(DataLossError, match="orders-1 is new to the stream and begins at 4"):
        stream.next_end()


def test_new_topics_of_a_pattern_join(broker):
    """And topics that are deleted are missed: by name with failOnDataLoss, else said once and forgotten."""
    broker.create(TOPIC, 1)
    pattern = {"subscribe": "", "subscribePattern": "ord"}
    stream, lenient = (
        Stream(broker.address, **pattern),
        Stream(broker.address, failOnDataLoss="false", **pattern),
    )
    broker.create("more-orders", 1)
    write(broker.address, 0, 2, topic="more-orders")
    expected = [row(offset, 0, "more-orders") for offset in range(2)]
    assert stream.batch() == lenient.batch() == expected
    broker.delete_topic("more-orders")
    write(broker.address, 0, 1)
    with pytest.raises(DataLossError, match="more-orders-0 is gone"):
        stream.next_end()
    assert lenient.batch() == rows(0, 0, 1)
    assert list(lenient.at["$ids"]) == [TOPIC]


@pytest.mark.parametrize("count", [3, 10, 25])
def test_a_topic_created_again_is_another_one(broker, count, caplog):
    """Whether it is shorter, as long, or longer: an error, or read from its start, once."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    stream, lenient = Stream(broker.address), Stream(broker.address, failOnDataLoss="false")
    assert stream.batch() == lenient.batch() == rows(0, 0, 10)
    broker.delete_topic(TOPIC)
    broker.create(TOPIC, 1)
    write(broker.address, 0, count)
    with pytest.raises(DataLossError, match="topic orders was deleted and created again"):
        stream.next_end()
    start = lenient.at
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == rows(0, 0, count)
        assert lenient.batch() == []
    assert caplog.text.count("deleted and created again") == 1
    lenient.restart()
    assert lenient.rows(start, lenient.at) == rows(0, 0, count)


def test_a_log_that_became_shorter(broker, monkeypatch):
    """It is asked again first: a new leader may not know its end yet. Then it is an error, or the stream goes on there."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    stream, lenient = Stream(broker.address), Stream(broker.address, failOnDataLoss="false")
    stream.at[TOPIC]["0"] = lenient.at[TOPIC]["0"] = 12
    with pytest.raises(
        DataLossError, match="the log of orders-0 ends at 10, and the stream has read up to 12"
    ):
        stream.next_end()
    assert lenient.batch() == []
    write(broker.address, 0, 1, first=10)
    assert lenient.batch() == rows(0, 10, 11)


def test_idle_partitions_cost_no_request_and_no_task(broker, monkeypatch):
    """One of metadata and one of offsets for a micro-batch, of however many partitions and topics."""
    for number in range(10):
        broker.create(f"ord-{number}", 30)
    stream = Stream(broker.address, subscribe="", subscribePattern="ord")
    write(broker.address, 7, 5, topic="ord-3")
    asked = []
    request = BrokerConnection.request

    def noting(connection, api, fields, version_max=None):
        asked.append(api)
        return request(connection, api, fields, version_max)

    monkeypatch.setattr(BrokerConnection, "request", noting)
    end = stream.next_end()
    (part,) = stream.reader.partitions(stream.at, end)
    assert part.value[:4] == ("ord-3", 7, 0, 5)
    assert asked == ["metadata", "list_offsets"]


def test_a_missing_topic_is_an_error_at_the_start(broker):
    """Before the query has any offset."""
    with pytest.raises(ReadError, match="topic missing: it does not exist"):
        Stream(broker.address, subscribe="missing")


@pytest.mark.parametrize("is_strict", ["true", "false"])
def test_a_cluster_that_begins_to_have_ids_is_the_same(broker, monkeypatch, is_strict):
    """Its topics are no others: nothing is read again. Where some brokers have no ids yet, the one that was seen is kept."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    stream = Stream(broker.address, failOnDataLoss=is_strict)
    assert stream.batch() == rows(0, 0, 10)
    ids = stream.at.pop("$ids")
    write(broker.address, 0, 2, first=10)
    assert stream.batch() == rows(0, 10, 12)
    assert stream.at["$ids"] == ids
    write(broker.address, 0, 1, first=12)

    def without_ids(options, names):
        found = read_topics(options, names)
        return {name: topic._replace(topic_id=None) for name, topic in found.items()}

    monkeypatch.setattr(source_topics, "read_topics", without_ids)
    monkeypatch.setattr(partition_log, "read_topics", without_ids)
    assert stream.batch() == rows(0, 12, 13)
    assert stream.at["$ids"] == ids
