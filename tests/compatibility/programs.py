"""The client programs: how each is started, what it can do, and how its summary is read.

Their command line is defined in README.md beside this file. Used by the tests here and by tests
that crash brokers under real clients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.toolchain import require

REPOSITORY = Path(__file__).parents[2]
BUILT = REPOSITORY / ".cache" / "clients"
JAVA_VERSIONS = ("3.9.1", "4.4.0")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TIMEOUT_S = 240
_IDLE_TIMEOUT_MS = 60_000
"""Time without a record after which a consumer gives up, which is a failure: one that has read everything ends by itself."""
_STDERR_SHOWN = 4000


class ProgramError(Exception):
    """The program ended without a summary, or in error; carries what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One real client with the common command line."""

    name: str
    command: tuple[str, ...]
    tools: tuple[str, ...] = ()
    null_headers: bool = True
    """Whether it can write a header value of null (README.md: it writes an empty one otherwise)."""
    environment: tuple[tuple[str, str], ...] = ()

    def start(self, command: str, **options: object) -> subprocess.Popen[str]:
        """Starts `produce` or `consume`; `ack_log=path` becomes `--ack-log path`."""
        require(*self.tools)
        return subprocess.Popen(
            [*self.command, command, *_arguments(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **dict(self.environment)},
        )

    def run(self, command: str, **options: object) -> dict[str, Any]:
        """Runs to the end and returns the summary; anything lost is a ProgramError."""
        if command == "consume":
            options = {"idle_timeout_ms": _IDLE_TIMEOUT_MS, **options}
        process = self.start(command, **options)
        try:
            output, said = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, said = process.communicate()
            said += f"\nkilled after {_TIMEOUT_S} s"
        if process.returncode != 0:
            raise ProgramError(
                f"{self.name} {command} {options} ended with {process.returncode}: "
                f"{output}\n{said[-_STDERR_SHOWN:]}"
            )
        return read_summary(output)


def read_summary(output: str) -> dict[str, Any]:
    """The summary: the last line of standard output."""
    lines = output.splitlines()
    if not lines:
        raise ProgramError("the program printed no summary")
    summary: dict[str, Any] = json.loads(lines[-1])
    return summary


def _arguments(options: dict[str, object]) -> list[str]:
    pairs = (("--" + name.replace("_", "-"), str(value)) for name, value in options.items())
    return [part for pair in pairs for part in pair]


def _python(name: str, module: str, *, null_headers: bool = True) -> Program:
    command = (sys.executable, "-m", f"tests.compatibility.clients.python.{module}")
    return Program(name=name, command=command, null_headers=null_headers)


def _java(version: str) -> Program:
    return Program(
        name=f"java-{version}",
        command=(
            "java",
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("-cp", f"{BUILT}/java-{version}/*", "echoless.Main"),
        ),
        tools=("java", f"java-client-{version}"),
    )


LIBRDKAFKA = _python("librdkafka", "librdkafka")
AIOKAFKA = _python("aiokafka", "aiokafka_program")
KAFKA_PYTHON = _python("kafka-python", "kafka_python", null_headers=False)
JAVA = tuple(_java(version) for version in JAVA_VERSIONS)
_GO = f"{BUILT}/go/client-program"
FRANZ_GO = Program(name="franz-go", command=(_GO,), tools=("go-client",))
SARAMA = Program(name="sarama", command=(_GO, "sarama"), tools=("go-client",))
KAFKA_GO = Program(name="kafka-go", command=(_GO, "kafka-go"), tools=("go-client",))
KAFKAJS = Program(
    name="kafkajs",
    command=("node", f"{BUILT}/node/main.js"),
    tools=("node", "node-client"),
    null_headers=False,
    environment=(("KAFKAJS_NO_PARTITIONER_WARNING", "1"),),
)
PROGRAMS = (LIBRDKAFKA, AIOKAFKA, KAFKA_PYTHON, *JAVA, FRANZ_GO, KAFKAJS)
"""Programs that know every command."""
READERS = (*PROGRAMS, SARAMA)
"""Programs that know `consume`, and show each record as it is: kafka-go takes what is empty for null."""
