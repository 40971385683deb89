"""Containers for tests, and their cleanup."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

from containers.images import ECHOLESS
from containers.podman import Container, podman
from containers.waiting import wait_until
from tests.support.time_limit import TimeLimit

FAILED = pytest.StashKey[bool]()
"""Set on a failed test, for fixtures that then show more."""
_PREFIX = "echoless-test-single"


def pytest_configure(config: pytest.Config) -> None:
    """Bound the time of each test."""
    config.pluginmanager.register(TimeLimit(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells fixtures, at teardown, whether the test failed."""
    report = yield
    if call.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def run_broker() -> Iterator[Callable[..., Container]]:
    """Starts single brokers: `run_broker("--read-only")` takes options of `podman run`."""
    started: list[Container] = []

    def run(*options: str) -> Container:
        container = Container(f"{_PREFIX}-{len(started)}")
        container.remove()  # left by a run that was cut off
        started.append(container)
        ports = [option for port in (9092, 9093, 8080) for option in ("-p", f"127.0.0.1::{port}")]
        podman("run", "--detach", "--name", container.name, *ports, *options, ECHOLESS)
        wait_until(lambda: "ready broker_id=1" in container.log(), "the ready line")
        return container

    yield run
    for container in started:
        container.remove()
