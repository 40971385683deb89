"""Plays histories to both brokers, one request after the other, and compares every answer and every description.

Each history is played in two halves, between which both brokers are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.consumer_oracle.differences import ENDS, NAMES, explain
from tests.consumer_oracle.script import JOINS, TOPICS, Client, Script, Step
from tests.consumer_oracle.side import Partitions, Side
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic, nested, wait_for_leaders

Broker = tuple[RawConnection, dict[str, uuid.UUID]]
"""A connection to a broker, and the ids that it gave to the topics."""
_STEPS: Final = 40
"""In each half."""
_MEMORY: Final = Path("/dev/shm")
_SESSION_MS: Final = "3600000"
"""No member is forgotten: the first histories wait until all have been played, and both brokers restarted."""
_KAFKA: Final = {
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "num.io.threads": "1",
    "group.consumer.session.timeout.ms": _SESSION_MS,
    "group.consumer.max.session.timeout.ms": _SESSION_MS,
}
_ECHOLESS: Final = {
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "1",
    "group_consumer_session_timeout_ms": _SESSION_MS,
}


@dataclass(slots=True)
class Report:
    """The findings of a run."""

    histories: int = 0
    answers_compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """How often each named difference occurred."""
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{failure}\n" for failure in self.failures[:40]]
        lines += [f"{self.counts[name]:8}  {name}" for name in NAMES]
        lines.append(
            f"{self.histories} histories, {self.answers_compared} answers compared, "
            f"{len(self.failures)} failed"
        )
        return "\n".join(lines)


class History:
    """One group, played to both."""

    def __init__(self, seed: int, number: int, label: str) -> None:
        self._script = Script(f"c-{label}-{number}", random.Random(f"{seed} {number}"))
        self._name = f"history {number} of seed {seed}"
        self._owned: tuple[dict[str, Partitions], ...] = ({}, {})
        self._sides: Sequence[Side] = ()
        self._has_ended = False
        self._lines: list[str] = []
        self._members: list[Any] = []
        """As described after the last step that both answered alike."""

    async def play(self, brokers: Sequence[Broker], report: Report) -> None:
        """Play one half, or up to the first difference that divides the two groups."""
        self._sides = [
            Side(connection, topic_ids, owned)
            for (connection, topic_ids), owned in zip(brokers, self._owned, strict=True)
        ]
        for _ in range(_STEPS):
            if self._has_ended:
                return
            step = self._script.next()
            self._lines.append(str(step))
            self._has_ended = await self._is_over(step, report)

    async def _is_over(self, step: Step, report: Report) -> bool:
        kafka, echoless = [await side.ask(step) for side in self._sides]
        self._lines.append(f"     -> {echoless}")
        description = self._script.describe()
        theirs, ours = [await side.ask(description) for side in self._sides]
        report.answers_compared += 2
        self._heard(step, echoless)
        if kafka == echoless and theirs == ours:
            self._members = ours["groups"][0]["members"]
            return False
        found = explain(step, kafka, echoless, (theirs, ours), self._members)
        if not found:
            self._complain(report, (kafka, echoless), (theirs, ours))
            return True
        report.counts[found] += 1
        self._lines.append(f"     differs: {found}")
        return found in ENDS

    def _heard(self, step: Step, answer: Any) -> None:
        """Let the client that asked know of the answer."""
        client = next((one for one in self._script.clients if one.name == step.client), None)
        is_its_own = client is not None and step.values.get("member_id") == client.member
        if client is None or step.api != "consumer_group_heartbeat" or not is_its_own:
            return
        if answer["error_code"] == 0 and answer["member_epoch"] >= JOINS:
            client.epoch = answer["member_epoch"]
        elif not step.is_odd and answer["error_code"]:
            self._forget(client)

    def _forget(self, client: Client) -> None:
        for side in self._sides:
            side.owned.pop(client.member, None)
        client.restart()

    def _complain(self, report: Report, *pairs: tuple[Any, Any]) -> None:
        lines = [self._name, *self._lines[-40:]]
        for kafka, echoless in pairs:
            if kafka != echoless:
                lines += [f"  kafka    {kafka}", f"  echoless {echoless}"]
        report.failures.append("\n".join(lines))


class Contest:
    """Both brokers, ready to play."""

    def __init__(self, kafka: ApacheKafka, echoless: Echoless) -> None:
        self.report = Report()
        self._brokers = (kafka, echoless)
        self._is_new = True
        self._runs = 0

    def run(self, seed: int, numbers: Iterable[int]) -> Report:
        """Play these histories of the seed."""
        self._runs += 1
        histories = [History(seed, number, str(self._runs)) for number in numbers]
        asyncio.run(self._play(histories))
        for broker in self._brokers:
            broker.kill()
            broker.start()
        asyncio.run(self._play(histories))
        self.report.histories += len(histories)
        return self.report

    async def _play(self, histories: Sequence[History]) -> None:
        brokers: list[Broker] = []
        for broker in self._brokers:
            connection = await RawConnection.open(broker.kafka_address)
            brokers.append((connection, await _topic_ids(connection, is_new=self._is_new)))
        self._is_new = False
        for history in histories:
            await history.play(brokers, self.report)
        for connection, _ in brokers:
            await connection.close()


async def _topic_ids(connection: RawConnection, *, is_new: bool) -> dict[str, uuid.UUID]:
    """Returns the ids of the topics, once they and the groups' coordinator are there."""
    await connection.call("api_versions", 0)
    for name, partitions in TOPICS.items():
        if is_new:
            await create_topic(connection, name, partitions)
        else:
            await wait_for_leaders(connection, name, partitions)
    code = -1
    while code:
        found = await connection.call("find_coordinator", 4, key_type=0, coordinator_keys=("g",))
        code = found.coordinators[0].error_code
    code = -1
    while code not in (0, 69):
        described = await connection.call(
            "consumer_group_describe", 0, group_ids=("g",), include_authorized_operations=False
        )
        code = described.groups[0].error_code
    topics = tuple(
        nested("metadata", 12, "MetadataRequestTopic")(topic_id=None, name=name) for name in TOPICS
    )
    answer = await connection.call(
        "metadata",
        12,
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return {topic.name: topic.topic_id for topic in answer.topics}


@contextlib.contextmanager
def contest() -> Iterator[Contest]:
    """Start both brokers, in memory where there is some."""
    parent = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(
        prefix="consumer-oracle-", dir=parent, ignore_cleanup_errors=True
    ) as directory:
        kafka = ApacheKafka(Path(directory) / "kafka", _KAFKA, version=KafkaVersion.V4)
        echoless = Echoless(Path(directory) / "echoless", _ECHOLESS)
        try:
            kafka.start()
            echoless.start()
            yield Contest(kafka, echoless)
        finally:
            kafka.kill()
            echoless.kill()
