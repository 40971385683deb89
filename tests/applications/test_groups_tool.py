"""kafka-consumer-groups with every subcommand and option, against Echoless and Apache Kafka alike."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.applications.application import ToolRunner
from tests.applications.tools import JARS
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.echoless import Echoless
from tests.toolchain import require

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_PATIENCE_S = 60.0
_RECORDS = 10
_MOVES = (
    ("--to-earliest",),
    ("--shift-by", "100"),
    ("--shift-by", "-100"),
    ("--to-latest",),
    ("--to-offset", "3"),
    ("--shift-by", "2"),
    ("--by-duration", "PT1H"),
    ("--to-datetime", "2030-01-01T00:00:00.000"),
    ("--to-current",),
)
_GROUP = ("--group", "tool")
_MEMBER_ID = re.compile(r"rdkafka-\S+|(?<!\S)[\w+/-]{22}(?!\S)")
"""librdkafka's id and a number, or 16 bytes in base64."""

pytestmark = [pytest.mark.clients, pytest.mark.kafka, pytest.mark.slow]


class Shown:
    """The tool, asked of one broker, whose output is made equal for equal groups."""

    def __init__(self, tools: ToolRunner, address: str) -> None:
        self._tools = tools
        self._address = address

    def __call__(self, *arguments: str) -> list[list[str]]:
        """The words of each line, without ids, addresses and empty lines, sorted."""
        lines = self._tools.run(_TOOL, "--bootstrap-server", self._address, *arguments)
        words = [_MEMBER_ID.sub("MEMBER", line) for line in lines]
        words = [re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line) for line in words]
        return sorted(line.split() for line in words if line)


