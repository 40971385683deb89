"""Workers of Kafka Connect, and the settings of its file connectors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.applications.application import Application
from tests.support.free_port import free_port

_SESSION_MS = 3_000


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
            with urllib.request.urlopen(request, timeout=20.0) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None

    def is_running(self, connector: str) -> bool:
        """Whether the connector and its task run somewhere."""
        status = self.ask(f"/connectors/{connector}/status")
        parts = [status["connector"], *status["tasks"]] if status else []
        return len(parts) == 2 and all(one["state"] == "RUNNING" for one in parts)

    def place(self, connector: str) -> str:
        """The worker that runs the connector's task."""
        status = self.ask(f"/connectors/{connector}/status")
        return str(status["tasks"][0]["worker_id"])
