"""A task reads the offsets of its plan: no row more, none less, whatever the log has become in between."""

from __future__ import annotations

import logging

import pytest

from echoless.client.connection import BrokerConnection
from echoless.pipeline.reading import connections, row_batches, source_topics, span_rows
from echoless.pipeline.reading.batch_reader import plan_job
from echoless.pipeline.reading.errors import DataLossError, ReadError
from echoless.pipeline.reading.options import read_reader_options
from echoless.pipeline.reading.partition_log import OffsetGoneError, PartitionLog
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.span_rows import read_span
from echoless.pipeline.reading.visible_batches import VisibleBatch
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from tests.pipeline.reading.written import BASE_MS, TOPIC, WITHIN_S, read, write
from tests.transactions.librdkafka import transactional


def offsets(rows):
    return [(row["partition"], row["offset"]) for row in rows]


def in_pieces(monkeypatch) -> None:
    """Makes fetches and Arrow batches small, so that there are many."""
    monkeypatch.setattr(span_rows, "_FIRST_BYTES", 2000)
    monkeypatch.setattr(row_batches, "GROUP_BYTES", 5000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_the_records(broker, codec, monkeypatch):
    """Each field of each record, in order; headers are null where there are none."""
    in_pieces(monkeypatch)
    broker.create(TOPIC, 2)
    write(broker.address, 0, 700, codec=codec)
    write(broker.address, 1, 300, first=5000, codec=codec)
    rows = read(broker.address, includeHeaders="true", kafka__max__partition__fetch__bytes="9000")
    stored = [(index, one) for index in range(2) for one in broker.read(TOPIC, index)]
    assert len(rows) == len(stored) == 1000
    for row, (partition, record) in zip(rows, stored, strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == (TOPIC, partition, record.offset)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert row["timestamp"].timestamp() * 1000 == record.timestamp
        assert row["timestampType"] == 0
        headers = [{"key": name, "value": value} for name, value in record.headers]
        assert row["headers"] == (headers or None)


def test_batches_of_several_codecs_make_one_arrow_batch(broker):
    """Those without compression are read where they were fetched, and others are opened."""
    broker.create(TOPIC, 1)
    for first, codec in ((0, "none"), (100, "lz4"), (200, "none")):
        write(broker.address, 0, 100, first=first, codec=codec)
    rows = read(broker.address, includeHeaders="true")
    stored = broker.read(TOPIC, 0)
    assert [(row["key"], row["value"]) for row in rows] == [(one.key, one.value) for one in stored]


def test_a_task_asks_about_its_own_topic_alone(broker, monkeypatch):
    """A pattern may find thousands of topics, and others of them may be gone."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 50)
    options = read_reader_options(
        {"kafka.bootstrap.servers": broker.address, "subscribePattern": "ord"}, is_stream=False
    )
    (span,) = plan_job(options)
    broker.delete_records(TOPIC, 1)
    asked, ask = [], source_topics.read_topics

    def noting(options, names):
        asked.append(names)
        return ask(options, names)

    monkeypatch.setattr(source_topics, "read_topics", noting)
    with pytest.raises(DataLossError, match="the log begins at 50"):
        list(read_span(options, span))
    assert {tuple(names) for names in asked if names} == {(TOPIC,)}
    assert None not in asked


def test_a_span_begins_and_ends_inside_of_batches(broker):
    """A batch comes whole; rows outside of the plan are left out."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 100)
    rows = read(
        broker.address,
        startingOffsets='{"orders": {"0": 17}}',
        endingOffsets='{"orders": {"0": 61}}',
        columns="offset,partition",
    )
    assert offsets(rows) == [(0, offset) for offset in range(17, 61)]
    assert list(rows[0]) == ["offset", "partition"]


def test_timestamps_choose_offsets(broker):
    """From the first record as late as the start to the first as late as the end."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 100)
    rows = read(
        broker.address,
        startingTimestamp=str(BASE_MS + 20),
        endingOffsetsByTimestamp=f'{{"orders": {{"0": {BASE_MS + 30}}}}}',
    )
    assert offsets(rows) == [(0, offset) for offset in range(20, 30)]


def test_topics_by_pattern_and_by_assignment(broker):
    """A pattern is searched in the name; an assignment names partitions."""
    for topic in ("orders", "b.ord", "other"):
        broker.create(topic, 2)
        write(broker.address, 1, 3, topic=topic)
    found = {row["topic"] for row in read(broker.address, subscribePattern="ord")}
    assert found == {"orders", "b.ord"}
    assert read(broker.address, assign='{"other": [0]}') == []
    assert len(read(broker.address, assign='{"other": [1]}')) == 3
    with pytest.raises(ReadError, match="topic other has no partition 7, only 2"):
        read(broker.address, assign='{"other": [7]}')
    with pytest.raises(ReadError, match="topic missing: it does not exist"):
        read(broker.address, subscribe="missing")


def _settle(producer, values, *, commits):
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(WITHIN_S) == 0
    if commits:
        producer.commit_transaction(WITHIN_S)
    else:
        producer.abort_transaction(WITHIN_S)


def test_committed_rows_alone_are_read_if_asked_for(broker, monkeypatch):
    """Aborted records, markers and an open transaction: the vector of the specification, read in small pieces."""
    in_pieces(monkeypatch)
    broker.create(TOPIC, 1)
    write(broker.address, 0, 3)
    producer = transactional(broker.address)
    _settle(producer, ["a", "b", "c"], commits=False)
    _settle(producer, ["d", "e"], commits=True)
    committed = {"kafka__isolation__level": "read_committed"}
    assert offsets(read(broker.address, **committed)) == [(0, o) for o in (0, 1, 2, 7, 8)]
    assert offsets(read(broker.address)) == [(0, o) for o in (0, 1, 2, 3, 4, 5, 7, 8)]
    ends = {"startingOffsets": '{"orders": {"0": 3}}', "endingOffsets": '{"orders": {"0": 7}}'}
    assert read(broker.address, **committed, **ends) == []
    producer.begin_transaction()
    producer.produce(TOPIC, "open", partition=0)
    assert producer.flush(WITHIN_S) == 0
    assert offsets(read(broker.address, **committed))[-1] == (0, 8)
    assert offsets(read(broker.address))[-1] == (0, 10)


_QUICK = {"kafka.fetch.max.wait.ms": "50"}


def _planned(broker, **given):
    options = read_reader_options(
        {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, **given}, is_stream=False
    )
    (span,) = plan_job(options)
    return options, span


def test_records_deleted_after_the_plan(broker, caplog):
    """An error that names the offsets; with failOnDataLoss=false the rest is read, and the log says what is missing."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 50)
    options, span = _planned(broker)
    broker.delete_records(TOPIC, 1)
    write(broker.address, 0, 10, first=50)
    with pytest.raises(
        DataLossError, match="orders-0: offsets 0 to 50 are gone: the log begins at 50"
    ):
        list(read_span(options, span))
    lenient, _ = _planned(broker, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        batches = list(read_span(lenient, span._replace(end=60)))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(
        range(50, 60)
    )
    assert "offsets 0 to 50 are gone" in caplog.text


def test_a_topic_created_again_is_another_one(broker, monkeypatch):
    """Its records are not those of the plan, however many it has; a plan that lives on ends there."""
    monkeypatch.setattr("echoless.pipeline.reading.partition_log._GONE_S", 0.1)
    broker.create(TOPIC, 1)
    write(broker.address, 0, 20)
    options, span = _planned(broker)
    broker.delete_topic(TOPIC)
    broker.create(TOPIC, 1)
    write(broker.address, 0, 90)
    with pytest.raises(DataLossError, match="was deleted and created again"):
        list(read_span(options, span))
    lenient, _ = _planned(broker, failOnDataLoss="false")
    assert list(read_span(lenient, span)) == []


def test_a_deleted_topic(broker, monkeypatch):
    """It is looked for briefly, since brokers learn of topics one after the other."""
    monkeypatch.setattr("echoless.pipeline.reading.partition_log._GONE_S", 0.1)
    broker.create(TOPIC, 1)
    write(broker.address, 0, 20)
    options, span = _planned(broker)
    broker.delete_topic(TOPIC)
    with pytest.raises(DataLossError, match="the topic was deleted"):
        list(read_span(options, span))


def test_an_end_beyond_the_log_is_refused(broker):
    """A task would wait for records that nobody has written; without failOnDataLoss the log's end is taken."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    ends = {"endingOffsets": '{"orders": {"0": 9}}'}
    with pytest.raises(DataLossError, match="would end at 9, and the log ends at 5"):
        read(broker.address, **ends)
    assert len(read(broker.address, failOnDataLoss="false", **ends)) == 5
    with pytest.raises(ReadError, match="orders-0 would start at 4 and end at 3"):
        read(
            broker.address,
            startingOffsets='{"orders": {"0": 4}}',
            endingOffsets='{"orders": {"0": 3}}',
        )
    with pytest.raises(ReadError, match="the reading would start at"):
        read(broker.address, startingTimestamp=str(BASE_MS + 4), endingTimestamp=str(BASE_MS + 2))


def test_a_span_without_its_records_is_given_up(broker):
    """A log that became shorter without a new id: the task ends after kafkaConsumer.pollTimeoutMs."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    options, span = _planned(broker, **{"kafkaConsumer.pollTimeoutMs": "200"})
    with pytest.raises(ReadError, match=r"no record at or after offset 5 for 0\.2 s"):
        list(read_span(options, span._replace(end=9)))


def test_an_unreachable_cluster_is_an_error_of_one_line():
    """The driver tries three times, or as often as fetchOffset.numRetries says."""
    with pytest.raises(ReadError, match=r"no broker can be reached at 127\.0\.0\.1:1 "):
        read("127.0.0.1:1", fetchOffset__numRetries="2", fetchOffset__retryIntervalMs="1")


def test_a_connection_that_ended_is_replaced(broker, monkeypatch):
    """Those that are kept between tasks may have been closed by the broker; one that fails in an exchange is not kept."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    assert len(read(broker.address)) == 5
    assert connections._kept
    for kept in connections._kept:
        kept.connection.close()
    assert len(read(broker.address)) == 5

    def stopped(*_):
        raise KeyboardInterrupt

    connections.close_kept()
    monkeypatch.setattr(BrokerConnection, "request", stopped)
    with pytest.raises(KeyboardInterrupt):
        read(broker.address)
    assert connections._kept == []


def test_a_range_that_compaction_has_emptied_ends(broker, monkeypatch):
    """The log's end is known, and no batch is left before it: the task ends, unless the broker may have them elsewhere."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    options, span = _planned(broker, **_QUICK)
    clock, whole = Clock(), PartitionLog.fetch
    monkeypatch.setattr(span_rows, "time", clock)

    def emptied(log, offset, bytes_max):
        found = whole(log, offset, bytes_max)
        clock.now += 20  # of the two minutes that a task waits
        return found if offset < 5 else found._replace(records=b"", readable_end=8)

    monkeypatch.setattr(PartitionLog, "fetch", emptied)
    assert [len(batch) for batch in read_span(options, span._replace(end=8))] == [5]
    with pytest.raises(ReadError, match="no record at or after offset 5"):
        list(read_span(options, span._replace(end=9)))
    monkeypatch.setattr(span_rows, "_is_on_broker", lambda *_: False)
    with pytest.raises(ReadError, match="no record at or after offset 5"):
        list(read_span(options, span._replace(end=8)))


def test_a_log_that_was_cut_inside_of_a_span(broker, caplog):
    """The task has read what is left, and stands just at the end: no broker calls that out of range."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    given = {"kafkaConsumer.pollTimeoutMs": "100", **_QUICK}
    options, span = _planned(broker, **given)
    with pytest.raises(DataLossError, match="the log ends at 5"):
        list(read_span(options, span._replace(end=9)))
    lenient, _ = _planned(broker, failOnDataLoss="false", **given)
    with caplog.at_level(logging.WARNING):
        assert [len(batch) for batch in read_span(lenient, span._replace(end=9))] == [5]
    assert "the log ends at 5" in caplog.text


class Clock:
    """Time passes only where the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_time_that_rows_take_is_not_the_logs(broker, monkeypatch, is_deleted):
    """A slow query, then an answer without records, or the news that retention was faster: the task goes on."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 5)
    write(broker.address, 0, 5, first=5)
    options, span = _planned(broker, failOnDataLoss="false", **_QUICK)
    clock, whole, asked = Clock(), PartitionLog.fetch, []

    def fetch(log, offset, bytes_max):
        asked.append(offset)
        if len(asked) == 2 and is_deleted:
            raise OffsetGoneError
        if len(asked) == 2:
            return whole(log, offset, bytes_max)._replace(records=b"", readable_end=-1)
        return whole(log, offset, 1)

    monkeypatch.setattr(span_rows, "time", clock)
    monkeypatch.setattr(PartitionLog, "fetch", fetch)
    monkeypatch.setattr(span_rows, "_position_after_loss", lambda *_, **__: 7)
    rows = []
    for batch in read_span(options, span):
        rows += batch["offset"].to_pylist()
        clock.now += 1000
    seen = rows.index(7)  # the first fetch brings a batch, of perhaps all that were written first
    assert 1 <= seen <= 7
    assert rows == ([*range(seen), 7, 8, 9] if is_deleted else list(range(10)))


def test_a_timestamp_that_spark_cannot_hold_is_an_error():
    """Nanoseconds by mistake would become another time in silence; the other columns can be read."""
    record = Record(0, 1_795_000_000_000_000_000, None, b"v", ())
    batch = build_batch([record])
    span = OffsetSpan(TOPIC, 0, 0, 1)
    visible = [VisibleBatch(read_header(batch), memoryview(batch))]
    with pytest.raises(DecodeError, match="1795000000000000000 ms"):
        list(row_batches.RowBatches(span, ["offset", "timestamp"]).of(visible))
    (rows,) = row_batches.RowBatches(span, ["offset", "value"]).of(visible)
    assert rows.to_pylist() == [{"offset": 0, "value": b"v"}]
