"""Spark's own Kafka source, by name and by pattern: killed in a batch, each record is stored once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.applications.spark_query import MEMBER, NAMED, PATTERN, QUERIES, Options
from tests.support.echoless import REPOSITORY
from tests.toolchain import require

_FIRST = {"spark-one": 2, "spark-two": 1}
"""Topics of the first life, and their partitions."""
_ROUNDS = 60
_PATIENCE_S = 400.0
_ASK_AGAIN_S = 0.1
_SAID = 4000

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.time_limit(1500)]


class Driver:
    """Python and its JVM, in a process group of their own."""

    def __init__(self, log: Path, options: Options) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.applications.spark_query", options.as_argument()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )

    def kill(self) -> None:
        """Sends SIGKILL to both at once. May be called repeatedly."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Polls until it is so; fails if the driver ends before."""
        deadline = time.monotonic() + _PATIENCE_S
        while not is_so():
            assert self._process.poll() is None, f"ended before {what}\n{self._said()}"
            assert time.monotonic() < deadline, f"not in {_PATIENCE_S} s: {what}\n{self._said()}"
            time.sleep(_ASK_AGAIN_S)

    def wait(self) -> None:
        """Waits until it ends by itself, which must be without an error."""
        assert self._process.wait(_PATIENCE_S) == 0, self._said()

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_SAID:]


class Outputs:
    """The topics that the queries write, read with a plain consumer as they grow."""

    def __init__(self, bootstrap: str) -> None:
        self.keys: dict[str, list[str]] = {query: [] for query in QUERIES}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge"})
        self._consumer.assign([TopicPartition(query, 0, 0) for query in QUERIES])

    def read(self) -> None:
        """Reads until nothing comes for a moment."""
        while (message := self._consumer.poll(_ASK_AGAIN_S)) is not None:
            assert message.error() is None, message.error()
            self.keys[message.topic() or ""].append((message.key() or b"").decode())

    def have(self, wanted: dict[str, set[str]]) -> bool:
        """Whether every key has been stored."""
        self.read()
        return all(keys <= set(self.keys[query]) for query, keys in wanted.items())

    def close(self) -> None:
        self._consumer.close()


def keys_of(topics: dict[str, int], rounds: int) -> set[str]:
    """The place of every record as the queries write it, `rounds` of them in each partition."""
    return {
        f"{topic}/{partition}/{offset}"
        for topic, partitions in topics.items()
        for partition in range(partitions)
        for offset in range(rounds)
    }


@pytest.fixture
def outputs(bootstrap: str, create: Callable[..., None]) -> Iterator[Outputs]:
    for query in QUERIES:
        create(query)
    found = Outputs(bootstrap)
    yield found
    found.close()


def test_spark_reads_by_name_and_by_pattern(
    tmp_path: Path,
    bootstrap: str,
    create: Callable[..., None],
    write: Callable[..., None],
    outputs: Outputs,
) -> None:
    """One topic that matches comes while there is no driver, another one while the second driver runs."""
    require("java", "spark-kafka")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    options = Options(bootstrap, str(tmp_path), ",".join(_FIRST), "spark-.*")

    def fill(topics: dict[str, int], *, is_new: bool) -> None:
        for topic, partitions in topics.items():
            if is_new:
                create(topic, partitions)
            write(topic, [topic] * (_ROUNDS * partitions), partitions)

    log = tmp_path / "driver.log"
    fill(_FIRST, is_new=True)
    first = Driver(log, options)
    try:
        for query in QUERIES:
            first.wait_until(options.held(query).exists, f"{query} has stored its second batch")
        groups = admin.list_consumer_groups().result().valid
    finally:
        first.kill()
    assert sum(group.group_id.startswith(MEMBER) for group in groups) == 1
    assert not any(group.group_id.startswith((NAMED, PATTERN)) for group in groups)
    between = {"spark-between": 2}
    fill(_FIRST, is_new=False)
    fill(between, is_new=True)
    second = Driver(log, options)
    try:
        named = keys_of(_FIRST, 2 * _ROUNDS)
        matching = named | keys_of(between, _ROUNDS)
        wanted = {query: named if query == NAMED else matching for query in QUERIES}
        second.wait_until(lambda: outputs.have(wanted), "all that was there is stored")
        later = {"spark-later": 1}
        fill(later, is_new=True)
        wanted = {
            query: keys if query == NAMED else keys | keys_of(later, _ROUNDS)
            for query, keys in wanted.items()
        }
        second.wait_until(lambda: outputs.have(wanted), "the topic that came later is stored")
        options.finish.touch()
        second.wait()
    finally:
        second.kill()
    outputs.read()
    assert {query: sorted(keys) for query, keys in outputs.keys.items()} == {
        query: sorted(keys) for query, keys in wanted.items()
    }
    assert json.loads(options.read.read_text()) == {
        query: len(keys) for query, keys in wanted.items()
    }
