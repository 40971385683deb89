"""Random options, given to the reader and to Spark's own Kafka source: the same rows, or both refuse.

    with Compared(spark, address) as compared: problems = compared.run(seed, count)

The topics have what makes readers differ: batches of every codec, headers, null keys and values, transactions that were committed, aborted
and left open, records that were deleted, log-append time, an empty partition.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from echoless.pipeline.exactly_once.data_source import register
from tests.pipeline.reading.written import BASE_MS, WITHIN_S, write
from tests.transactions.librdkafka import transactional

_TOPICS: Final = {"orders": 3, "b.ord": 2, "plain": 1, "appended": 1}
"""Names and partitions; `orders` has an empty one."""
_NO_TOPIC: Final = "none-of-them"
_PATTERNS: Final = ("ord", "^b", "orders|plain", ".", _NO_TOPIC)
_STREAM_SHARE: Final = 0.1
_OPEN: Final = "held"
_SPARK_S: Final = 300
_POLL_MS: Final = 20_000
_REFUSALS: Final = (PySparkException, Py4JJavaError)
"""Some of the connector's own errors are not translated."""
Options = dict[str, str]


class Answer(NamedTuple):
    """The answer of a source to some options."""

    rows: list[Any] | None
    """Sorted; None: refused."""
    batches: list[int]
    """Rows of each micro-batch of a stream."""
    error: str = ""


