"""Plays groups of histories to both brokers, restarts both in between, and collects the verdict.

A group shares one pair of brokers, one variant of the settings and one restart; each history has
its own partitions. Apache Kafka runs through all groups, Echoless is restarted for each.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.differential.differences import NAMES
from tests.differential.expect import MismatchError
from tests.differential.generate import Generator
from tests.differential.history import History, Step, TopicKind
from tests.differential.judge import Judge, Pair
from tests.differential.play import Answer, Connect, Peer, Place, Player
from tests.differential.reference import KAFKA, Rules, echoless_rules
from tests.support.raw_batches import StoredBatch
from tests.support.raw_client import (
    RawConnection,
    create_topic,
    fetch_log,
    topic_id,
    wait_for_leaders,
)

_GROUP_SIZE_MAX = 250
_LANES = 6
"""Connections per broker, each playing one history at a time."""
_KAFKA_PRODUCE_VERSION_MAX = 11
_ECHOLESS_PRODUCE_VERSION_MAX = 13
_EXPIRATION_MS = 86_400_000

KAFKA_SETTINGS = {
    "auto.create.topics.enable": "false",
    "producer.id.expiration.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
}


class Broker(Protocol):
    """The interface of either broker in a run."""

    data_dir: Path

    @property
    def kafka_address(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def terminate(self) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The settings of one group."""

    restart: str
    """clean, kill, or lost snapshots: a clean one, but the snapshot files are gone."""
    accepts_unknown: bool
    window: int = 5

    @property
    def echoless_settings(self) -> dict[str, str]:
        return {
            "auto_create_topics_enable": "false",
            "unknown_producer_id": "accept" if self.accepts_unknown else "reject",
            "producer_state_batches_to_retain": str(self.window),
        }

    @property
    def echoless_rules(self) -> Rules:
        return echoless_rules(window=self.window, accepts_unknown=self.accepts_unknown)


VARIANTS = (
    Variant(restart="clean", accepts_unknown=True),
    Variant(restart="kill", accepts_unknown=False),
    Variant(restart="kill", accepts_unknown=True),
    Variant(restart="lost snapshots", accepts_unknown=True),
    Variant(restart="clean", accepts_unknown=False),
    Variant(restart="kill", accepts_unknown=True, window=9),
)


class Failure(NamedTuple):
    """One history in which something differed without a name."""

    history: History
    step_count: int
    """Requests up to the one that failed, itself included; all of them where a log differed."""
    transcript: str
    """The reason, and every request up to there with both answers."""

    def __str__(self) -> str:
        return self.transcript


@dataclass(slots=True)
class Report:
    """The findings of a run."""

    histories: int = 0
    answers_compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """How often each named difference was the reason for unequal answers."""
    failures: list[Failure] = field(default_factory=list)
    names: tuple[str, ...] = NAMES
    """The differences that should occur."""


@dataclass(slots=True)
class _Played:
    """One history with everything that both brokers answered."""

    history: History
    judge: Judge
    places: list[Place]
    answers: tuple[list[Answer], list[Answer]] = field(default_factory=lambda: ([], []))
    logs: tuple[list[list[StoredBatch]], list[list[StoredBatch]]] = field(
        default_factory=lambda: ([], [])
    )


class Contest:
    """Runs histories of one seed. `make_echoless` gives a broker that is not started yet."""

    def __init__(
        self,
        kafka: Broker,
        make_echoless: Callable[[dict[str, str]], Broker],
        seed: int,
        *,
        is_echoless: bool = True,
        open_other: Callable[[str], Awaitable[RawConnection]] = RawConnection.open,
    ) -> None:
        """`open_other` opens a connection to the address of the broker that is not `kafka`."""
        self.report = Report(names=NAMES if is_echoless else ())
        self._kafka = kafka
        self._make_echoless = make_echoless
        self._seed = seed
        self._is_echoless = is_echoless
        """False: the other broker is a second Kafka, and nothing may differ."""
        self._open_other = open_other

    def run(self, numbers: Sequence[int], seeds: Sequence[int] = ()) -> Report:
        """Play these histories of the contest's seed and of further `seeds`."""
        for variant, members in _groups(numbers):
            wanted = [(seed, number) for seed in (self._seed, *seeds) for number in members]
            for first in range(0, len(wanted), _GROUP_SIZE_MAX):
                group = wanted[first : first + _GROUP_SIZE_MAX]
                self._play_group(variant, [self.history(number, seed) for seed, number in group])
        return self.report

    def history(self, number: int, seed: int | None = None) -> History:
        """Make history `number` of the contest's seed, or of another one."""
        seed = self._seed if seed is None else seed
        accepts_unknown = variant_of(number).accepts_unknown
        now_ms = time.time_ns() // 1_000_000
        return Generator(seed, number, now_ms=now_ms, accepts_unknown=accepts_unknown).generate()

    def play_alone(self, history: History) -> Failure | None:
        """The failure of one history, which need not be the seed's; None if it passes."""
        failures = len(self.report.failures)
        self._play_group(variant_of(history.number), [history])
        return self.report.failures[-1] if len(self.report.failures) > failures else None

    def _play_group(self, variant: Variant, histories: Sequence[History]) -> None:
        echoless = self._make_echoless(variant.echoless_settings)
        echoless.start()
        try:
            asyncio.run(self._run_group(variant, histories, echoless))
        finally:
            echoless.kill()

    async def _run_group(
        self, variant: Variant, histories: Sequence[History], echoless: Broker
    ) -> None:
        brokers = (self._kafka, echoless)
        rules = variant.echoless_rules if self._is_echoless else KAFKA
        counts: Counter[TopicKind] = Counter()
        label = f"{self._seed}-{time.time_ns()}"
        group = [
            _Played(history, Judge(history, rules), _places(history, counts, label))
            for history in histories
        ]
        peers = [await self._create_topics(broker, counts, label) for broker in brokers]
        await _play(group, peers, half=0)
        if any(history.halves[1] for history in histories):
            await _restart(brokers, variant.restart)
            for broker in brokers:
                await _wait_for_leaders(self._connect(broker), counts, label)
        await _play(group, peers, half=1)
        for played in group:
            self._judge(played, variant)

    async def _create_topics(self, broker: Broker, counts: Counter[TopicKind], label: str) -> Peer:
        is_kafka = broker is self._kafka or not self._is_echoless
        connect = self._connect(broker)
        connection = await connect()
        topic_ids = {}
        for kind, partitions in counts.items():
            name = f"{kind.value}-{label}"
            await create_topic(connection, name, partitions, kind.configs)
            topic_ids[name] = await topic_id(connection, name)
        await connection.close()
        return Peer(
            connect=connect,
            produce_version_max=(
                _KAFKA_PRODUCE_VERSION_MAX if is_kafka else _ECHOLESS_PRODUCE_VERSION_MAX
            ),
            topic_ids=topic_ids,
        )

    def _connect(self, broker: Broker) -> Connect:
        open_one = RawConnection.open if broker is self._kafka else self._open_other
        return lambda: open_one(broker.kafka_address)

    def _judge(self, played: _Played, variant: Variant) -> None:
        judge, history = played.judge, played.history
        first_half = len(history.halves[0])
        steps = [*history.halves[0], *history.halves[1]]
        self.report.histories += 1
        done = 0
        try:
            for done, (step, *pair) in enumerate(zip(steps, *played.answers, strict=True)):
                if done == first_half:
                    lost = variant.restart == "lost snapshots"
                    now_ms = time.time_ns() // 1_000_000
                    judge.restart(now_ms, _EXPIRATION_MS, lost_snapshots=lost)
                judge.judge(step, Pair(*pair))
            for slot, logs in enumerate(zip(*played.logs, strict=True)):
                judge.judge_log(slot, logs)
        except MismatchError as mismatch:
            transcript = _transcript(played, steps, done, first_half, mismatch)
            self.report.failures.append(Failure(history, done + 1, transcript))
        self.report.answers_compared += judge.answers_compared
        self.report.counts += judge.counts


