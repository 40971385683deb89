"""Kafka Streams: a word count that is killed restores its counts from their changelog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.applications.application import Application
from tests.support.echoless import Echoless

_WORDS = [f"word{number}" for number in range(12)]
_ROUNDS = 15
_PARTITIONS = 2
_GROUP = "word-count"
_REPARTITION = "word-count-counts-repartition"
_CHANGELOG = "word-count-counts-changelog"

pytestmark = [pytest.mark.clients, pytest.mark.slow]


class _Counts:
    """The newest count of each word in the topic of the results."""

    def __init__(self, bootstrap: str) -> None:
        self.newest: dict[str, int] = {}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts"})
        self._consumer.assign([TopicPartition("counts", one, 0) for one in range(_PARTITIONS)])

    def reach(self, wanted: dict[str, int]) -> bool:
        """Whether every word was counted at least so often by now."""
        for message in self._consumer.consume(500, 0.2):
            if message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.newest[key.decode()] = int.from_bytes(value, "big")
        return all(self.newest.get(word, 0) >= count for word, count in wanted.items())

    def close(self) -> None:
        self._consumer.close()


def test_a_word_count_that_is_killed_goes_on_from_its_changelog(
    tmp_path: Path,
    broker: Echoless,
    create: Callable[..., None],
    write: Callable[..., None],
    committed: Callable[..., list[int]],
) -> None:
    """Killed in full flow no word is lost; killed at rest, without its directory, no count is."""
    bootstrap = broker.kafka_address
    create("lines", _PARTITIONS)
    create("counts", _PARTITIONS)
    lines = [" ".join(_WORDS)] * _ROUNDS

    def begun(number: int) -> Application:
        state = tmp_path / f"state-{number}"
        one = Application(tmp_path / f"run-{number}", "echoless.WordCount", bootstrap, str(state))
        one.start()
        return one

    counts = _Counts(bootstrap)
    running = begun(1)
    write("lines", lines, _PARTITIONS)
    running.wait_until(lambda: counts.reach(dict.fromkeys(_WORDS[:1], 1)), "counting has begun")
    running.kill()
    write("lines", lines, _PARTITIONS)
    running = begun(2)
    twice = dict.fromkeys(_WORDS, 2 * _ROUNDS)
    running.wait_until(lambda: counts.reach(twice), "every word of both halves is counted")
    running.wait_until(
        lambda: (
            sum(committed(_GROUP, "lines", _PARTITIONS)) == 2 * _ROUNDS
            and committed(_GROUP, _REPARTITION, _PARTITIONS) == _ends(bootstrap, _REPARTITION)
        ),
        "everything is committed",
    )
    counts.reach({})
    running.kill()
    before = dict(counts.newest)
    assert before.keys() == set(_WORDS)
    running = begun(3)
    write("lines", [" ".join(_WORDS)])
    once_more = {word: count + 1 for word, count in before.items()}
    running.wait_until(lambda: counts.reach(once_more), "every word is counted once more")
    running.kill()
    counts.close()
    assert counts.newest == once_more
    assert sum(_ends(bootstrap, _CHANGELOG)) > 0


def _ends(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    found = [
        consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=60.0)
        for one in range(_PARTITIONS)
    ]
    consumer.close()
    return [pair[1] for pair in found if pair is not None]
