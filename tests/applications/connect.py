"""Workers of Kafka Connect, and the settings of its file connectors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from echoless.testkit.free_ports import free_port
from tests.applications.application import Application
from tests.applications.servers import Servers
from tests.transactions.copied import read_all
from tests.transactions.open_transactions import is_open

_SESSION_MS = 3_000
_LINES_AT_ONCE = 50
_WITHIN_S = 60.0


def worker_settings(bootstrap: str, port: int, **more: str) -> str:
    """The properties of a worker."""
    settings = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "200",
        "plugin.discovery": "only_scan",
        "consumer.session.timeout.ms": str(_SESSION_MS),
        "consumer.heartbeat.interval.ms": "300",
        "consumer.auto.offset.reset": "earliest",
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def source(directory: Path, topic: str) -> dict[str, str]:
    """The lines of a file, as records."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(directory / "from"),
        "topic": topic,
        "tasks.max": "1",
    }


def sink(directory: Path, topic: str) -> dict[str, str]:
    """Records, as lines of another file."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": str(directory / "to"),
        "topics": topic,
        "tasks.max": "1",
    }


class Worker:
    """A distributed worker and its REST interface."""

    def __init__(
        self, directory: Path, name: str, bootstrap: str, *, replicas: int = 1, **settings: str
    ) -> None:
        """`settings` are further properties; each dot of a name is written as an underscore."""
        self.port = free_port()
        properties = directory / f"{name}.properties"
        topics = {
            f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")
        }
        factors = {
            f"{kind}.storage.replication.factor": str(replicas)
            for kind in ("config", "offset", "status")
        }
        more = {
            "group.id": "connect",
            "session.timeout.ms": str(_SESSION_MS),
            "heartbeat.interval.ms": "300",
            "rebalance.timeout.ms": "20000",
            "scheduled.rebalance.max.delay.ms": "500",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "2",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        properties.write_text(worker_settings(bootstrap, self.port, **topics, **factors, **more))
        self.process = Application(
            directory / name, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)
        )

    def ask(self, path: str, body: Any = None) -> Any:
        """Asks its REST interface; None while it cannot answer."""
        data = None if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_WITHIN_S) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None

    def is_running(self, connector: str) -> bool:
        """Whether the connector and its task run somewhere."""
        status = self.ask(f"/connectors/{connector}/status")
        parts = [status["connector"], *status["tasks"]] if status else []
        return len(parts) == 2 and all(one["state"] == "RUNNING" for one in parts)

    def place(self, connector: str) -> str:
        """The worker that runs the connector's task, or ran it last; empty while the status is not told."""
        status = self.ask(f"/connectors/{connector}/status")
        return str(status["tasks"][0]["worker_id"]) if status and status["tasks"] else ""


class ExactlyOnceSource:
    """A worker with exactly-once support, whose file source writes the lines of a growing file to a topic in transactions."""

    def __init__(self, directory: Path, servers: Servers, topic: str) -> None:
        """Makes the topic, of one partition."""
        admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(topic, 1, servers.replicas)])
        made[topic].result(_WITHIN_S)
        self._servers = servers
        self._file = directory / "from"
        self._topic = topic
        self._lines: list[bytes] = []
        self._settings = {
            **source(directory, topic),
            "exactly.once.support": "required",
            "transaction.boundary": "interval",
            "transaction.boundary.interval.ms": "400",
            "batch.size": "10",
        }
        self._worker = Worker(
            directory,
            "worker",
            servers.bootstrap,
            replicas=servers.replicas,
            group_id="exactly",
            exactly_once_source_support="enabled",
        )

    def start(self) -> None:
        """Starts the worker, and makes the connector."""
        self._write()
        self._worker.process.start()
        self._worker.process.wait_until(
            lambda: bool(self._worker.ask("/connectors/source/config", self._settings)),
            "the source is made",
        )

    def restart(self) -> None:
        """Kills the worker, and starts it again."""
        self._worker.process.kill()
        self._worker.process.start()

    def close(self) -> None:
        """Kills the worker."""
        self._worker.process.kill()

    def wait_until_open(self) -> None:
        """Waits until new lines are committed, and a transaction is open."""
        before = self.stored()
        self._worker.process.wait_until(
            lambda: self._comes(before + 1) and is_open(self._servers.admins(), self._topic),
            "lines are committed, and a transaction is open",
        )

    def wait_until_written(self) -> None:
        """Waits until each line that is in the file by now is committed."""
        wanted = len(self._lines)
        self._worker.process.wait_until(lambda: self._comes(wanted), "every line is written")

    def check(self) -> int:
        """Checks that the committed lines are the first ones of the file, in order and once each; returns their number."""
        found = self._read("read_committed")
        assert found == self._lines[: len(found)]
        return len(found)

    def stored(self) -> int:
        """The number of records that any reader is given."""
        return len(self._read("read_uncommitted"))

    def _comes(self, count: int) -> bool:
        """Writes more, without which Connect does not look at its interval; whether so many lines are committed."""
        self._write()
        return len(self._read("read_committed")) >= count

    def _write(self) -> None:
        new = [b"line %d" % (len(self._lines) + number) for number in range(_LINES_AT_ONCE)]
        with self._file.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in new))
        self._lines += new

    def _read(self, isolation: str) -> list[bytes]:
        return read_all(self._servers.bootstrap, isolation, self._topic, 1)