def joined(address: str, protocol: str) -> Consumer:
    """Fill a topic, and return a member of one group that has committed; another group has a commit alone."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("tool", 2, 1)])["tool"].result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": address})
    for number in range(_RECORDS):
        producer.produce("tool", str(number), partition=number % 2)
    assert producer.flush(_PATIENCE_S) == 0
    settings = {"bootstrap.servers": address, "enable.auto.commit": False}
    simple = Consumer({**settings, "group.id": "simple"})
    simple.commit(offsets=[TopicPartition("tool", 1, 4)], asynchronous=False)
    simple.close()
    member = Consumer({**settings, "group.id": "tool", "group.protocol": protocol})
    assigned: list[TopicPartition] = []
    member.subscribe(["tool"], on_assign=lambda _, found: assigned.extend(found))
    deadline = time.monotonic() + _PATIENCE_S
    while not assigned and time.monotonic() < deadline:
        member.poll(0.1)
    member.commit(offsets=[TopicPartition("tool", 0, 2)], asynchronous=False)
    return member


def asked_with_a_member(shown: Shown) -> dict[str, list[list[str]]]:
    """Ask for everything that can be asked of a group with a member."""
    asked = {
        "list": ("--list",),
        "list by state": ("--list", "--state"),
        "list stable": ("--list", "--state", "Stable"),
        "list two states": ("--list", "--state", "stable,empty"),
        "list by type": ("--list", "--type"),
        "list one type": ("--list", "--type", "consumer"),
        "list types of a state": ("--list", "--type", "classic,consumer", "--state", "stable"),
        "describe": ("--describe", *_GROUP),
        "offsets": ("--describe", *_GROUP, "--offsets"),
        "offsets in full": ("--describe", *_GROUP, "--offsets", "--verbose"),
        "members": ("--describe", *_GROUP, "--members"),
        "members in full": ("--describe", *_GROUP, "--members", "--verbose"),
        "state": ("--describe", *_GROUP, "--state"),
        "state in full": ("--describe", *_GROUP, "--state", "--verbose"),
        "all groups": ("--describe", "--all-groups"),
        "members of all": ("--describe", "--all-groups", "--members", "--verbose"),
        "states of all": ("--describe", "--all-groups", "--state"),
        "move with members": ("--reset-offsets", *_GROUP, "--topic", "tool", "--to-latest"),
        "delete with members": ("--delete", *_GROUP),
        "delete offsets with members": ("--delete-offsets", *_GROUP, "--topic", "tool"),
        "describe nothing": ("--describe", "--group", "none"),
        "members of nothing": ("--describe", "--group", "none", "--members"),
        "state of nothing": ("--describe", "--group", "none", "--state"),
    }
    return {name: shown(*arguments) for name, arguments in asked.items()}


def asked_without_members(shown: Shown, directory: Path) -> dict[str, list[list[str]]]:
    """Move the positions in every way, and delete everything in the end."""
    answers = {}
    for move in _MOVES:
        name = " ".join(move)
        one, both = ("--topic", "tool:0"), ("--topic", "tool")
        answers[f"show {name}"] = shown("--reset-offsets", *_GROUP, *one, *move)
        answers[f"try {name}"] = shown("--reset-offsets", *_GROUP, *one, *move, "--dry-run")
        answers[f"make {name}"] = shown("--reset-offsets", *_GROUP, *both, *move, "--execute")
        answers[f"after {name}"] = shown("--describe", *_GROUP)
    answers |= {
        "two partitions": shown(
            "--reset-offsets", *_GROUP, "--topic", "tool:0,1", "--to-offset", "1", "--execute"
        ),
        "move all": shown("--reset-offsets", "--all-groups", "--all-topics", "--to-latest"),
        "all groups after": shown("--describe", "--all-groups"),
        "states after": shown("--describe", "--all-groups", "--state"),
        "members after": shown("--describe", "--all-groups", "--members"),
    }
    for name, groups in (("one group", _GROUP), ("all groups", ("--all-groups",))):
        exported = shown("--reset-offsets", *groups, "--all-topics", "--to-earliest", "--export")
        file = directory / f"{name}.csv"
        file.write_text("".join(f"{''.join(line)}\n" for line in exported))
        imported = ("--reset-offsets", *groups, "--from-file", str(file))
        answers |= {
            f"export of {name}": exported,
            f"import tried of {name}": shown(*imported, "--dry-run"),
            f"import of {name}": shown(*imported, "--execute"),
            f"after the import of {name}": shown("--describe", "--all-groups"),
        }
    deletions = {
        "delete offsets": ("--delete-offsets", *_GROUP, "--topic", "tool:1"),
        "after the deletion": ("--describe", *_GROUP),
        "delete offsets of nothing": ("--delete-offsets", *_GROUP, "--topic", "none"),
        "delete offsets of no group": ("--delete-offsets", "--group", "none", "--topic", "tool"),
        "delete": ("--delete", *_GROUP),
        "delete again": ("--delete", *_GROUP, "--group", "simple"),
        "delete all": ("--delete", "--all-groups"),
        "list at the end": ("--list",),
    }
    return answers | {name: shown(*arguments) for name, arguments in deletions.items()}


def played(
    tools: ToolRunner, address: str, directory: Path, protocol: str
) -> dict[str, list[list[str]]]:
    """Ask for everything that the tool can do, of a group that has a member and then has none."""
    shown = Shown(tools, address)
    member = joined(address, protocol)
    answers = asked_with_a_member(shown)
    member.close()
    return answers | asked_without_members(shown, directory)


@pytest.mark.parametrize(
    ("version", "protocol"),
    [(KafkaVersion.V3_9, "classic"), (KafkaVersion.V4, "classic"), (KafkaVersion.V4, "consumer")],
)
def test_every_subcommand_shows_what_it_shows_of_apache_kafka(
    tmp_path: Path, version: KafkaVersion, protocol: str
) -> None:
    """List, describe, reset, delete and delete offsets, with a member and without."""
    require("applications", "kafka", "kafka-4")
    jars = JARS if version is KafkaVersion.V3_9 else version.jars
    tools = ToolRunner(tmp_path / "tools", jars)
    echoless = Echoless(tmp_path / "echoless")
    kafka = ApacheKafka(tmp_path / "kafka", version=version)
    try:
        echoless.start()
        ours = played(tools, echoless.kafka_address, tmp_path, protocol)
        kafka.start()
        theirs = played(tools, kafka.kafka_address, tmp_path, protocol)
    finally:
        tools.close()
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
