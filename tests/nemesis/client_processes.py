"""The real clients of a run, each a process whose output goes to files: producers and one reader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.compatibility.programs import REPOSITORY, Program
from tests.nemesis.reader import read_rows
from tests.proofs.judge import NUMBERS_PER_PRODUCER, first_number

END_TIMEOUT_S: Final = 180.0
_NEVER_MS: Final = 3_600_000
"""A delivery timeout longer than every run: a record that a client gives up fails the run."""
_MS_PER_NUMBER: Final = 7
"""The programs stamp record i with the base time plus 7 i milliseconds."""


class ClientProcess:
    """A program that runs until SIGTERM, and then prints a line of JSON."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self._output = directory / f"{name}.out"
        self._said = directory / f"{name}.err"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin_stop(self) -> None:
        """Sends SIGTERM: nothing new is sent; what is in flight is finished."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> dict[str, Any]:
        """Waits for its summary, with `error` in it if the process never ends or prints none."""
        assert self._process is not None
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        lines = self._output.read_text().splitlines()
        try:
            summary: dict[str, Any] = json.loads(lines[-1])
        except (IndexError, ValueError):
            said = self._said.read_text(errors="replace")[-2000:]
            return {"error": f"status {self._process.returncode}, no summary: {said}"}
        return summary

    def kill(self) -> None:
        """Sends SIGKILL if it is still running."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def _start(self, command: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> None:
        with self._output.open("wb") as output, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=said,
                cwd=REPOSITORY,
                env={**os.environ, **dict(environment)},
            )


class Writer(ClientProcess):
    """An idempotent producer (one of `tests/compatibility`'s programs) that writes to one topic."""

    def __init__(
        self,
        producer: int,
        program: Program,
        topic: str,
        directory: Path,
        security: Path | None = None,
    ) -> None:
        """`security` is the file of its settings, if it has to log in."""
        super().__init__(f"producer-{producer}-{program.name}", directory)
        self.producer = producer
        self.topic = topic
        self.ack_log = directory / f"{self.name}.acks"
        self._program = program
        self._security = {} if security is None else {"security": security}

    def start(self, bootstrap: str, partitions: int, *, rate: float = 0.0) -> None:
        """Starts at full speed, or at `rate` records a second."""
        self.ack_log.touch()
        first = first_number(self.producer)
        options = {
            "bootstrap": bootstrap,
            "topic": self.topic,
            "partitions": partitions,
            "count": NUMBERS_PER_PRODUCER,
            "first": first,
            "seed": self.producer,
            "base-timestamp": int(time.time() * 1000) - _MS_PER_NUMBER * first,
            "rate": rate,
            "ack-log": self.ack_log,
            "delivery-timeout-ms": _NEVER_MS,
            **self._security,
        }
        pairs = ((f"--{name}", str(value)) for name, value in options.items())
        arguments = [part for pair in pairs for part in pair]
        self._start([*self._program.command, "produce", *arguments], self._program.environment)

    @property
    def acknowledged_bytes(self) -> int:
        """The size of its acknowledgement file, which grows with every acknowledged record."""
        return self.ack_log.stat().st_size

    def acknowledgements(self) -> dict[int, array[int]]:
        """By partition: offset, number, offset, number, ... in the order of acknowledgement."""
        found: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        with self.ack_log.open() as lines:
            for line in lines:
                partition, offset, number = map(int, line.split())
                found[partition].extend((offset, number))
        return found


class ReaderProcess(ClientProcess):
    """`tests.nemesis.reader` over several topics."""

    def __init__(
        self, topics: Sequence[str], directory: Path, security: Path | None = None
    ) -> None:
        super().__init__("reader", directory)
        self._security = [] if security is None else ["--security", str(security)]
        self._topics = list(topics)
        self._rows = directory / "reader.rows"

    def start(self, bootstrap: str, partitions: int) -> None:
        """Starts reading from the first record."""
        options = ["--bootstrap", bootstrap, "--partitions", str(partitions)]
        options += ["--rows", str(self._rows), "--topics", *self._topics, *self._security]
        self._start([sys.executable, "-m", "tests.nemesis.reader", *options])

    def rows(self) -> dict[tuple[str, int], array[int]]:
        """By (topic, partition): offset, number, offset, number, ... in the order of reading."""
        rows = read_rows(self._rows)
        return {
            (self._topics[topic], partition): pairs for (topic, partition), pairs in rows.items()
        }
