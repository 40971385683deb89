"""A real Apache Kafka, 3.9 or 4: one KRaft node in combined mode, on free ports, in a directory.

The jars come from Maven Central through `tests/toolchain.py`. The JVM is tuned for a quick start, unless `jvm` says
otherwise.
"""

from __future__ import annotations

import enum
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from echoless.testkit.free_ports import free_port
from tests.support import quick_jvm
from tests.support.server_process import START_TIMEOUT_S, ServerProcess

_CACHE = (Path(__file__).parents[2] / ".cache").resolve()


class KafkaVersion(enum.Enum):
    """The brokers that the tests know. Version 4 logs with log4j 2."""

    V3_9 = "3.9.1"
    V4 = "4.2.0"

    @property
    def jars(self) -> Path:
        """The directory of its jars."""
        return _CACHE / f"kafka-{self.value}"

    @property
    def is_there(self) -> bool:
        return (self.jars / f"kafka_2.13-{self.value}.jar").exists()

    @property
    def class_archive(self) -> quick_jvm.ClassArchive:
        """For broker and tools, which have the same jars."""
        return quick_jvm.ClassArchive(f"kafka-{self.value}", self.jars)

    @property
    def quick_start_jvm(self) -> tuple[str, ...]:
        """Options of a JVM that has to start quickly."""
        return ("-Xms256m", "-Xmx512m", *quick_jvm.BASE, *self.class_archive.options())


JARS = KafkaVersion.V3_9.jars
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_FORMATTED: dict[tuple[KafkaVersion, str], dict[str, bytes]] = {}
"""The files of a new directory, by version and node."""
_READY = re.compile(r"Kafka Server started")
_PATIENT_MS = 60_000
"""The broker's session in its first life. A node that stood still for 3 s has fenced itself with one of 2 s, so that its
partitions had no leader for a moment, and then another leader epoch.
"""
_AGAIN_MS = 2_000
"""Session of the later lives: after a kill the controller waits this long before it lets the broker in again."""
_LOG4J = """\
log4j.rootLogger=WARN, console
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %m (%c)%n
"""
_LOG4J_2 = """\
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
"""


class ApacheKafka:
    """One broker. `start`, `kill` and `terminate` may follow each other on the same data."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        jvm: Sequence[str] | None = None,
        controller_port: int | None = None,
        more_listeners: Sequence[str] = (),
        version: KafkaVersion = KafkaVersion.V3_9,
    ) -> None:
        self._jvm = version.quick_start_jvm if jvm is None else jvm
        self.version = version
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.data_dir = directory / "kafka-data"
        self._properties = directory / "server.properties"
        self._log4j = directory / "log4j.properties"
        self.process = ServerProcess(_READY, directory / "kafka.log")
        directory.mkdir(parents=True, exist_ok=True)
        self._log4j.write_text(_LOG4J if version is KafkaVersion.V3_9 else _LOG4J_2)
        defaults = self._defaults(controller_port or free_port(), more_listeners)
        self._lines = {**defaults, **(settings or {})}
        self._node_id = self._lines["node.id"]
        self._write_properties(_PATIENT_MS)

    @property
    def kafka_address(self) -> str:
        """The same name as in `Echoless`."""
        return self.address

    def start(self) -> None:
        """Formats the directory if it is new; returns when the broker accepts requests."""
        if self.data_dir.exists():
            self._write_properties(_AGAIN_MS)
        else:
            self.format()
        self.process.start(self._java("kafka.Kafka", str(self._properties)))

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        self.process.kill()

    def terminate(self) -> None:
        """Shuts it down in a controlled way."""
        self.process.terminate()

    def format(self) -> None:
        """Writes the cluster id into the empty directory; `start` does it if it is missing.

        What Kafka's tool writes is the same for every node of the same number, so that it runs once in a process.
        """
        key = self.version, self._node_id
        if key not in _FORMATTED:
            command = self._java(
                "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._properties)
            )
            subprocess.run(command, check=True, capture_output=True, timeout=START_TIMEOUT_S)
            _FORMATTED[key] = {file.name: file.read_bytes() for file in self.data_dir.iterdir()}
            return
        self.data_dir.mkdir(parents=True)
        for name, data in _FORMATTED[key].items():
            (self.data_dir / name).write_bytes(data)

    def _write_properties(self, session_ms: int) -> None:
        """A session that is among the settings stays."""
        lines = {"broker.session.timeout.ms": str(session_ms), **self._lines}
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        log4j = (
            f"-Dlog4j.configuration=file:{self._log4j}",
            f"-Dlog4j2.configurationFile={self._log4j}",
        )
        jars = f"{self.version.jars}/*"
        return ["java", *self._jvm, *log4j, "-cp", jars, main_class, *arguments]

    def _defaults(self, controller_port: int, more_listeners: Sequence[str]) -> dict[str, str]:
        controller = f"CONTROLLER://127.0.0.1:{controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": ",".join([f"PLAINTEXT://{self.address}", controller, *more_listeners]),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "broker.heartbeat.interval.ms": "200",
            "num.io.threads": "2",
            "num.network.threads": "1",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "log.index.size.max.bytes": "65536",
            "num.recovery.threads.per.data.dir": "2",
            # A combined node would otherwise wait for a controller that is itself shutting down.
            "controlled.shutdown.max.retries": "1",
        }
