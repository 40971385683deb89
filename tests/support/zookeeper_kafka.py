"""A real Apache Kafka 3.9.1 that keeps its metadata in ZooKeeper, as before KRaft."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from echoless.testkit.free_ports import free_port
from tests.support.apache_kafka import JARS, KafkaVersion
from tests.support.server_process import ServerProcess

_READY: Final = re.compile(r"\[KafkaServer id=\d+\] started")
_LOG4J: Final = """\
log4j.rootLogger=WARN, console
log4j.logger.kafka.server.KafkaServer=INFO
log4j.logger.kafka.coordinator.transaction=INFO
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %m (%c)%n
"""


class ZooKeeperKafka:
    """One broker of the cluster that `zookeeper_hosts` (with a chroot) describes."""

    def __init__(
        self,
        directory: Path,
        zookeeper_hosts: str,
        broker_id: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{free_port()}"
        self.process = ServerProcess(_READY, directory / "kafka.log")
        self._properties = directory / "server.properties"
        self._log4j = directory / "log4j.properties"
        self._log4j.write_text(_LOG4J)
        lines = {
            "broker.id": str(broker_id),
            "zookeeper.connect": zookeeper_hosts,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(directory / "kafka-data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "num.io.threads": "2",
            "num.network.threads": "1",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "controlled.shutdown.enable": "false",
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))

    def start(self) -> None:
        """Returns when the broker accepts requests."""
        log4j = f"-Dlog4j.configuration=file:{self._log4j}"
        command = [
            "java",
            *KafkaVersion.V3_9.quick_start_jvm,
            log4j,
            "-cp",
            f"{JARS}/*",
            "kafka.Kafka",
        ]
        self.process.start([*command, str(self._properties)])

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        self.process.kill()
