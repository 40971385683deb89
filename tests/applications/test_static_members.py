"""Static members of librdkafka and Java: a restart moves no partition, and of two with one id the older is fenced."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.applications.application import Application, Program
from tests.toolchain import require

_PARTITIONS = 4
_RECORDS = 40
_SESSION_MS = 120_000
"""Longer than any restart on a slow machine: nothing here waits for its end."""
_REBALANCED = re.compile(r"^% Group \S+ rebalanced .*: (assigned|revoked): (.*)$")

pytestmark = [pytest.mark.clients, pytest.mark.slow]


class Kcat(Program):
    """librdkafka, as the program kcat."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, instance: str) -> None:
        require("kcat")
        settings = (
            f"group.instance.id={instance}",
            f"session.timeout.ms={_SESSION_MS}",
            "heartbeat.interval.ms=500",
            "partition.assignment.strategy=range",
            "auto.offset.reset=earliest",
        )
        super().__init__(
            directory,
            *("kcat", "-b", bootstrap, "-G", topic, "-u", "-f", "%s\\n"),
            *(part for setting in settings for part in ("-X", setting)),
            topic,
        )

    @property
    def changes(self) -> Sequence[tuple[str, frozenset[int]]]:
        """Assignments and revocations, in their order."""
        found = map(_REBALANCED.match, self.error_lines)
        return [
            (one[1], frozenset(map(int, re.findall(r"\[(\d+)\]", one[2])))) for one in found if one
        ]

    @property
    def read(self) -> Sequence[str]:
        """The values of the records that it has read."""
        return self.lines


class Java(Application):
    """Java, as Kafka's verifiable consumer."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, instance: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        settings = directory / "settings"
        settings.write_text("heartbeat.interval.ms=500\n")
        super().__init__(
            directory,
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", topic, "--verbose"),
            *("--group-instance-id", instance, "--session-timeout", str(_SESSION_MS)),
            *("--reset-policy", "earliest", "--consumer.config", str(settings)),
        )

    @property
    def _events(self) -> Sequence[dict[str, object]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    @property
    def changes(self) -> Sequence[tuple[str, frozenset[int]]]:
        """Assignments and revocations, in their order."""
        return [
            (
                str(event["name"]).removeprefix("partitions_"),
                frozenset(one["partition"] for one in event["partitions"]),  # type: ignore[attr-defined]
            )
            for event in self._events
            if str(event["name"]).startswith("partitions_")
        ]

    @property
    def read(self) -> Sequence[str]:
        """The values of the records that it has read."""
        return [str(event["value"]) for event in self._events if event["name"] == "record_data"]


def held(member: Kcat | Java) -> frozenset[int]:
    """Its partitions, by the last change."""
    name, partitions = member.changes[-1] if member.changes else ("", frozenset())
    return partitions if name == "assigned" else frozenset()


@pytest.mark.parametrize("client", [Kcat, Java])
def test_a_static_member_keeps_its_partitions(
    tmp_path: Path,
    bootstrap: str,
    create: Callable[..., None],
    write: Callable[..., None],
    client: type[Kcat | Java],
) -> None:
    """Killed and started again, and then started a second time beside itself; the other member notices neither."""
    topic = f"static-{client.__name__}"
    create(topic, _PARTITIONS)
    one, two = (client(tmp_path / name, bootstrap, topic, name) for name in ("one", "two"))
    share = _PARTITIONS // 2
    for member in (one, two):
        member.start()
    for member in (one, two):
        member.wait_until(lambda member=member: len(held(member)) == share, "both have their share")
    assert not held(one) & held(two)
    changes, mine = two.changes, held(one)

    one.kill()
    before = len(one.changes)
    one.start()
    one.wait_until(lambda: len(one.changes) > before, "it is back")
    assert held(one) == mine
    texts = [str(number) for number in range(_RECORDS)]
    write(topic, texts, _PARTITIONS)
    for member in (one, two):
        member.wait_until(
            lambda member=member: len(member.read) == _RECORDS // 2, "its half is read"
        )
    assert sorted([*one.read, *two.read]) == sorted(texts)
    assert two.changes == changes

    newer = client(tmp_path / "newer", bootstrap, topic, "one")
    newer.start()
    newer.wait_until(lambda: held(newer) == mine, "the newer one has taken over")
    one.wait()
    assert re.search("fenced", one.said(), re.IGNORECASE)
    assert two.changes == changes
    for member in (newer, two):
        member.kill()
