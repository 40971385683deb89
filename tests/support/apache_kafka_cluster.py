"""Three real Apache Kafka 3.9.1 nodes in KRaft mode, broker and controller each, on free ports."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic

from echoless.testkit.free_ports import free_port
from tests.support.apache_kafka import ApacheKafka

_TOPIC_TIMEOUT_S = 60.0


class ApacheKafkaCluster:
    """`start` returns when all nodes accept requests; leaving the block kills them."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int = 3,
        jvm: Sequence[str] | None = None,
    ) -> None:
        ports = {node: free_port() for node in range(1, nodes + 1)}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in ports.items())
        self.nodes = [
            ApacheKafka(
                directory / f"kafka-{node}",
                {
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "default.replication.factor": str(nodes),
                    "broker.session.timeout.ms": "2000",  # others lead after a kill
                    **(settings or {}),
                },
                jvm=jvm,
                controller_port=port,
            )
            for node, port in ports.items()
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Starts all at once: a node is ready only when most controllers are there.

        Returns when every node knows all: librdkafka's requests fail while a broker is still
        joining.
        """
        starting = [threading.Thread(target=node.start) for node in self.nodes]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        assert all(node.process.is_running for node in self.nodes), self.nodes[0].process.log_tail()
        deadline = time.monotonic() + _TOPIC_TIMEOUT_S
        while not all(self._knows_all(node) for node in self.nodes):
            assert time.monotonic() < deadline, self.nodes[0].process.log_tail()

    def _knows_all(self, node: ApacheKafka) -> bool:
        admin = AdminClient({"bootstrap.servers": node.address, "log_level": 2})
        return len(admin.list_topics(timeout=_TOPIC_TIMEOUT_S).brokers) == len(self.nodes)

    def create_topic(self, name: str, partitions: int) -> None:
        """Creates it with a replica on every node."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=len(self.nodes))
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        admin.create_topics([topic])[name].result(_TOPIC_TIMEOUT_S)
