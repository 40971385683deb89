"""Real administration clients: the life of a topic with librdkafka, kafka-python and Kafka's tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.kafka_tools import run_tool
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients]


def test_librdkafka_administers_a_topic(echoless: Echoless) -> None:
    """Create, extend, describe, alter, empty and delete, each confirmed by the client's own result."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
    )

    def result(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(timeout=30)

    admin = AdminClient({"bootstrap.servers": echoless.kafka_address})
    result(admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "5000"})]))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        result(admin.create_topics([NewTopic("t", 2, 1)]))
    result(admin.create_partitions([NewPartitions("t", 3)]))
    assert len(admin.list_topics("t", timeout=30).topics["t"].partitions) == 3
    change = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[change])
    result(admin.incremental_alter_configs([topic]))
    configs = result(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "t")]))
    assert (configs["segment.bytes"].value, configs["retention.ms"].value) == ("1048576", "5000")
    result(admin.delete_records([TopicPartition("t", 0, -1)]))
    assert admin.describe_cluster().result(timeout=30).controller.id == 1
    result(admin.delete_topics(["t"]))
    assert "t" not in admin.list_topics(timeout=30).topics


def test_kafka_python_administers_a_topic(echoless: Echoless) -> None:
    """The same, by a client that encodes every request itself."""
    from kafka import TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(bootstrap_servers=echoless.kafka_address)
    admin.create_topics({"t": {"num_partitions": 2, "configs": {"retention.ms": "5000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({"t": {"num_partitions": 2}})
    admin.create_partitions({"t": 3})
    assert len(admin.describe_topics(["t"])[0]["partitions"]) == 3
    changes = {"segment.bytes": "1048576"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", changes)])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])
    values = {name: config["value"] for name, config in described["topic"]["t"].items()}
    assert values == {"segment.bytes": "1048576", "retention.ms": "5000"}
    deleted = admin.delete_records({TopicPartition("t", 0): -1})
    assert deleted[TopicPartition("t", 0)]["error_code"] == 0
    admin.delete_topics(["t"])
    assert admin.list_topics() == []
    admin.close()


@pytest.mark.slow
def test_kafkas_tools_administer_a_topic(echoless: Echoless, tmp_path: Path) -> None:
    """kafka-topics, kafka-configs, kafka-delete-records and kafka-cluster."""
    require("java", "kafka")
    server = ("--bootstrap-server", echoless.kafka_address)
    topics, configs = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
    run_tool(topics, *server, "--create", "--topic", "t", "--config", "retention.ms=5000")
    run_tool(topics, *server, "--alter", "--topic", "t", "--partitions", "3")
    assert "PartitionCount: 3" in run_tool(topics, *server, "--describe", "--topic", "t")
    entity = ("--entity-type", "topics", "--entity-name", "t")
    change = ("--add-config", "segment.bytes=1048576", "--delete-config", "retention.ms")
    run_tool(configs, *server, "--alter", *entity, *change)
    shown = run_tool(configs, *server, "--describe", *entity)
    assert "segment.bytes=1048576" in shown
    assert "retention.ms" not in shown
    offsets = tmp_path / "offsets.json"
    row = {"topic": "t", "partition": 0, "offset": -1}
    offsets.write_text(json.dumps({"partitions": [row], "version": 1}))
    deleted = run_tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        *server,
        *("--offset-json-file", str(offsets)),
    )
    assert "low_watermark: 0" in deleted
    dirs = run_tool("org.apache.kafka.tools.LogDirsCommand", *server, "--describe")
    (directory,) = json.loads(dirs.splitlines()[-1])["brokers"][0]["logDirs"]
    found = {row["partition"]: row["size"] for row in directory["partitions"]}
    assert (directory["error"], found) == (None, {"t-0": 0, "t-1": 0, "t-2": 0})
    assert "Cluster ID" in run_tool("org.apache.kafka.tools.ClusterTool", "cluster-id", *server)
    run_tool(topics, *server, "--delete", "--topic", "t")
    assert run_tool(topics, *server, "--list").split() == []
