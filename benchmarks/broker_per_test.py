"""The cost of a broker for each test, beside one broker for all: time, memory, ports, descriptors.

    python -m benchmarks.broker_per_test [--tests 500] [--workers 4] [--modes test,session]

Each test has the topic `orders` and the group `billing` (with one broker for all their names have to differ), stores three
records, commits a position and reads both back. pytest runs them under pytest-xdist; what its processes and all brokers
take is read from /proc. Wall times mean something on an idle machine alone; processor time says more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from tests.support.process_tree import processes_below

_FILES: Final = 20
_EVERY_S: Final = 0.5
_KIB: Final = 1024
_LISTENING: Final = "0A"
_TESTS: Final = """
import uuid

import pytest

from echoless.client.connection import BrokerConnection


@pytest.mark.parametrize("number", range({count}))
def test_orders({fixture}, number):
    broker = {fixture}
    suffix = {suffix}
    topic, group = broker.topic(f"orders{{suffix}}"), f"billing{{suffix}}"
    batch = {{"topic": topic, "partition": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}}
    values = [f"order {{n}}".encode() for n in range(3)]
    broker.native.call("produce", **batch, records=[{{"value": one}} for one in values])
    host, _, port = broker.bootstrap_servers.rpartition(":")
    row = {{"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}}
    commit = {{"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}}
    with BrokerConnection.open(host, int(port)) as connection:
        while connection.request("find_coordinator", {{"key_type": 0, "coordinator_keys": [group]}}).coordinators[0].error_code:
            pass
        topics = [{{"name": topic, "partitions": [row]}}]
        while connection.request("offset_commit", {{**commit, "topics": topics}}).topics[0].partitions[0].error_code:
            pass
        asked = {{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}}
        (found,) = connection.request("offset_fetch", {{"groups": [asked], "require_stable": False}}).groups
    assert [one.name for one in found.topics] == [topic]
    assert [one.value for one in broker.records(topic)] == values
"""
_CONFTEST: Final = """
import time

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    began = time.perf_counter()
    outcome = yield
    if fixturedef.argname == "{fixture}":
        with open("waits", "a") as waits:
            waits.write(f"{{1000 * (time.perf_counter() - began)}}\\n")
    return outcome
"""
_FIXTURES: Final = {"test": ("echoless", '""'), "session": ("echoless_session", "uuid.uuid4().hex")}


class _Watch:
    """The most that a tree of processes has taken at a time."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.brokers = self.descriptors = self.ports = self.memory_kib = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            below = processes_below(self._root)
            pids = [self._root, *(one.pid for one in below)]
            sockets = [link for pid in pids for link in _descriptors(pid)]
            brokers = sum(b"echoless.broker" in one.command for one in below)
            self.brokers = max(self.brokers, brokers)
            self.descriptors = max(self.descriptors, len(sockets))
            self.ports = max(self.ports, len(_listening() & set(sockets)))
            self.memory_kib = max(self.memory_kib, sum(map(_memory_kib, pids)))


def _descriptors(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(one.readlink())


def _listening() -> set[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENING}


def _memory_kib(pid: int) -> int:
    """The memory of the process: its own, and its share of what it has in common with others."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def measure(mode: str, tests: int, workers: int) -> None:
    """Runs the suite in one mode, and prints a line."""
    fixture, suffix = _FIXTURES[mode]
    with tempfile.TemporaryDirectory(prefix="broker-per-test-") as name:
        directory = Path(name)
        text = _TESTS.format(count=tests // _FILES, fixture=fixture, suffix=suffix)
        for number in range(_FILES):
            (directory / f"test_orders_{number}.py").write_text(text)
        (directory / "pytest.ini").write_text("[pytest]\n")
        (directory / "conftest.py").write_text(_CONFTEST.format(fixture=fixture))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist"]
        plugin = ["-p", "echoless.testkit.plugin", "-n", str(workers)]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        with subprocess.Popen(
            [*command, *plugin, str(directory)],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            with _Watch(process.pid) as watch:
                said, _ = process.communicate()
            took_s = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        waits = sorted(map(float, (directory / "waits").read_text().split()))
    print(
        f"{mode:8} {tests} tests, {workers} workers: {took_s:6.1f} s, {cpu_s:6.1f} s of processor time; "
        f"waited for a broker: median {statistics.median(waits):.1f} ms, "
        f"95 of 100 {waits[int(0.95 * len(waits))]:.1f} ms, most {waits[-1]:.1f} ms; "
        f"at most {watch.brokers} brokers, {watch.ports} ports, {watch.descriptors} descriptors, "
        f"{watch.memory_kib // _KIB} MiB ({said.strip().splitlines()[-1]})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--modes", default="test,session")
    arguments = parser.parse_args()
    for mode in arguments.modes.split(","):
        measure(mode, arguments.tests, arguments.workers)


if __name__ == "__main__":
    main()
