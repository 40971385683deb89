"""Transactions of families of clients at once, while every broker is killed: numbers and offsets are committed together."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.applications.servers import running
from tests.transactions.copied import INPUTS, OUTPUTS, PARTITIONS, read_all
from tests.transactions.families.writers import TransactionError, Writer, makers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.cluster,
    pytest.mark.clients,
    pytest.mark.time_limit(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_NUMBERS_AT_ONCE = 15
_ABORTED = 3
"""Every such transaction is aborted."""
_BETWEEN = 2
"""Transactions that each family commits before the next broker is killed."""
_APART = 1_000_000
"""Each family has numbers of its own."""
_WITHIN_S = 180.0
_ASK_AGAIN_S = 0.05
_KILLS = 3
"""One for each broker."""


class Family(threading.Thread):
    """One family that goes on from what is committed, as applications do it, until it is told to end."""

    def __init__(
        self, name: str, bootstrap: str, make: Callable[[str, str], Writer], first: int
    ) -> None:
        super().__init__(name=name)
        self.first = first
        self.committed = 0
        """Numbers that are committed, by the group's offset."""
        self.errors: Counter[str] = Counter()
        self.ends = threading.Event()
        self.failure: BaseException | None = None
        self._address = bootstrap
        self._make = make

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def _write(self) -> None:
        group = f"group-of-{self.name}"
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": group, "log_level": 0})
        writer, begun = self._make(self._address, group), 0
        while not self.ends.is_set():
            self.committed = self._offset(consumer)
            begun += 1
            try:
                writer.transact(
                    self.first + self.committed, _NUMBERS_AT_ONCE, is_commit=begun % _ABORTED != 0
                )
            except TransactionError as error:
                self.errors[str(error)] += 1
        self.committed = self._offset(consumer)
        writer.close()
        consumer.close()

    def _offset(self, consumer: Consumer) -> int:
        """How many numbers the group's committed offset is behind, once what is not decided is."""
        until = time.monotonic() + _WITHIN_S
        while True:
            try:
                (found,) = consumer.committed([TopicPartition(INPUTS, 0)], timeout=5.0)
            except KafkaException:
                assert time.monotonic() < until
                continue
            return max(found.offset - self.first, 0)


@pytest.mark.parametrize(
    ("names", "brokers"),
    [
        pytest.param(("aiokafka", "franz-go"), 3, id="three"),
        pytest.param(("kafka-python", "kafkajs"), 1, id="one"),
    ],
)
def test_numbers_and_offsets_are_committed_together(
    tmp_path: Path, names: tuple[str, ...], brokers: int
) -> None:
    """Whatever fails is begun anew from the committed offset: every number up to it is committed once, and aborted ones are stored.

    The broker of two families comes back at once: kafka-python waits for the coordinator that it knows, and kafkajs writes
    twice when a leader moves, as it sends what is stored already again with sequences of its own.
    """
    made = makers(tmp_path)
    with running(tmp_path / "brokers", brokers) as servers:
        admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 0})
        topics = [NewTopic(name, PARTITIONS, servers.replicas) for name in (INPUTS, OUTPUTS)]
        for future in admin.create_topics(topics).values():
            future.result(_WITHIN_S)
        families = [
            Family(name, servers.bootstrap, made[name], number * _APART)
            for number, name in enumerate(names)
        ]
        for family in families:
            family.start()
        try:
            for _ in range(_KILLS):
                _wait_for_more(families)
                servers.strike()
            _wait_for_more(families)
            servers.heal()
        finally:
            for family in families:
                family.ends.set()
            for family in families:
                family.join(_WITHIN_S)
        for family in families:
            assert family.failure is None, (family.name, family.failure)
        wanted = [
            b"%d" % number
            for family in families
            for number in range(family.first, family.first + family.committed)
        ]
        found = Counter(read_all(servers.bootstrap, "read_committed"))
        assert found == Counter(wanted), {one.name: one.errors for one in families}
        assert Counter(read_all(servers.bootstrap, "read_uncommitted")) > found


def _wait_for_more(families: list[Family]) -> None:
    """Waits until every family has committed some more."""
    wanted = {one: one.committed + _BETWEEN * _NUMBERS_AT_ONCE for one in families}
    until = time.monotonic() + _WITHIN_S
    while any(one.committed < count for one, count in wanted.items()):
        for one in families:
            assert one.failure is None, (one.name, one.failure)
        assert time.monotonic() < until, {one.name: (one.committed, one.errors) for one in families}
        time.sleep(_ASK_AGAIN_S)
