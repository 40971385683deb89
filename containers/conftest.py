"""Containers that tests ask for, and their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from containers.images import ECHOLESS
from containers.podman import Container, podman
from containers.waiting import wait_until

_PREFIX = "echoless-test-single"


@pytest.fixture
def run_broker() -> Iterator[Callable[..., Container]]:
    """Starts single brokers: `run_broker("--read-only")` takes options of `podman run`."""
    started: list[Container] = []

    def run(*options: str) -> Container:
        container = Container(f"{_PREFIX}-{len(started)}")
        container.remove()  # of a run that was cut off
        started.append(container)
        ports = [option for port in (9092, 9093, 8080) for option in ("-p", f"127.0.0.1::{port}")]
        podman("run", "--detach", "--name", container.name, *ports, *options, ECHOLESS)
        wait_until(lambda: "ready broker_id=1" in container.log(), "the ready line")
        return container

    yield run
    for container in started:
        container.remove()
