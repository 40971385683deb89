"""Fixtures that several rooms share: real servers, each in a separate process."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import hypothesis.strategies._internal.types  # see below
import pytest
import uvloop

from echoless.broker import limited_log
from tests.support import open_descriptors, quick_jvm
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.echoless import SOURCES, Echoless
from tests.support.fresh_seed import seed_line
from tests.support.time_limit import TimeLimit, TimeLimitExceeded
from tests.support.zookeeper import ZooKeeper
from tests.toolchain import require, require_for

# pytest rewrites the modules of Hypothesis as they are imported. kio imports this one in a thread, and if another thread
# has one rewritten meanwhile, CPython 3.11 fails with "AST constructor recursion depth mismatch": so it is here already.

# A deadline per example measures how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile("echoless", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
"""`make check` runs with this one; `make test` with the other, and its 100 examples."""
hypothesis.settings.load_profile("echoless")
quick_jvm.quicken_spark()

_HEAVY = ("spark", "cluster", "crash", "kafka", "clients", "browser")
"""Markers of tests that start servers."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Runs tests on the broker's own loop, whose transports are not quite asyncio's."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: at the end none is left that keeps one processor busy alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    heavy = {item.path for item in items if any(map(item.get_closest_marker, _HEAVY))}
    items.sort(key=lambda item: (item.path not in slow, item.path not in heavy))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test by name, before any fixture, if a tool of its markers is missing."""
    require_for(item)


class _FailuresAtOnce:
    """Prints each failure when it happens, so that a run that is cut short still names them."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print where a test failed, and why."""
        terminal = self._plugins.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(
                f"\n{report.nodeid} failed in its {report.when} after {report.duration:.1f} s"
            )
            terminal.write_line(report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    """Bound each test, and print failures at once, in the one process that prints."""
    config.pluginmanager.register(TimeLimit(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


def pytest_report_header() -> str:
    """Name the seed of the histories that are new with each commit."""
    return seed_line()


class _Unretrieved(logging.Handler):
    """Collects asyncio's complaints about exceptions that were never retrieved."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        ended = record.exc_info is not None and isinstance(record.exc_info[1], TimeLimitExceeded)
        if "never retrieved" in line and not ended:
            self.lines.append(line)


@pytest.fixture(autouse=True)
def _clean_logs() -> Iterator[None]:
    """Fails a test that leaves an exception no one has retrieved, or logging switched off for the next.

    Each test may log as much as a new process.
    """
    handler = _Unretrieved()
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    limited_log.forget_all()
    yield
    logger.removeHandler(handler)
    assert not handler.lines, "\n".join(handler.lines)
    silenced, logging.root.manager.disable = logging.root.manager.disable, logging.NOTSET
    assert silenced == logging.NOTSET, (
        "later tests would see no log lines: logging.disable was not undone"
    )


_ROOMS = frozenset(link.name for link in (SOURCES / "echoless").iterdir() if link.is_symlink())


@pytest.fixture(autouse=True)
def _one_package() -> Iterator[None]:
    """Fails a test after which a room is loaded from the top of the tree: a second copy of everything in it."""
    yield
    assert not _ROOMS & sys.modules.keys(), "import it as a part of echoless"


@pytest.fixture(autouse=True)
def _few_descriptors() -> Iterator[None]:
    """Fails the test after which this process has too many descriptors open."""
    yield
    assert (said := open_descriptors.complaint()) is None, said


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One Apache Kafka for the whole run; tests keep apart by topic names."""
    require("java", "kafka")
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache-kafka"))
    kafka.start()
    yield kafka
    kafka.kill()


@pytest.fixture(scope="session")
def apache_kafka_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """The same, version 4."""
    require("java", "kafka-4")
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache-kafka-4"), version=KafkaVersion.V4)
    kafka.start()
    yield kafka
    kafka.kill()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One ZooKeeper for the whole run, never stopped; tests keep apart by `fresh_hosts()`."""
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def start_echoless(tmp_path: Path) -> Iterator[Callable[..., Echoless]]:
    """Starts brokers: `start_echoless(settings)`; all are killed when the test ends."""
    brokers: list[Echoless] = []

    def start(settings: dict[str, str] | None = None, **options: object) -> Echoless:
        broker = Echoless(tmp_path / f"broker-{len(brokers)}", settings, **options)  # type: ignore[arg-type]
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.kill()


@pytest.fixture
def echoless(start_echoless: Callable[..., Echoless]) -> Echoless:
    """One broker with the default configuration."""
    return start_echoless()
