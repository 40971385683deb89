"""kafka-consumer-groups with every subcommand, against Echoless and Apache Kafka alike."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.applications.application import ToolRunner
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.toolchain import require

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_PATIENCE_S = 60.0
_RECORDS = 10
_MOVES = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-offset", "3"),
    ("--shift-by", "2"),
    ("--by-duration", "PT1H"),
    ("--to-datetime", "2030-01-01T00:00:00.000"),
    ("--to-current",),
)
_NUMBERS = re.compile(r"^(\S+) +(\S+) +(\d+) +(-|\d+) +(\d+) +(-|\d+)", re.MULTILINE)

pytestmark = [pytest.mark.clients, pytest.mark.kafka, pytest.mark.slow]


class Shown:
    """The tool, asked of one broker, whose output is made equal for equal groups."""

    def __init__(self, tools: ToolRunner, address: str) -> None:
        self._tools = tools
        self._address = address

    def __call__(self, *arguments: str) -> list[list[str]]:
        """The words of each line, without ids, addresses and empty lines, sorted."""
        lines = self._tools.run(_TOOL, "--bootstrap-server", self._address, *arguments)
        words = [re.sub(r"rdkafka-\S+", "MEMBER", line) for line in lines]
        words = [re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line) for line in words]
        return sorted(line.split() for line in words if line)


def played(tools: ToolRunner, address: str, directory: Path) -> dict[str, list[list[str]]]:
    """Ask for everything that the tool can do, of a group that has members and then has none."""
    shown = Shown(tools, address)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("tool", 2, 1)])["tool"].result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": address})
    for number in range(_RECORDS):
        producer.produce("tool", str(number), partition=number % 2)
    assert producer.flush(_PATIENCE_S) == 0
    member = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "tool",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    assigned: list[TopicPartition] = []
    member.subscribe(["tool"], on_assign=lambda _, found: assigned.extend(found))
    deadline = time.monotonic() + _PATIENCE_S
    while not assigned and time.monotonic() < deadline:
        member.poll(0.1)
    member.commit(offsets=[TopicPartition("tool", 0, 2)], asynchronous=False)
    group = ("--group", "tool")
    answers = {
        "list": shown("--list"),
        "list by state": shown("--list", "--state"),
        "list stable": shown("--list", "--state", "Stable"),
        "list by type": shown("--list", "--type"),
        "describe": shown("--describe", *group),
        "members": shown("--describe", *group, "--members"),
        "members in full": shown("--describe", *group, "--members", "--verbose"),
        "state": shown("--describe", *group, "--state"),
        "move with members": shown("--reset-offsets", *group, "--topic", "tool", "--to-latest"),
        "delete with members": shown("--delete", *group),
        "delete offsets with members": shown("--delete-offsets", *group, "--topic", "tool"),
        "describe nothing": shown("--describe", "--group", "none"),
    }
    member.close()
    for move in _MOVES:
        answers[f"show {move[0]}"] = shown("--reset-offsets", *group, "--topic", "tool:0", *move)
        answers[f"make {move[0]}"] = shown(
            "--reset-offsets", *group, "--topic", "tool", *move, "--execute"
        )
        answers[f"after {move[0]}"] = shown("--describe", *group)
    exported = shown("--reset-offsets", *group, "--all-topics", "--to-earliest", "--export")
    file = directory / "positions.csv"
    file.write_text("".join(f"{''.join(line)}\n" for line in exported))
    answers |= {
        "export": exported,
        "import": shown("--reset-offsets", *group, "--from-file", str(file), "--execute"),
        "all groups": shown("--describe", "--all-groups"),
        "state without members": shown("--describe", *group, "--state"),
        "delete offsets": shown("--delete-offsets", *group, "--topic", "tool:1"),
        "after the deletion": shown("--describe", *group),
        "delete": shown("--delete", *group),
        "delete again": shown("--delete", *group),
        "list at the end": shown("--list"),
    }
    return answers


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[ToolRunner]:
    """Kafka's tools in one JVM."""
    require("applications", "kafka")
    runner = ToolRunner(tmp_path / "tools")
    yield runner
    runner.close()


def test_every_subcommand_shows_what_it_shows_of_apache_kafka(
    tmp_path: Path, tools: ToolRunner
) -> None:
    """List, describe, reset, delete and delete offsets, with members and without."""
    echoless = Echoless(tmp_path / "echoless")
    kafka = ApacheKafka(tmp_path / "kafka")
    try:
        echoless.start()
        ours = played(tools, echoless.kafka_address, tmp_path)
        kafka.start()
        theirs = played(tools, kafka.kafka_address, tmp_path)
    finally:
        echoless.kill()
        kafka.kill()
    assert ours == theirs
    assert ["tool", "tool", "0", "2", "5", "3", "MEMBER", "/127.0.0.1", "rdkafka"] in ours[
        "describe"
    ]
    assert any(
        "68" in "".join(row) or "not empty" in " ".join(row) for row in ours["delete with members"]
    )
    assert ours["list at the end"] == []
