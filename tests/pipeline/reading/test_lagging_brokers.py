"""Brokers that are away for a while, or do not know yet what others know, cost time and no record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from uuid import uuid4

import pytest

from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading import connections, partition_log, source_topics
from echoless.pipeline.reading.batch_reader import plan_job
from echoless.pipeline.reading.bounds import LATEST
from echoless.pipeline.reading.errors import DataLossError, ReadError
from echoless.pipeline.reading.options import ReaderOptions, read_reader_options
from echoless.pipeline.reading.partition_log import OffsetGoneError, PartitionLog
from echoless.pipeline.reading.source_topics import SourceTopics
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.span_rows import read_span
from echoless.pipeline.reading.topic_metadata import FoundTopic, read_topics
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.reading.test_span_rows import Clock
from tests.pipeline.reading.test_stream_reader import Stream, rows
from tests.pipeline.reading.written import TOPIC, write
from tests.support.echoless import Echoless

Topics = Mapping[str, FoundTopic]
_UNUSED = "127.0.0.1:1"


def options_of(address: str, **given: str) -> ReaderOptions:
    options = {name.replace("__", "."): text for name, text in given.items()}
    servers = {"kafka.bootstrap.servers": address}
    if not {"assign", "subscribePattern"} & given.keys():
        servers["subscribe"] = TOPIC
    return read_reader_options(
        {**servers, "fetchOffset.retryIntervalMs": "1", **options}, is_stream=False
    )


def two_of(broker: BrokerThread) -> str:
    """The broker's address, as that of two."""
    return f"{broker.address},{broker.address.replace('127.0.0.1', 'localhost')}"


def unchanged(found: Topics) -> Topics:
    return found


def knows_nothing(_: Topics) -> Topics:
    return {}


def knows_another(found: Topics) -> Topics:
    return {name: topic._replace(topic_id=uuid4()) for name, topic in found.items()}


def knows_no_ids(found: Topics) -> Topics:
    return {name: topic._replace(topic_id=None) for name, topic in found.items()}


def knows_no_partition(found: Topics) -> Topics:
    return {name: topic._replace(leaders={}) for name, topic in found.items()}


def knows_the_first_partition(found: Topics) -> Topics:
    return {name: topic._replace(leaders={0: topic.leaders[0]}) for name, topic in found.items()}


def knows_no_leader(found: Topics) -> Topics:
    return {name: topic._replace(leaders={0: None}) for name, topic in found.items()}


def lagging(change: Callable[[Topics], Topics], times: int) -> Callable[..., Topics]:
    """Metadata whose first answers are of a broker that is behind."""
    left = [times]

    def ask(options: ReaderOptions, names: list[str] | None) -> Topics:
        found = read_topics(options, names)
        left[0] -= 1
        return change(found) if left[0] >= 0 else found

    return ask


def returning(broker: Echoless, after: int) -> Callable[[float], None]:
    """A pause: the broker starts again in one of them."""
    pauses = [0]

    def pause(_: float) -> None:
        pauses[0] += 1
        if pauses[0] == after:
            broker.start()

    return pause


def test_a_cluster_that_was_met_is_waited_for(echoless: Echoless) -> None:
    """A broker starts again: the driver asks more often than fetchOffset.numRetries says, and tasks do, too."""
    write(echoless.kafka_address, 0, 10)
    options = options_of(echoless.kafka_address)
    topics = SourceTopics(options, sleep=returning(echoless, after=6))
    (topic,) = topics.look_up().values()
    echoless.kill()
    zero = TopicPartition(TOPIC, 0)
    assert topics.offsets({zero: LATEST}) == {zero: 10}
    echoless.kill()
    span = OffsetSpan(TOPIC, 0, 0, 10, topic.id_text)
    log = PartitionLog(options, span, sleep=returning(echoless, after=6))
    assert log.fetch(0, 10_000).readable_end == 10


def test_a_topic_without_partitions_is_asked_for_again(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job would find nothing to read in it, in silence."""
    broker.create(TOPIC, 2)
    options = options_of(broker.address, kafka__default__api__timeout__ms="50")
    topics = SourceTopics(options, sleep=lambda _: None)
    monkeypatch.setattr(source_topics, "read_topics", lagging(knows_no_partition, 2))
    topics.find()
    assert topics.partitions() == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    monkeypatch.setattr(source_topics, "read_topics", lagging(knows_no_partition, 10**9))
    with pytest.raises(ReadError, match=f"topic {TOPIC}: the broker names no partition of it"):
        topics.find()


def test_a_partition_that_is_assigned_is_asked_for_again(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker may not know yet that the topic has got it."""
    broker.create(TOPIC, 2)
    options = options_of(broker.address, assign=json.dumps({TOPIC: [1]}))
    topics = SourceTopics(options, sleep=lambda _: None)
    monkeypatch.setattr(source_topics, "read_topics", lagging(knows_the_first_partition, 2))
    topics.find()
    assert topics.partitions() == [TopicPartition(TOPIC, 1)]
    monkeypatch.setattr(source_topics, "read_topics", lagging(knows_the_first_partition, 10**9))
    with pytest.raises(ReadError, match=f"option assign: topic {TOPIC} has no partition 1, only 1"):
        topics.find()


@pytest.mark.parametrize("change", [knows_nothing, knows_the_first_partition])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("given", [{"subscribe": TOPIC}, {"subscribePattern": "ord"}])
def test_a_job_reads_what_either_of_two_brokers_names(
    broker: BrokerThread,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Topics], Topics],
    order: int,
    given: dict[str, str],
) -> None:
    """One of them may not know yet what was created just now; its rows would be left out in silence."""
    broker.create(TOPIC, 2)
    options = read_reader_options(
        {"kafka.bootstrap.servers": two_of(broker), **given}, is_stream=False
    )
    topics = SourceTopics(options, sleep=lambda _: None)
    changes = iter([change, unchanged] if order == 0 else [unchanged, change])

    def ask(options: ReaderOptions, names: list[str] | None) -> Topics:
        return next(changes)(read_topics(options, names))

    monkeypatch.setattr(source_topics, "read_topics", ask)
    topics.find()
    assert topics.partitions() == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]


