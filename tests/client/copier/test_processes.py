"""Copiers of one group are killed, paused, stopped and doubled, and so is their broker; each record is copied once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition

from echoless.client.producer import Producer
from tests.client.copier.process import (
    COPIES,
    COPIES_PARTITIONS,
    PARTITIONS,
    TOPIC,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import LossyProxy
from tests.support.stored_values import read_stored_values
from tests.toolchain import require

pytestmark = [pytest.mark.crash, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[3]
RECORDS = 3_000
ROUNDS = 16
LINES_PER_ROUND_MAX = 6
COPIERS_MAX = 3
SESSION = "session_timeout_s=1.5"


class Broker(Protocol):
    def start(self) -> None: ...
    def kill(self) -> None: ...


class Copiers:
    """Processes that copy as members of one group."""

    def __init__(self, address: str, log: Path, options: Sequence[str]) -> None:
        self._address = address
        self._options = options
        self._log = log
        self._running: list[subprocess.Popen[str]] = []
        self._paused: list[subprocess.Popen[str]] = []
        self.killed = self.paused = self.stopped = 0

    def __len__(self) -> int:
        return len(self._running)

    def start(self, *options: str) -> subprocess.Popen[str]:
        module = "tests.client.copier.process"
        command = [sys.executable, "-m", module, self._address, "copiers", SESSION]
        command += [*self._options, *options]
        with self._log.open("a") as log:
            copier = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=REPOSITORY
            )
        self._running.append(copier)
        return copier

    def watch(self, copier: subprocess.Popen[str], lines: int) -> None:
        """Reads so many lines of its progress."""
        assert copier.stdout is not None
        for _ in range(lines):
            line = copier.stdout.readline()
            assert line, f"a copier ended by itself, with {copier.wait()}: {self._log.read_text()}"

    def any(self, dice: random.Random) -> subprocess.Popen[str]:
        return dice.choice(self._running)

    def kill(self, copier: subprocess.Popen[str]) -> None:
        self._end(copier, signal.SIGKILL)
        self.killed += 1

    def stop(self, copier: subprocess.Popen[str]) -> None:
        assert self._end(copier, signal.SIGTERM) == 0, self._log.read_text()
        self.stopped += 1

    def pause(self, copier: subprocess.Popen[str]) -> None:
        """Leaves it without a session: to the group it is dead until it is woken up."""
        copier.send_signal(signal.SIGSTOP)
        self._running.remove(copier)
        self._paused.append(copier)
        self.paused += 1

    def wake(self) -> None:
        for copier in self._paused:
            copier.send_signal(signal.SIGCONT)
        self._running += self._paused
        self._paused = []

    def finish(self) -> None:
        """Stops all, and copies to the end."""
        self.wake()
        while self._running:
            self.stop(self._running[0])
        last = self.start("ends=true")
        output, _ = last.communicate(timeout=120)
        self._running.remove(last)
        assert last.returncode == 0, self._log.read_text()
        assert output.endswith("done\n")

    def end(self) -> None:
        for copier in (*self._running, *self._paused):
            copier.kill()
            copier.communicate()

    def _end(self, copier: subprocess.Popen[str], what: signal.Signals) -> int:
        copier.send_signal(what)
        self._running.remove(copier)
        copier.communicate()
        return copier.returncode


def play(copiers: Copiers, broker: Broker, address: str, dice: random.Random) -> int:
    """Disturbs the copiers while records arrive; returns how often the broker was killed."""
    kills = 0
    with Producer(address) as producer:
        for turn in range(ROUNDS):
            for number in range(RECORDS * turn // ROUNDS, RECORDS * (turn + 1) // ROUNDS):
                value = b"%d" % number
                producer.send(TOPIC, value, partition=number % PARTITIONS)
            producer.flush()
            while len(copiers) < 1 or (len(copiers) < COPIERS_MAX and dice.random() < 0.3):
                copiers.start()
            copier = copiers.any(dice)
            copiers.watch(copier, dice.randint(1, LINES_PER_ROUND_MAX))
            action = dice.choice(["kill", "kill", "kill", "stop", "pause", "wake", "broker"])
            if action == "broker":
                broker.kill()
                broker.start()
                kills += 1
            elif action == "wake":
                copiers.wake()
            else:
                getattr(copiers, action)(copier)
    return kills


def check_copies(stored: Sequence[Sequence[bytes]]) -> None:
    """Every copy once, and those of an input partition in its order."""
    for partition, values in enumerate(stored):
        copies = [
            (int(number), int(part)) for number, _, part in (v.partition(b"/") for v in values)
        ]
        expected = [
            (number, part)
            for number in range(RECORDS)
            for part in range(2 if number % 7 == 0 else 1)
            if (number + part) % COPIES_PARTITIONS == partition
        ]
        for source in range(PARTITIONS):
            got = [one for one in copies if one[0] % PARTITIONS == source]
            assert got == [one for one in expected if one[0] % PARTITIONS == source]


def read_committed_values(address: str) -> list[list[bytes]]:
    """The committed copies of each partition, in order; no transaction is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(COPIES, index, 0) for index in range(COPIES_PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(COPIES_PARTITIONS)]
    ended: set[int | None] = set()
    while len(ended) < COPIES_PARTITIONS:
        one = consumer.poll(60)
        assert one is not None, f"only {ended} were read to their ends"
        if one.error() is None:
            found[one.partition() or 0].append(one.value() or b"")
        else:
            ended.add(one.partition())
    consumer.close()
    return found


@pytest.mark.parametrize("options", [(), ("transactions=true",)], ids=["stateful", "transactions"])
def test_each_record_is_copied_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Echoless: kills of copiers and of the coordinator, pauses, rebalances and lost answers."""
    dice = random.Random(21)
    with LossyProxy(7, fault_after_chunks_max=60) as proxy:
        settings = {
            "num_partitions": str(PARTITIONS),
            "group_min_session_timeout_ms": "1000",
        }
        broker = Echoless(tmp_path, settings, arguments=["--advertise", proxy.address])
        broker.start()
        proxy.target = broker.kafka_address
        _run(broker, proxy.address, broker.kafka_address, tmp_path, dice, *options)
        broker.kill()
    print(f"{proxy.swallowed} answers swallowed, {proxy.cut} connections cut")
    assert min(proxy.swallowed, proxy.cut) > 0


@pytest.mark.kafka
def test_each_record_is_copied_once_in_apache_kafka(tmp_path: Path) -> None:
    """The same with a real Apache Kafka."""
    require("java", "kafka")
    dice = random.Random(22)
    kafka = ApacheKafka(
        tmp_path,
        {
            "num.partitions": str(PARTITIONS),
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    kafka.start()
    _run(kafka, kafka.address, kafka.address, tmp_path, dice)
    kafka.kill()


def _run(
    broker: Broker,
    address: str,
    direct: str,
    directory: Path,
    dice: random.Random,
    *options: str,
) -> None:
    copiers = Copiers(address, directory / "copiers.log", options)
    try:
        kills = play(copiers, broker, direct, dice)
        copiers.finish()
    finally:
        copiers.end()
    if options:
        check_copies(read_committed_values(direct))
    else:
        check_copies(read_stored_values(direct, COPIES, COPIES_PARTITIONS))
    print(
        f"\n{copiers.killed} copiers killed, {copiers.paused} paused, {copiers.stopped} stopped, "
        f"{kills} kills of the broker"
    )
    assert min(copiers.killed, copiers.paused, copiers.stopped, kills) > 0