def variant_of(number: int) -> Variant:
    """The variant that history `number` is played under."""
    return VARIANTS[number % len(VARIANTS)]


def numbers_of_one_variant(count: int) -> Sequence[int]:
    """Numbers of histories that need one restart in all."""
    return range(0, count * len(VARIANTS), len(VARIANTS))


def summary(report: Report, *, failures_max: int) -> str:
    """The report in words; a named difference that never occurred is mentioned, too."""
    lines = [f"{failure}\n" for failure in report.failures[:failures_max]]
    lines += [f"{count:8}  {name}" for name, count in sorted(report.counts.items())]
    lines += [f"   never  {name}" for name in report.names if name not in report.counts]
    lines.append(
        f"{report.histories} histories, {report.answers_compared} answers compared, "
        f"{len(report.failures)} histories failed"
    )
    return "\n".join(lines)


def _groups(numbers: Sequence[int]) -> Iterator[tuple[Variant, list[int]]]:
    for remainder, variant in enumerate(VARIANTS):
        members = [number for number in numbers if number % len(VARIANTS) == remainder]
        if members:
            yield variant, members


def _places(history: History, counts: Counter[TopicKind], label: str) -> list[Place]:
    """Takes a fresh partition for every slot; `counts` says how many each topic needs."""
    places: list[Place] = []
    for kind in history.slots:
        places.append(Place(f"{kind.value}-{label}", counts[kind]))
        counts[kind] += 1
    return places


async def _play(group: Sequence[_Played], peers: Sequence[Peer], *, half: int) -> None:
    """Plays one half of every history to both brokers at the same time."""
    async with asyncio.TaskGroup() as tasks:
        for side, peer in enumerate(peers):
            waiting = iter(group)
            for _ in range(_LANES):
                tasks.create_task(_play_lane(waiting, side, peer, half))


async def _play_lane(waiting: Iterator[_Played], side: int, peer: Peer, half: int) -> None:
    player = Player(peer)
    for played in waiting:
        steps = played.history.halves[half]
        played.answers[side].extend(await player.play(steps, played.places))
        if half == 1:
            connection = await player.connection()
            for place in played.places:
                played.logs[side].append(await fetch_log(connection, *place))
    await player.close()


async def _restart(brokers: Sequence[Broker], how: str) -> None:
    """Stops and starts both, at the same time."""

    def restart(broker: Broker) -> None:
        if how == "kill":
            broker.kill()
        else:
            broker.terminate()
        if how == "lost snapshots":
            for path in broker.data_dir.rglob("*.snapshot"):
                path.unlink()
        broker.start()

    await asyncio.gather(*(asyncio.to_thread(restart, broker) for broker in brokers))


async def _wait_for_leaders(connect: Connect, counts: Counter[TopicKind], label: str) -> None:
    connection = await connect()
    for kind, partitions in counts.items():
        await wait_for_leaders(connection, f"{kind.value}-{label}", partitions)
    await connection.close()


def _transcript(
    played: _Played, steps: Sequence[Step], done: int, first_half: int, mismatch: MismatchError
) -> str:
    lines = [f"history {played.history.number} of seed {played.history.seed}: {mismatch}"]
    for index, (step, kafka, echoless) in enumerate(zip(steps, *played.answers, strict=True)):
        if index == first_half:
            lines.append("  --- restart ---")
        lines += [f"  {index}: {step}", f"       kafka:    {kafka}", f"       echoless: {echoless}"]
        if index == done:
            break
    return "\n".join(lines)
