"""Kafka Connect: lines of one file come to a topic and from there to another file, through kills of its workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from echoless.testkit.free_ports import free_port
from tests.applications.application import Application
from tests.applications.connect import Worker, sink, source, worker_settings

_LINES = [f"line {number}" for number in range(40)]
_HALF = len(_LINES) // 2
_PATIENCE_S = 90.0

pytestmark = [pytest.mark.clients, pytest.mark.slow]


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
    places: list[str] = []

    def is_told() -> bool:
        places.append(first.place("sink"))
        return bool(places[-1])

    first.process.wait_until(is_told, "the place of the sink is told")
    port = places[-1].rpartition(":")[2]
    victim = next(one for one in workers if str(one.port) == port)
    other = next(one for one in workers if one is not victim)
    victim.process.kill()
    with (tmp_path / "from").open("a") as lines_of_source:
        lines_of_source.writelines(f"{line}\n" for line in _LINES[_HALF:])
    other.process.wait_until(lambda: arrived(tmp_path) == _LINES, "everything has arrived")
    other.process.wait_until(
        lambda: other.place("sink").rpartition(":")[2] == str(other.port), "it has the sink"
    )
    other.process.kill()
    kinds = ("config", "offset", "status")
    assert [policy(bootstrap, f"connect-{kind}") for kind in kinds] == ["compact"] * len(kinds)


def policy(bootstrap: str, topic: str) -> str | None:
    """The clean-up policy of a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(_PATIENCE_S)
    return found["cleanup.policy"].value
