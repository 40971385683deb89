"""The tools that tests need beyond pip: `python -m tests.toolchain` gets them, tests ask `require`.

A marker may ask for all tests that have it (`require_for`).

Run by `make test` before pytest. An unavailable tool is not an error here: its tests are skipped by
name with the reason, or fail if CI=true is set.

To add a tool, append a `Tool` below; `tools.py` in some folders adds its own as `TOOLS`.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support import quick_jvm
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.tool import Tool, ToolError, debian_program, run
from tests.support.zookeeper import ZooKeeper, ZooKeeperVersion

_MAVEN = Path(__file__).parent / "support" / "maven"
_FURTHER_TOOLS = ("applications", "compatibility", "console", "pipeline", "testkit", "upgrade")
"""Folders with their own `tools.py`. (An image of the quick tests lacks some of them.)"""


def _fetch_kafka_jars() -> None:
    _copy_jars(_MAVEN / "pom.xml", KafkaVersion.V3_9.jars)


def _fetch_kafka_4_jars() -> None:
    _copy_jars(_MAVEN / "kafka-4" / "pom.xml", KafkaVersion.V4.jars)


def _fetch_zookeeper_jars() -> None:
    _copy_jars(_MAVEN / "zookeeper" / "pom.xml", ZooKeeperVersion.V3_9.jars)


def _has_spark_kafka_jars() -> bool:
    from echoless.pipeline.kafka_connector import has_jars

    return has_jars()


def _fetch_spark_kafka_jars() -> None:
    from echoless.pipeline.kafka_connector import ConnectorError, fetch_jars

    try:
        fetch_jars()
    except ConnectorError as error:
        raise ToolError(str(error)) from error


def _classes_of_kafka(version: KafkaVersion, needed: str) -> Tool:
    def train() -> None:
        with tempfile.TemporaryDirectory() as directory:
            kafka = ApacheKafka(Path(directory), version=version)
            kafka.start()
            kafka.process.terminate(quick_jvm.TRAINING_S)

    return version.class_archive.tool(train, needed)


def _classes_of_zookeeper() -> Tool:
    def train() -> None:
        with tempfile.TemporaryDirectory() as directory:
            zookeeper = ZooKeeper(Path(directory))
            zookeeper.start()
            zookeeper.process.terminate(quick_jvm.TRAINING_S)

    return ZooKeeperVersion.V3_9.class_archive.tool(train, "zookeeper")


def _classes_of_spark() -> list[Tool]:
    archive = quick_jvm.spark_archive()
    return [] if archive is None else [archive.tool(quick_jvm.train_spark, "java")]


def _copy_jars(pom: Path, directory: Path) -> None:
    goal = "dependency:copy-dependencies"
    run(["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={directory}"])


_OWN_TOOLS = (
    debian_program(
        "java", "default-jdk-headless", used_by="everything with Apache Kafka or ZooKeeper"
    ),
    debian_program("mvn", "maven", used_by="Apache Kafka's and ZooKeeper's jars, the Java clients"),
    debian_program("go", "golang", used_by="the Go clients"),
    debian_program("node", "nodejs", used_by="the JavaScript clients"),
    debian_program("npm", "npm", used_by="the JavaScript clients"),
    debian_program("ip", "iproute2", used_by="the nemesis, to give brokers hosts of their own"),
    debian_program("iptables", "iptables", used_by="the nemesis, to cut links"),
    debian_program(
        "chromium",
        "chromium",
        used_by="the console, and the attacks of a web page on the admin port",
    ),
    debian_program("kcat", "kcat", used_by="the groups of real clients"),
    debian_program("faketime", "faketime", used_by="the test of a clock that is set"),
    debian_program("openssl", "openssl", used_by="the tests of TLS with ZooKeeper"),
    debian_program(
        "spin", "spin", "gcc", "libc6-dev", used_by="the models of how transactions are ended"
    ),
    Tool(
        name="kafka",
        used_by="the oracle and every other test marked `kafka`",
        is_present=lambda: KafkaVersion.V3_9.is_there,
        prepare=_fetch_kafka_jars,
        needs=("java", "mvn"),
    ),
    Tool(
        name="kafka-4",
        used_by="the tests of our producer with Apache Kafka 4",
        is_present=lambda: KafkaVersion.V4.is_there,
        prepare=_fetch_kafka_4_jars,
        needs=("java", "mvn"),
    ),
    Tool(
        name="zookeeper",
        used_by="the tests of several brokers and every other test marked `cluster`",
        is_present=lambda: ZooKeeperVersion.V3_9.is_there,
        prepare=_fetch_zookeeper_jars,
        needs=("java", "mvn"),
    ),
    Tool(
        name="spark-kafka",
        used_by="the mirror, and Spark's own Kafka sink beside ours",
        is_present=_has_spark_kafka_jars,
        prepare=_fetch_spark_kafka_jars,
        needs=("java", "mvn"),
    ),
)


_TOOLS_OF_MARKER: Final = {"cluster": ("java", "zookeeper")}
"""The tools that every test with a marker needs, whatever it starts."""


@functools.cache
def tools() -> dict[str, Tool]:
    """Every tool by name, each after those that it needs."""
    found = [
        *_OWN_TOOLS,
        _classes_of_kafka(KafkaVersion.V3_9, "kafka"),
        _classes_of_kafka(KafkaVersion.V4, "kafka-4"),
        _classes_of_zookeeper(),
        *_classes_of_spark(),
    ]
    for folder in _FURTHER_TOOLS:
        if (Path(__file__).parent / folder / "tools.py").exists():
            found += importlib.import_module(f"tests.{folder}.tools").TOOLS
    return {tool.name: tool for tool in found}


def require(*names: str) -> None:
    """Skips the calling test, or fails it under CI=true, when a tool is missing."""
    for name in names:
        tool = tools()[name]
        if not tool.is_present():
            reason = f"{name} is missing ({tool.used_by}); `python -m tests.toolchain` says why"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)


def require_for(test: pytest.Item) -> None:
    """Asks for the tools of the test's markers, so that no test has to remember to."""
    for marker, names in _TOOLS_OF_MARKER.items():
        if test.get_closest_marker(marker) is not None:
            require(*names)


def prepare_all() -> dict[str, str]:
    """Prepares every missing tool; returns the reason for each that stays missing."""
    missing: dict[str, str] = {}
    for tool in tools().values():
        lacking = [name for name in tool.needs if name in missing]
        if lacking:
            missing[tool.name] = f"needs {', '.join(lacking)}"
        elif (reason := _prepare(tool)) is not None:
            missing[tool.name] = reason
    return missing


def _prepare(tool: Tool) -> str | None:
    if tool.is_present():
        return None
    begun = time.monotonic()
    try:
        tool.prepare()
    except ToolError as error:
        return str(error)
    if not tool.is_present():
        return "it was prepared, and is still not there"
    print(f"toolchain: {tool.name} prepared in {time.monotonic() - begun:.1f} s")
    return None


def main() -> int:
    """Prints what will be skipped and why; always succeeds, as the tests decide what that means."""
    missing = prepare_all()
    for name, reason in missing.items():
        print(f"toolchain: no {name}, so these are skipped: {tools()[name].used_by}. {reason}")
    print(f"toolchain: {len(tools()) - len(missing)} of {len(tools())} tools are there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