class Compared:
    """Topics at one broker, and both sources."""

    def __init__(self, spark: Any, address: str) -> None:
        self._spark = spark
        self._address = address
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self.figures: Counter[str] = Counter()
        register(spark)

    def __enter__(self) -> Self:
        configs = {"appended": {"message.timestamp.type": "LogAppendTime"}}
        topics = [
            NewTopic(name, count, 1, config=configs.get(name, {}))
            for name, count in _TOPICS.items()
        ]
        for made in self._admin.create_topics(topics).values():
            made.result(WITHIN_S)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            write(self._address, 0, 60, first=60 * number, codec=codec)
            write(self._address, 1, 9, first=40 * number, topic="b.ord", codec=codec)
        write(self._address, 0, 40, topic="plain")
        write(self._address, 0, 20, topic="appended")
        producer = transactional(self._address, "settled")
        for number in range(6):
            self._transaction(producer, number)
        self._admin.delete_records([TopicPartition("plain", 0, 13)])[
            TopicPartition("plain", 0)
        ].result(WITHIN_S)
        self._holder = transactional(self._address, _OPEN, timeout_ms=600_000)
        self._holder.begin_transaction()
        self._holder.produce("b.ord", "open", partition=0)
        assert self._holder.flush(WITHIN_S) == 0
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.abort_transaction(WITHIN_S)

    def _transaction(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for index in range(5):
            producer.produce("orders", f"{number}-{index}", partition=1, key=b"t")
            producer.produce("b.ord", f"{number}-{index}", partition=0, key=b"t")
        assert producer.flush(WITHIN_S) == 0
        if number % 2:
            producer.abort_transaction(WITHIN_S)
        else:
            producer.commit_transaction(WITHIN_S)

    def run(self, seed: int, count: int) -> list[str]:
        """Plays sets of options; returns what differs, in words."""
        choice = random.Random(seed)
        problems = []
        for number in range(count):
            is_stream = choice.random() < _STREAM_SHARE
            options = random_options(choice, is_stream=is_stream)
            ask = self._stream if is_stream else self._job
            ours, theirs = ask("echoless", options), ask("kafka", options)
            self.figures["sets of options"] += 1
            self.figures["of these of streams"] += is_stream
            self.figures["refused by both"] += ours.rows is None and theirs.rows is None
            self.figures["rows compared"] += len(ours.rows or ())
            problem = difference(options, ours, theirs)
            if problem is None:
                continue
            if problem in INTENDED:
                self.figures[f"intended: {problem}"] += 1
                continue
            problems.append(f"seed {seed}, set {number}, {json.dumps(options)}: {problem}")
        return problems

    def _job(self, source: str, options: Options) -> Answer:
        frame = self._spark.read.format(source).options(**self._given(options))
        try:
            return Answer(_sorted(frame.load().collect()), [])
        except _REFUSALS as error:
            return Answer(None, [], str(error))

    def _stream(self, source: str, options: Options) -> Answer:
        batches: list[list[Any]] = []

        def take(frame: Any, _: int) -> None:
            batches.append(frame.collect())

        with tempfile.TemporaryDirectory() as checkpoint:
            frame = self._spark.readStream.format(source).options(**self._given(options)).load()
            writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(_SPARK_S)
            except _REFUSALS as error:
                return Answer(None, [], str(error))
        rows = [row for batch in batches for row in batch]
        return Answer(_sorted(rows), [len(batch) for batch in batches])

    def _given(self, options: Options) -> Options:
        return {
            "kafka.bootstrap.servers": self._address,
            # Spark's tasks wait for records that are not there yet, or not visible.
            "kafkaConsumer.pollTimeoutMs": str(_POLL_MS),
            **options,
        }


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


INTENDED: Final = frozenset(
    {
        "two ends, or starts, are refused",
        "a partition that does not exist is refused",
        "no topic: an empty micro-batch",
    }
)
"""Differences that `docs/reader.md` lists."""


def difference(options: Options, ours: Answer, theirs: Answer) -> str | None:
    """Returns what differs in words; None if nothing does."""
    if ours.rows is None and theirs.rows is not None:
        for text, reason in (
            ("give one of them", "two ends, or starts, are refused"),
            ("has no partition", "a partition that does not exist is refused"),
        ):
            if text in ours.error:
                return reason
        return f"only the reader refuses: {ours.error[-400:]}"
    if ours.rows is not None and theirs.rows is None:
        return f"only Spark's source refuses: {_cause(theirs.error)}"
    if ours.rows != theirs.rows:
        return f"other rows: {_example(ours.rows or [], theirs.rows or [])}"
    if (ours.batches, theirs.batches) == ([0], []) and options.get("subscribePattern") == _NO_TOPIC:
        return "no topic: an empty micro-batch"
    if "maxOffsetsPerTrigger" in options and ours.batches != theirs.batches:
        return f"other micro-batches: {ours.batches}, {theirs.batches}"
    return None


def _cause(error: str) -> str:
    """Returns the last cause of a Java exception, or the first line."""
    lines = error.splitlines() or [""]
    return ([line for line in lines if line.startswith("Caused by")] or lines[:2])[-1]


def _example(ours: list[Any], theirs: list[Any]) -> str:
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return f"{one}, in Spark's source {other}"
    return f"{len(ours)} rows, in Spark's source {len(theirs)}"


def random_options(choice: random.Random, *, is_stream: bool) -> Options:
    """Draws options that make sense, and now and then some that do not."""
    options, partitions = _topics(choice)
    options |= _start(choice, partitions, is_stream=is_stream)
    if not is_stream:
        options |= _end(choice, partitions)
    for name, values, share in (
        ("includeHeaders", ["true", "false"], 0.5),
        ("kafka.isolation.level", ["read_committed", "read_uncommitted"], 0.6),
        ("minPartitions", ["1", "3", "7", "20"], 0.3),
        ("maxRecordsPerPartition", ["7", "50", "1000"], 0.2),
        ("failOnDataLoss", ["false", "true"], 0.5),
        ("maxOffsetsPerTrigger", ["1", "40", "170", "5000"], 0.8 if is_stream else 0.05),
        ("startingOffsetsByTimestampStrategy", ["latest", "latest", "error"], 0.9),
    ):
        if choice.random() < share:
            options[name] = choice.choice(values)
    if options.get("maxOffsetsPerTrigger") == "1":
        options["maxOffsetsPerTrigger"] = "90"  # a micro-batch for each record takes too long
    return options


def _topics(choice: random.Random) -> tuple[Options, list[tuple[str, int]]]:
    way = choice.choice(["subscribe", "subscribe", "subscribePattern", "assign"])
    every = [(topic, number) for topic, count in _TOPICS.items() for number in range(count)]
    if way == "subscribe":
        names = choice.sample(list(_TOPICS), choice.randint(1, 3))
        text = ",".join(names)
        return {way: text}, [one for one in every if one[0] in names]
    if way == "subscribePattern":
        pattern = choice.choice(_PATTERNS)
        return {way: pattern}, [one for one in every if re.search(pattern, one[0])]
    chosen = choice.sample(every, choice.randint(1, 4))
    if choice.random() < 0.05:
        chosen.append(("plain", 5))
    return {way: json.dumps(_nested({one: [] for one in chosen}, as_list=True))}, chosen


def _start(choice: random.Random, partitions: list[tuple[str, int]], *, is_stream: bool) -> Options:
    ways = ["none", "earliest", "offsets", "time", "times", "two"]
    (way,) = choice.choices(ways, [2, 2, 5, 3, 3, 1])
    if way == "none":
        return {"startingOffsets": "earliest"} if is_stream else {}
    if way == "earliest":
        return {"startingOffsets": "earliest"}
    if way == "offsets":
        return {"startingOffsets": _offsets(choice, partitions, edge=-2, least=13)}
    if way == "time":
        return {"startingTimestamp": str(_time(choice))}
    if way == "times":
        return {"startingOffsetsByTimestamp": _times(choice, partitions)}
    return {"startingOffsets": "earliest", "startingTimestamp": str(_time(choice))}


def _end(choice: random.Random, partitions: list[tuple[str, int]]) -> Options:
    ways = ["none", "latest", "offsets", "time", "times", "earliest"]
    (way,) = choice.choices(ways, [5, 2, 5, 3, 3, 1])
    if way == "none":
        return {}
    if way in ("latest", "earliest"):
        return {"endingOffsets": way}
    if way == "offsets":
        return {"endingOffsets": _offsets(choice, partitions, edge=-1, least=15)}
    if way == "time":
        return {"endingTimestamp": str(_time(choice))}
    return {"endingOffsetsByTimestamp": _times(choice, partitions)}


def _offsets(
    choice: random.Random, partitions: list[tuple[str, int]], *, edge: int, least: int
) -> str:
    """Offsets within the shortest log, mostly; now and then one partition is missing."""
    named = list(partitions)
    if named and choice.random() < 0.05:
        named.pop()
    return json.dumps(
        _nested(
            {
                (topic, number): edge
                if (topic, number) == ("orders", 2) or choice.random() < 0.3
                else choice.randint(least, least + 3)
                for topic, number in named
            }
        )
    )


def _time(choice: random.Random) -> int:
    return BASE_MS + choice.randint(-5, 60)


def _times(choice: random.Random, partitions: list[tuple[str, int]]) -> str:
    return json.dumps(_nested({one: _time(choice) for one in partitions}))


def _nested(values: dict[tuple[str, int], Any], *, as_list: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, number), value in values.items():
        if as_list:
            found.setdefault(topic, []).append(number)
        else:
            found.setdefault(topic, {})[str(number)] = value
    return found
