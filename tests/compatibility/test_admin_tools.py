"""Apache Kafka's administration tools, against Echoless and against Apache Kafka alike."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.compatibility.kafka_tools import refused_tool, run_tool
from tests.compatibility.programs import LIBRDKAFKA
from tests.toolchain import require

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_RECORDS = 60

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture(scope="module", params=["echoless", "apache-kafka"])
def address(request: pytest.FixtureRequest) -> str:
    """The server's address."""
    require("java", "kafka")
    name = "broker" if request.param == "echoless" else "apache_kafka"
    return str(request.getfixturevalue(name).kafka_address)


def _run(main_class: str, address: str, *arguments: str) -> str:
    return run_tool(main_class, "--bootstrap-server", address, *arguments)


def test_a_topics_life(address: str) -> None:
    """kafka-topics and kafka-configs see each other's changes, and the topic is gone at the end."""
    topic = ("--topic", "grown")
    settings = (
        "--partitions",
        "2",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=3600000",
    )
    _run(_TOPICS, address, "--create", *topic, *settings)
    _run(_TOPICS, address, "--alter", *topic, "--partitions", "5")
    configs, entity = (
        "kafka.admin.ConfigCommand",
        ("--entity-type", "topics", "--entity-name", "grown"),
    )
    _run(configs, address, "--alter", *entity, "--add-config", "segment.bytes=1048576")
    described = _run(_TOPICS, address, "--describe", *topic)
    assert "PartitionCount: 5\t" in described
    assert "retention.ms=3600000" in described
    _run(configs, address, "--alter", *entity, "--delete-config", "retention.ms")
    shown = _run(configs, address, "--describe", *entity)
    assert "segment.bytes=1048576" in shown
    assert "retention.ms" not in shown
    _run(_TOPICS, address, "--delete", *topic)
    assert "grown" not in _run(_TOPICS, address, "--list").splitlines()


@pytest.mark.parametrize("entity", [("--entity-name", "1"), ("--entity-default",)])
def test_settings_of_brokers_change_while_they_run(address: str, entity: tuple[str, ...]) -> None:
    """kafka-configs sets, describes and deletes them, for one broker and for all; others are refused by name."""
    configs, brokers = "kafka.admin.ConfigCommand", ("--entity-type", "brokers", *entity)
    source = "DYNAMIC_BROKER_CONFIG" if len(entity) > 1 else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    names = "log.cleaner.backoff.ms=20000,message.max.bytes=900000"
    _run(configs, address, "--alter", *brokers, "--add-config", names)
    shown = _run(configs, address, "--describe", *brokers)
    assert f"message.max.bytes=900000 sensitive=false synonyms={{{source}:" in shown
    assert "log.cleaner.backoff.ms=20000" in shown
    one = ("--entity-type", "brokers", "--entity-name", "1", "--all")
    everything = _run(configs, address, "--describe", *one)
    assert f"message.max.bytes=900000 sensitive=false synonyms={{{source}:" in everything
    both = "message.max.bytes,log.cleaner.backoff.ms"
    _run(configs, address, "--alter", *brokers, "--delete-config", both)
    assert "=" not in _run(configs, address, "--describe", *brokers).partition("are:")[2]
    refused = refused_tool(
        configs,
        *("--bootstrap-server", address, "--alter", *brokers, "--add-config", "broker.rack=r2"),
    )
    assert "Cannot update these configs dynamically" in refused
    assert "broker.rack" in refused


def test_producers_are_described_and_records_deleted(address: str, tmp_path: Path) -> None:
    """kafka-transactions shows the producer's last sequence; kafka-delete-records moves the start."""
    topic = "described"
    _run(_TOPICS, address, "--create", "--topic", topic, "--partitions", "1")
    where = {"bootstrap": address, "topic": topic, "partitions": 1}
    now_ms = int(time.time() * 1000)  # old records fall to retention, in both servers
    LIBRDKAFKA.run("produce", **where, count=_RECORDS, seed=1, base_timestamp=now_ms)
    partition = ("--topic", topic, "--partition", "0")
    described = _run(
        "org.apache.kafka.tools.TransactionsCommand", address, "describe-producers", *partition
    )
    names, row = (line.split() for line in described.splitlines()[-2:])
    producer = dict(zip(names, row, strict=True))
    assert int(producer["ProducerId"]) >= 0
    assert (producer["ProducerEpoch"], producer["LastSequence"]) == ("0", str(_RECORDS - 1))

    offsets = tmp_path / "offsets.json"
    wanted = {"topic": topic, "partition": 0, "offset": _RECORDS // 2}
    offsets.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    _run(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        address,
        *("--offset-json-file", str(offsets)),
    )
    earliest = ("--topic", topic, "--time", "earliest")
    shown = _run("org.apache.kafka.tools.GetOffsetShell", address, *earliest)
    assert shown.strip() == f"{topic}:0:{_RECORDS // 2}"


def test_api_versions_are_listed(address: str) -> None:
    """kafka-broker-api-versions finds every API that an idempotent producer needs usable."""
    shown = _run("kafka.admin.BrokerApiVersionsCommand", address)
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "InitProducerId(22)"):
        assert re.search(rf"{re.escape(api)}: .*\[usable: \d+\]", shown), api


def test_producer_performance_runs(address: str) -> None:
    """kafka-producer-perf-test sends its records, with idempotence as by default."""
    shown = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "performance", "--num-records", "5000", "--record-size", "1000"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={address}"),
    )
    assert shown.splitlines()[-1].startswith("5000 records sent")
