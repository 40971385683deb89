"""Kafka 4's tool for groups, about a group of librdkafka in the consumer protocol, of Echoless and of Apache Kafka alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.kafka_tools import run_tool
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.kafka]

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_PATIENCE_S = 120.0
_PARTITIONS = 4


@pytest.fixture(params=["echoless", "apache-kafka-4"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    require("java", "kafka-4")
    server: Echoless | ApacheKafka
    if request.param == "echoless":
        server = Echoless(tmp_path)
    else:
        server = ApacheKafka(tmp_path, version=KafkaVersion.V4)
    server.start()
    yield server.kafka_address
    server.kill()


def shown(address: str, *arguments: str) -> list[list[str]]:
    """The words of each line of the tool."""
    printed = run_tool(
        _TOOL, *("--bootstrap-server", address), *arguments, jars=KafkaVersion.V4.jars
    )
    return sorted(line.split() for line in printed.splitlines() if line.strip())


def member(address: str, name: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "group.protocol": "consumer",
            "group.instance.id": name,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["^tool.*"])
    return consumer


def test_the_tool_of_kafka_4_shows_a_group_of_the_consumer_protocol(address: str) -> None:
    """Epochs, what members have and are to have, offsets and state; and deletes it when it is empty."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("tool", _PARTITIONS, 1)])["tool"].result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": address})
    for number in range(2 * _PARTITIONS):
        producer.produce("tool", str(number), partition=number % _PARTITIONS)
    assert producer.flush(_PATIENCE_S) == 0
    members = [member(address, name) for name in ("a", "b")]
    read: set[bytes | str | None] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while len(read) < 2 * _PARTITIONS or any(len(one.assignment()) != 2 for one in members):
        assert time.monotonic() < deadline, f"{len(read)} records, {members}"
        for one in members:
            message = one.poll(0.1)
            if message is not None and message.error() is None:
                read.add(message.value())
                one.commit(message, asynchronous=False)
    rows = shown(address, "--describe", "--group", "g", "--members", "--verbose")[1:]
    assert sorted((row[2], row[4], row[5]) for row in rows) == [("a", "a", "2"), ("b", "b", "2")]
    assert [row[6:8] for row in rows] == [[row[8], row[9]] for row in rows], "at their targets"
    offsets = shown(address, "--describe", "--group", "g")[1:]
    assert [row[3:6] for row in offsets] == [["2", "2", "0"]] * _PARTITIONS
    (state,) = [
        row for row in shown(address, "--describe", "--group", "g", "--state") if "g" in row
    ]
    assert state[-3:] == ["uniform", "Stable", "2"]
    assert ["g", "Consumer"] in shown(address, "--list", "--type", "consumer")
    for one in members:
        one.close()
    answer = admin.delete_consumer_groups(["g"])["g"]
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        answer.result(_PATIENCE_S)  # static members stay until their sessions end
