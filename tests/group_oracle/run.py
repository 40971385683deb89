"""Plays many histories at once to one pair of brokers, restarts both, and plays on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.group_oracle.differences import NAMES
from tests.group_oracle.play import Played, Player
from tests.group_oracle.script import TOPICS
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic, wait_for_leaders

_LANES: Final = 12
_STEPS: Final = (40, 15)
"""Before and after the restart."""
_AT_ONCE: Final = 60
FAILURES_SHOWN: Final = 10
_MEMORY: Final = Path("/dev/shm")
_KAFKA: Final = {
    "group.min.session.timeout.ms": "1000",
    "num.io.threads": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
}
_ECHOLESS: Final = {
    "group_min_session_timeout_ms": "1000",
    "offsets_topic_num_partitions": "1",
    "auto_create_topics_enable": "false",
}


@dataclass(slots=True)
class Report:
    """The findings of a run."""

    histories: int = 0
    answers_compared: int = 0
    expiries: int = 0
    too_slow: int = 0
    """Histories that this machine played so slowly that sessions may have ended by chance; they are not judged."""
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, played: Played) -> None:
        if played.was_slow:
            self.too_slow += 1
            return
        self.histories += 1
        self.answers_compared += played.answers_compared
        self.expiries += played.expiries
        self.counts += played.counts
        if played.failure:
            self.failures.append(played.failure)

    def __str__(self) -> str:
        lines = [f"{failure}\n" for failure in self.failures[:FAILURES_SHOWN]]
        lines += [f"{count:8}  {name}" for name, count in sorted(self.counts.items())]
        lines += [f"   never  {name}" for name in NAMES if name not in self.counts]
        lines.append(
            f"{self.histories} histories, {self.answers_compared} answers compared, "
            f"{self.expiries} members forgotten, {self.too_slow} histories too slow to judge, "
            f"{len(self.failures)} failed"
        )
        return "\n".join(lines)


class Contest:
    """Both brokers, ready to play."""

    def __init__(self, kafka: ApacheKafka, echoless: Echoless) -> None:
        self.report = Report()
        self._brokers = (kafka, echoless)
        self._labels = itertools.count()
        self._is_new = True

    def run(self, seed: int, numbers: Iterable[int]) -> Report:
        """Play these histories of the seed."""
        waiting = list(numbers)
        while waiting:
            group, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            label = f"{next(self._labels)}"
            players = [Player(seed, number, label) for number in group]
            asyncio.run(self._play(players, _STEPS[0]))
            for broker in self._brokers:
                broker.kill()
                broker.start()
            for player in players:
                player.restarted()
            asyncio.run(self._play(players, _STEPS[1]))
            for player in players:
                self.report.add(player.played)
        return self.report

    @property
    def _addresses(self) -> tuple[str, str]:
        kafka, echoless = self._brokers
        return kafka.kafka_address, echoless.kafka_address

    async def _play(self, players: Sequence[Player], steps: int) -> None:
        for address in self._addresses:
            await _prepare(address, is_new=self._is_new)
        self._is_new = False
        waiting = iter(players)
        async with asyncio.TaskGroup() as lanes:
            for _ in range(_LANES):
                lanes.create_task(_play_lane(waiting, self._addresses, steps))


async def _play_lane(waiting: Iterator[Player], addresses: tuple[str, str], steps: int) -> None:
    for player in waiting:
        await player.play(addresses, steps)


async def _prepare(address: str, *, is_new: bool) -> None:
    """Returns when the topics are there and the groups have a coordinator that answers."""
    connection = await RawConnection.open(address)
    for name in TOPICS:
        if is_new:
            await create_topic(connection, name, 2)
        else:
            await wait_for_leaders(connection, name, 2)
    code = -1
    while code:
        found = await connection.call("find_coordinator", 4, key_type=0, coordinator_keys=("g",))
        code = found.coordinators[0].error_code
    code = -1
    while code:
        found = await connection.call(
            "describe_groups", 5, groups=("g",), include_authorized_operations=False
        )
        code = found.groups[0].error_code
    await connection.close()


@contextlib.contextmanager
def contest() -> Iterator[Contest]:
    """Start both brokers, in memory where there is some."""
    parent = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(
        prefix="group-oracle-", dir=parent, ignore_cleanup_errors=True
    ) as directory:
        kafka = ApacheKafka(Path(directory) / "kafka", _KAFKA)
        echoless = Echoless(Path(directory) / "echoless", _ECHOLESS)
        try:
            kafka.start()
            echoless.start()
            yield Contest(kafka, echoless)
        finally:
            kafka.kill()
            echoless.kill()


def play(seed: int, numbers: Iterable[int]) -> Report:
    """Start both brokers, and play these histories of the seed."""
    began = time.monotonic()
    with contest() as both:
        report = both.run(seed, numbers)
    print(f"played in {time.monotonic() - began:.1f} s")
    return report
