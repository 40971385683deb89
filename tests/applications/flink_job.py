"""Flink's copy of a topic with its exactly-once sink (flink/), as a process that takes checkpoints when it is asked to."""

from __future__ import annotations

import atexit
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.applications.tools import FLINK_JARS
from tests.toolchain import require
from tests.transactions.copied import INPUTS, OUTPUTS, PARTITIONS, read_all

_JVM: Final = (
    *("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_WITHIN_S: Final = 300.0
_ASK_AGAIN_S: Final = 0.05
_SHOWN: Final = 4000
PREFIX: Final = "flink"
"""Begins the transactional ids, unless another prefix is given."""


class FlinkJob:
    """One process with a cluster and the job in it; `naming` is one of Flink's strategies."""

    def __init__(self, bootstrap: str, directory: Path, naming: str) -> None:
        require("flink")
        self._bootstrap = bootstrap
        self._directory = directory
        self._naming = naming
        self._errors = directory / "errors"
        self._process: subprocess.Popen[str] | None = None
        self.newest = "-"
        """The path of the newest checkpoint."""

    def start(self, begins_from: str = "-", *, prefix: str = PREFIX) -> None:
        """Begins from a checkpoint or savepoint, or from nothing."""
        self._directory.mkdir(parents=True, exist_ok=True)
        command = [
            "java",
            *_JVM,
            "-cp",
            f"{FLINK_JARS}/classes:{FLINK_JARS}/*",
            "echoless.FlinkCopy",
        ]
        command += [self._bootstrap, INPUTS, OUTPUTS, str(self._directory / "state")]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, prefix, self._naming, "1", begins_from],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        atexit.register(self._process.kill)  # for a test that fails

    def checkpoint(self) -> str:
        """Takes a checkpoint as soon as the job runs; returns its path."""
        self.newest = self._ask("checkpoint", "checkpoint")
        return self.newest

    def stop(self) -> str:
        """Stops the job with a savepoint; returns its path."""
        return self._ask("stop", "savepoint")

    def fail(self) -> None:
        """Has the job fail at its next record, of which there has to be one more; Flink starts it again from its newest checkpoint."""
        self._say("fail")

    def has_failed(self) -> bool:
        """Waits until it has."""
        return self._next_line() == "failing"

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            atexit.unregister(self._process.kill)
            self._process = None

    def said(self) -> str:
        """The end of its log."""
        return self._errors.read_text()[-_SHOWN:]

    def _ask(self, command: str, answer: str) -> str:
        self._say(command)
        word, _, path = self._next_line().partition(" ")
        assert word == answer, f"{word} {path}\n{self.said()}"
        assert path.startswith("file:"), f"{path}\n{self.said()}"
        return path

    def _say(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)

    def _next_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"ended with {self._process.wait()}\n{self.said()}"
        return line.rstrip()


class CopiedTopics:
    """The topics of the job: values are written to the one, and looked for in the other."""

    def __init__(self, bootstrap: str, *, replicas: int = 1) -> None:
        self._bootstrap = bootstrap
        client = {"bootstrap.servers": bootstrap, "log_level": 0}
        topics = [NewTopic(name, PARTITIONS, replicas) for name in (INPUTS, OUTPUTS)]
        admin = AdminClient(client)
        for future in admin.create_topics(topics).values():
            future.result(_WITHIN_S)
        self._producer = Producer({**client, "enable.idempotence": True})
        self.written = 0

    def write(self, count: int) -> None:
        """Writes the next numbers, in turn to each partition."""
        for number in range(self.written, self.written + count):
            self._producer.produce(INPUTS, b"%d" % number, partition=number % PARTITIONS)
        assert self._producer.flush(_WITHIN_S) == 0
        self.written += count

    def committed(self) -> Counter[bytes]:
        """How often a reader of committed records is given each value."""
        return Counter(read_all(self._bootstrap, "read_committed"))

    def stored(self) -> Counter[bytes]:
        """How often any reader is given each value."""
        return Counter(read_all(self._bootstrap, "read_uncommitted"))

    def first(self, count: int) -> Counter[bytes]:
        """The first values, once each."""
        return Counter(b"%d" % number for number in range(count))

    def wait_for(
        self, count: int, *, is_committed: bool, job: FlinkJob, asks: bool = False
    ) -> None:
        """Waits until the first values are there; fails at once if one is committed twice.

        `asks`: takes checkpoints meanwhile, for records that the job may not have read before.
        """
        wanted, until = self.first(count), time.monotonic() + _WITHIN_S
        while True:
            if asks:
                job.checkpoint()
            found = self.committed()
            assert found <= self.first(self.written), found - self.first(self.written)
            if found == wanted if is_committed else self.stored() >= wanted:
                return
            assert time.monotonic() < until, f"{wanted - found} is missing\n{job.said()}"
            time.sleep(_ASK_AGAIN_S)
