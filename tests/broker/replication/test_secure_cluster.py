"""Brokers of a cluster that speak TLS and log in to each other, on a real ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.command import Command
from tests.support.certificates import Authority
from tests.support.cluster import Cluster

pytestmark = pytest.mark.cluster

_PATIENCE_S = 60.0


def test_replicas_follow_over_sasl_ssl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every port is closed to strangers, the first users come by ZooKeeper, and acks=all is kept."""
    authority = Authority(tmp_path / "certificates")
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    settings = authority.settings(
        "PLAINTEXT:SASL_SSL,NATIVE:SASL_SSL",
        sasl_inter_broker_username="broker",
        sasl_inter_broker_password="hunter2",
        min_insync_replicas="2",
    )
    with Cluster(tmp_path, settings, brokers=2) as cluster:
        cluster.zookeeper.start()
        place = ("--coordinator", f"zookeeper://{cluster.zookeeper.hosts('/echoless')}")
        for user in ("broker", "alice"):
            ran = Command(capsys)("users", "add", user, "--password-file", secret, *place)
            assert ran.code == 0, ran.err
        for broker_id in cluster.brokers:
            cluster.start_broker(broker_id)
        client = {
            "bootstrap.servers": ",".join(one.kafka_address for one in cluster.brokers.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.path),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "hunter2",
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 2, 2)])["t"].result(timeout=_PATIENCE_S)
        producer = Producer({**client, "enable.idempotence": True, "acks": "all"})
        errors = []
        for number in range(100):
            producer.produce("t", str(number), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(_PATIENCE_S) == 0
        assert errors == [None] * 100
        cluster.wait_until(cluster.is_in_sync)
