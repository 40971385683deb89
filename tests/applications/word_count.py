"""The word count of Kafka Streams with `exactly_once_v2`, its lines, and a reader of its committed counts."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.applications.application import Application
from tests.applications.servers import Servers
from tests.applications.tools import JARS
from tests.transactions.open_transactions import is_open

WORDS: Final = [f"word{number}" for number in range(12)]
PARTITIONS: Final = 2
COUNTS: Final = "counts"
"""The topic of the results."""
_LINES: Final = "lines"
_LINE: Final = " ".join(WORDS)
_WITHIN_S: Final = 60.0
_SETTINGS: Final = (
    "processing.guarantee=exactly_once_v2",
    "commit.interval.ms=400",
    "statestore.cache.max.bytes=0",  # every count is written, not only the newest of a commit
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
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(COUNTS, one, 0) for one in range(PARTITIONS)])

    def read(self) -> None:
        """Takes what is there by now. A broker that is away is not an error: what it has comes later."""
        for message in self._consumer.consume(500, 0.1):
            if (error := message.error()) is not None:
                assert error.retriable(), error
                continue
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self.counts[key.decode()].append(int.from_bytes(value, "big"))
            self.records += 1

    def close(self) -> None:
        self._consumer.close()


class Counting:
    """The word count of one version of Streams, its input, and a reader of its results."""

    def __init__(self, servers: Servers, directory: Path, jars: Path) -> None:
        """Makes its topics, too."""
        self.written = 0
        self._servers = servers
        self._directory = directory
        self._jars = jars
        self._settings = (*_SETTINGS, f"replication.factor={servers.replicas}")
        client = {"bootstrap.servers": servers.bootstrap, "log_level": 0}
        admin = AdminClient(client)
        topics = [NewTopic(name, PARTITIONS, servers.replicas) for name in (_LINES, COUNTS)]
        for future in admin.create_topics(topics).values():
            future.result(_WITHIN_S)
        self._producer = Producer({**client, "enable.idempotence": True})
        self.committed = Reader(servers.bootstrap)

    def begun(self, life: int, state: str, *settings: str) -> Application:
        """A process that works in this directory of state, with further settings."""
        one = Application(
            self._directory / f"run-{life}",
            "echoless.WordCount",
            *(self._servers.bootstrap, str(self._directory / state), *self._settings, *settings),
            jars=self._jars,
            classes=JARS / "classes",
        )
        one.start()
        return one

    def write(self, lines: int) -> None:
        """Writes lines, in turn to each partition."""
        for number in range(lines):
            self._producer.produce(_LINES, _LINE, partition=number % PARTITIONS)
        assert self._producer.flush(_WITHIN_S) == 0
        self.written += lines

    def flow(self, lines: int) -> bool:
        """Writes two lines more; whether `lines` are counted, and a transaction is open by now."""
        self.write(PARTITIONS)
        self.committed.read()
        is_counted = self.committed.records >= lines * len(WORDS)
        return is_counted and is_open(self._servers.admins(), COUNTS)

    def is_done(self) -> bool:
        """Whether the last word of everything that was written is counted."""
        self.committed.read()
        return self.committed.records >= self.written * len(WORDS)

    def wanted(self) -> dict[str, list[int]]:
        """The counts of a reader to whom nothing is given twice, and from whom nothing is kept."""
        return {word: list(range(1, self.written + 1)) for word in WORDS}