def test_two_brokers_that_name_two_topics_are_asked_again(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them has the topic that was deleted, and a plan with its id would find no record."""
    broker.create(TOPIC, 1)
    options = options_of(two_of(broker), kafka__default__api__timeout__ms="50")
    topics = SourceTopics(options, sleep=lambda _: None)
    true_id = read_topics(options, [TOPIC])[TOPIC].topic_id
    monkeypatch.setattr(source_topics, "read_topics", lagging(knows_another, 1))
    assert topics.find()[TOPIC].topic_id == true_id
    monkeypatch.setattr(source_topics, "read_topics", lagging(knows_another, 10**9))
    with pytest.raises(ReadError, match=f"topic {TOPIC}: brokers name two of them"):
        topics.find()


def test_a_job_looks_topics_up_again_if_one_of_its_pattern_goes(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted after it had been found, or the broker did not know of that."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 3)
    options = options_of(broker.address, subscribePattern="ord")

    def with_one_that_goes(found: Topics) -> Topics:
        return {**found, "ord-gone": next(iter(found.values()))}

    monkeypatch.setattr(source_topics, "read_topics", lagging(with_one_that_goes, 1))
    (span,) = plan_job(options)
    assert (span.topic, span.start, span.end) == (TOPIC, 0, 3)


@pytest.mark.parametrize("change", [knows_nothing, knows_another, knows_no_partition])
@pytest.mark.parametrize("is_strict", ["true", "false"])
def test_a_stream_believes_no_single_broker(
    broker: BrokerThread,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Topics], Topics],
    is_strict: str,
) -> None:
    """A topic that is forgotten by mistake would be read again from its start."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    stream = Stream(broker.address, failOnDataLoss=is_strict)
    assert stream.batch() == rows(0, 0, 10)
    write(broker.address, 0, 2, first=10)
    monkeypatch.setattr(source_topics, "read_topics", lagging(change, 2))
    assert stream.batch() == rows(0, 10, 12)
    stream.restart()
    monkeypatch.setattr(source_topics, "read_topics", lagging(change, 2))
    stream.reader.prepareForTriggerAvailableNow()
    at = stream.at
    assert (stream.batch(), stream.at) == ([], at)


@pytest.mark.parametrize("change", [knows_nothing, knows_another])
def test_a_task_believes_no_single_broker(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, change: Callable[[Topics], Topics]
) -> None:
    """With failOnDataLoss=false its records would be missing, in silence."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    options = options_of(broker.address, failOnDataLoss="false")
    found = read_topics(options, [TOPIC])[TOPIC]
    monkeypatch.setattr(partition_log, "read_topics", lagging(change, 2))
    (batch,) = read_span(options, OffsetSpan(TOPIC, 0, 0, 10, found.id_text))
    assert len(batch) == 10


def test_a_topic_without_an_id_is_fetched_by_its_name(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers of one cluster begin to serve Fetch 13, and topics to have ids, one after the other."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    options = options_of(broker.address, kafkaConsumer__pollTimeoutMs="500")
    found = read_topics(options, [TOPIC])[TOPIC]
    monkeypatch.setattr(partition_log, "read_topics", lagging(knows_no_ids, 10**9))
    for topic_id in (None, found.id_text):
        (batch,) = read_span(options, OffsetSpan(TOPIC, 0, 0, 10, topic_id))
        assert len(batch) == 10


@pytest.mark.parametrize("version_max", [4, 11, 12])
def test_a_leader_that_serves_older_fetches(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, version_max: int
) -> None:
    """Up to 12 they name the topic, whose id others know."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    options = options_of(broker.address)
    found = read_topics(options, [TOPIC])[TOPIC]
    monkeypatch.setattr(partition_log, "fetch_version_max", lambda _: version_max)
    (batch,) = read_span(options, OffsetSpan(TOPIC, 0, 0, 10, found.id_text))
    assert len(batch) == 10


@pytest.mark.parametrize("knows_ids_first", [False, True])
def test_leaders_are_those_of_a_topic_that_gets_its_id(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, knows_ids_first: bool
) -> None:
    """The broker that is asked again has ids, and the one before had none, or the other way round."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    options = options_of(broker.address, kafka__default__api__timeout__ms="50")
    topics = SourceTopics(options, sleep=lambda _: None)
    first = unchanged if knows_ids_first else knows_no_ids
    monkeypatch.setattr(
        source_topics, "read_topics", lagging(lambda found: knows_no_leader(first(found)), 1)
    )
    topics.look_up()
    then = knows_no_ids if knows_ids_first else unchanged
    monkeypatch.setattr(source_topics, "read_topics", lagging(then, 10**9))
    zero = TopicPartition(TOPIC, 0)
    assert topics.offsets({zero: LATEST}) == {zero: 10}


def test_a_topic_is_not_lost_while_nobody_can_be_asked(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker did not know it, and then none answers: that is no second answer."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    options = options_of(broker.address, failOnDataLoss="false")
    answers = iter(["unknown", *["away"] * 9, "unknown"])
    clock = Clock()

    def ask(options: ReaderOptions, names: list[str] | None) -> Topics:
        answer = next(answers, "known")
        if answer == "away":
            raise ConnectionFailedError("no broker can be reached")
        return {} if answer == "unknown" else read_topics(options, names)

    monkeypatch.setattr(partition_log, "read_topics", ask)
    monkeypatch.setattr(partition_log, "time", clock)
    log = PartitionLog(options, OffsetSpan(TOPIC, 0, 0, 10), sleep=lambda _: clock.sleep(1))
    assert log.fetch(0, 10_000).readable_end == 10


def test_a_leader_of_yesterday_may_have_a_shorter_log(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused when another one was elected. Offsets are gone if it is said three times."""
    broker.create(TOPIC, 1)
    write(broker.address, 0, 10)
    fetch, left = PartitionLog.fetch, [2]

    def shorter(log: PartitionLog, offset: int, bytes_max: int) -> object:
        left[0] -= 1
        if left[0] >= 0:
            raise OffsetGoneError
        return fetch(log, offset, bytes_max)

    monkeypatch.setattr(PartitionLog, "fetch", shorter)
    options, span = options_of(broker.address), OffsetSpan(TOPIC, 0, 0, 10)
    assert [len(batch) for batch in read_span(options, span)] == [10]
    left[0] = 3
    with pytest.raises(DataLossError, match="offsets 0 to 10 are gone: the log ends before them"):
        list(read_span(options, span))


def test_a_topic_that_goes_while_its_end_is_asked_for(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are looked up again; a stream by a pattern does not end because one of them was deleted just then."""
    broker.create(TOPIC, 1)
    stream = Stream(broker.address, subscribe="", subscribePattern="ord")
    write(broker.address, 0, 3)

    def with_one_that_goes(found: Topics) -> Topics:
        return {**found, "ord-gone": next(iter(found.values()))}

    monkeypatch.setattr(source_topics, "read_topics", lagging(with_one_that_goes, 1))
    assert stream.batch() == rows(0, 0, 3)


def test_a_server_that_is_down_costs_time_once(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that answered is asked first from then on, and brokers that metadata has named are asked, too."""
    opened: list[str] = []
    opening = BrokerConnection.open

    def open_one(host: str, port: int, **given: object) -> BrokerConnection:
        opened.append(f"{host}:{port}")
        return opening(host, port, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(BrokerConnection, "open", open_one)
    broker.create(TOPIC, 1)
    options = options_of(f"{_UNUSED},{broker.address}")
    for _ in range(3):
        assert list(read_topics(options, [TOPIC])) == [TOPIC]
    assert opened.count(_UNUSED) == 1
    monkeypatch.setattr(connections, "_servers", {})
    monkeypatch.setattr(connections, "_named", set())
    alone = options_of(_UNUSED)
    host, port = broker.address.split(":")
    connections.note_brokers(alone, [(host, int(port))])
    assert list(read_topics(alone, [TOPIC])) == [TOPIC]


def test_brokers_that_metadata_names_are_asked_before_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others may be down. The one that answered stays the first, and those that no bootstrap server is are few."""
    monkeypatch.setattr(connections, "_servers", {})
    monkeypatch.setattr(connections, "_named", set())
    options = options_of("a:1,b:1,c:1")
    connections.note_brokers(options, [("c", 1), ("d", 1)])
    assert connections._servers_of(options) == [("a", 1), ("c", 1), ("d", 1), ("b", 1)]
    connections.ask_another(options)
    connections.note_brokers(options, [("c", 1), ("d", 1)])
    assert connections._servers_of(options) == [("c", 1), ("d", 1), ("b", 1), ("a", 1)]
    many = [(f"n{number:02}", 1) for number in range(20)]
    for _ in range(3):
        connections.note_brokers(options, many)
    assert len(connections._servers_of(options)) == 3 + connections._NAMED_MAX
