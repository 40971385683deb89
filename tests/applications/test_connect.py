"""Kafka Connect: lines of one file come to a topic and from there to another file, through kills of its workers."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.applications.application import Application
from tests.support.free_port import free_port

_LINES = [f"line {number}" for number in range(40)]
_HALF = len(_LINES) // 2
_PATIENCE_S = 90.0
_SESSION_MS = 3_000

pytestmark = [pytest.mark.clients, pytest.mark.slow]


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
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(directory / "from"),
        "topic": topic,
        "tasks.max": "1",
    }


def sink(directory: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": str(directory / "to"),
        "topics": topic,
        "tasks.max": "1",
    }


def arrived(directory: Path) -> list[str]:
    """The lines of the sink's file, each once, in the order in which they came first."""
    path = directory / "to"
    return list(dict.fromkeys(path.read_text().splitlines())) if path.exists() else []


def test_a_stand_alone_worker_goes_on_where_it_was_killed(
    tmp_path: Path, bootstrap: str, create: Callable[..., None]
) -> None:
    """Its source keeps its position in a file, its sink in a group: every line arrives, in order."""
    create("stand-alone")
    properties = tmp_path / "worker.properties"
    more = {"offset.storage.file.filename": str(tmp_path / "offsets")}
    properties.write_text(worker_settings(bootstrap, free_port(), **more))
    files = []
    for name, settings in (
        ("source", source(tmp_path, "stand-alone")),
        ("sink", sink(tmp_path, "stand-alone")),
    ):
        files.append(str(tmp_path / f"{name}.properties"))
        lines = {"name": f"stand-alone-{name}", **settings}.items()
        Path(files[-1]).write_text("".join(f"{key}={value}\n" for key, value in lines))
    worker = Application(
        tmp_path / "worker",
        "org.apache.kafka.connect.cli.ConnectStandalone",
        str(properties),
        *files,
    )
    (tmp_path / "from").write_text("".join(f"{line}\n" for line in _LINES[:_HALF]))
    worker.start()
    worker.wait_until(lambda: arrived(tmp_path) == _LINES[:_HALF], "the first half has arrived")
    worker.kill()
    with (tmp_path / "from").open("a") as lines_of_source:
        lines_of_source.writelines(f"{line}\n" for line in _LINES[_HALF:])
    worker.start()
    worker.wait_until(lambda: arrived(tmp_path) == _LINES, "everything has arrived")
    worker.kill()


class Worker:
    """A distributed worker and its REST interface."""

    def __init__(self, directory: Path, name: str, bootstrap: str) -> None:
        self.port = free_port()
        properties = directory / f"{name}.properties"
        topics = {
            f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")
        }
        factors = {
            f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")
        }
        more = {
            "group.id": "connect",
            "session.timeout.ms": str(_SESSION_MS),
            "heartbeat.interval.ms": "300",
            "rebalance.timeout.ms": "20000",
            "scheduled.rebalance.max.delay.ms": "500",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "2",
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


def test_distributed_workers_take_each_others_tasks_over(
    tmp_path: Path, bootstrap: str, create: Callable[..., None]
) -> None:
    """Two workers in a group of type `connect`; the one with the sink is killed, and every line arrives in order."""
    create("distributed")
    names = ("source", "sink")
    workers = [Worker(tmp_path, name, bootstrap) for name in ("first", "second")]
    first = workers[0]
    first.process.start()
    workers[1].process.start()
    for worker in workers:
        worker.process.wait_until(
            lambda worker=worker: worker.ask("/connectors") is not None, "its port answers"
        )
    (tmp_path / "from").write_text("".join(f"{line}\n" for line in _LINES[:_HALF]))
    made = {"source": source(tmp_path, "distributed"), "sink": sink(tmp_path, "distributed")}
    for name in names:
        settings = made[name]
        first.process.wait_until(
            lambda name=name, settings=settings: bool(
                first.ask(f"/connectors/{name}/config", settings)
            ),
            f"{name} is made",
        )
    first.process.wait_until(
        lambda: arrived(tmp_path) == _LINES[:_HALF], "the first half has arrived"
    )
    first.process.wait_until(lambda: all(map(first.is_running, names)), "all run")
    ports = [first.place(name).rpartition(":")[2] for name in names]
    victim = next(one for one in workers if str(one.port) == ports[1])
    other = next(one for one in workers if one is not victim)
    victim.process.kill()
    with (tmp_path / "from").open("a") as lines_of_source:
        lines_of_source.writelines(f"{line}\n" for line in _LINES[_HALF:])
    other.process.wait_until(lambda: arrived(tmp_path) == _LINES, "everything has arrived")
    deadline = time.monotonic() + _PATIENCE_S
    while other.place("sink").rpartition(":")[2] != str(other.port):
        assert time.monotonic() < deadline, other.process.said()
    other.process.kill()
    kinds = ("config", "offset", "status")
    assert [policy(bootstrap, f"connect-{kind}") for kind in kinds] == ["compact"] * len(kinds)


def policy(bootstrap: str, topic: str) -> str | None:
    """The clean-up policy of a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(_PATIENCE_S)
    return found["cleanup.policy"].value
