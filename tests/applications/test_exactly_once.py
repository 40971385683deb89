"""Kafka Streams with `exactly_once_v2`: a word count that is killed again and again counts every word once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from operator import lt
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from echoless.protocol.record_batch import BatchHeader, walk
from tests.applications.application import Application
from tests.applications.tools import JARS, STREAMS_4_JARS
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_WORDS = [f"word{number}" for number in range(12)]
_LINE = " ".join(_WORDS)
_KILLS = 5
_LINES_AT_ONCE = 40
_PARTITIONS = 2
_WITHIN_S = 60.0
_SETTINGS = (
    "processing.guarantee=exactly_once_v2",
    "commit.interval.ms=400",
    "statestore.cache.max.bytes=0",  # every count is written, not only the newest of a commit
    "transaction.timeout.ms=4000",
)


class Reader:
    """Every count that a reader of committed records was given, by word and in order."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = defaultdict(list)
        self.records = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition("counts", one, 0) for one in range(_PARTITIONS)])

    def read(self) -> None:
        """Takes what is there by now."""
        for message in self._consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self.counts[key.decode()].append(int.from_bytes(value, "big"))
            self.records += 1

    def close(self) -> None:
        self._consumer.close()


class Counting:
    """The word count of one version of Streams, its input, and a reader of its results."""

    def __init__(self, bootstrap: str, directory: Path, jars: Path) -> None:
        self.committed = Reader(bootstrap)
        self.written = 0
        self._bootstrap = bootstrap
        self._directory = directory
        self._jars = jars
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def begun(self, life: int, state: str) -> Application:
        """A process that works in this directory of state."""
        one = Application(
            self._directory / f"run-{life}",
            "echoless.WordCount",
            *(self._bootstrap, str(self._directory / state), *_SETTINGS),
            jars=self._jars,
            classes=JARS / "classes",
        )
        one.start()
        return one

    def write(self, lines: int) -> None:
        """Writes lines, in turn to each partition."""
        for number in range(lines):
            self._producer.produce("lines", _LINE, partition=number % _PARTITIONS)
        assert self._producer.flush(_WITHIN_S) == 0
        self.written += lines

    def flow(self, lines: int) -> bool:
        """Writes two lines more; whether `lines` are counted, and a transaction is open by now."""
        self.write(_PARTITIONS)
        self.committed.read()
        return self.committed.records >= lines * len(_WORDS) and self._is_open()

    def _is_open(self) -> bool:
        ends = self._ends(IsolationLevel.READ_UNCOMMITTED)
        return any(map(lt, self._ends(IsolationLevel.READ_COMMITTED), ends))

    def _ends(self, isolation: IsolationLevel) -> list[int]:
        wanted = {TopicPartition("counts", one): OffsetSpec.latest() for one in range(_PARTITIONS)}  # type: ignore[no-untyped-call]
        found = self._admin.list_offsets(wanted, isolation_level=isolation)
        return [found[one].result(_WITHIN_S).offset for one in wanted]

    def is_done(self) -> bool:
        """Whether the last word of everything that was written is counted."""
        self.committed.read()
        return self.committed.records >= self.written * len(_WORDS)


def stored(broker: Echoless, *partitions: int) -> Iterator[BatchHeader]:
    """The headers of all batches of results in these partitions, in order, aborted ones and markers among them."""
    for partition in partitions:
        segments = sorted(broker.data_dir.rglob(f"counts-{partition}/*.log"))
        assert segments
        for segment in segments:
            yield from (header for _, header in walk(segment.read_bytes()))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Echoless]:
    """A broker whose members may have short sessions, with the topics of the word count."""
    settings = {"group_min_session_timeout_ms": "1000"}
    echoless = Echoless(tmp_path / "broker", settings)
    echoless.start()
    admin = AdminClient({"bootstrap.servers": echoless.kafka_address})
    topics = [NewTopic(name, _PARTITIONS, 1) for name in ("lines", "counts")]
    for future in admin.create_topics(topics).values():
        future.result(_WITHIN_S)
    yield echoless
    echoless.kill()


@pytest.mark.parametrize("jars", [JARS, STREAMS_4_JARS], ids=["3.9", "4.2"])
def test_a_word_count_that_is_killed_counts_every_word_once(
    tmp_path: Path, broker: Echoless, jars: Path
) -> None:
    """Readers of committed records are given 1, 2, 3, ... of each word, though more is stored: what was aborted.

    Streams 4 speaks the second generation of the protocol: every transaction has an epoch of its own (KIP-890).

    The last life but one has lost its directory and with it its transactional id: the transaction that its
    predecessor left open has to time out.
    """
    require("applications", "streams-4")
    counting = Counting(broker.kafka_address, tmp_path, jars)
    for life in range(_KILLS):
        running = counting.begun(life, "state" if life < _KILLS - 1 else "new")
        before = counting.written
        counting.write(_LINES_AT_ONCE)
        running.wait_until(partial(counting.flow, before), "it counts, and a transaction is open")
        running.kill()
    running = counting.begun(_KILLS, "new")
    running.wait_until(counting.is_done, "everything is counted")
    counting.write(_PARTITIONS)
    running.wait_until(counting.is_done, "two more lines are counted, in another transaction")
    running.kill()
    every = list(range(1, counting.written + 1))
    assert dict(counting.committed.counts) == dict.fromkeys(_WORDS, every)
    headers = stored(broker, *range(_PARTITIONS))
    records = sum(header.record_count for header in headers if not header.is_control)
    assert records > counting.committed.records, "something was aborted"
    ended = [(one.producer_id, one.producer_epoch) for one in stored(broker, 0) if one.is_control]
    has_new_epochs = len(set(ended)) == len(ended)
    assert has_new_epochs == (jars is STREAMS_4_JARS), ended
    counting.committed.close()
