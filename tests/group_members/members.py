"""The kinds of members, and one member as a process."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.compatibility.programs import (
    AIOKAFKA,
    FRANZ_GO,
    JAVA,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    REPOSITORY,
    Program,
)
from tests.group_members.events import Tail
from tests.group_members.judge import Life
from tests.toolchain import require

SESSION_TIMEOUT_MS: Final = 4_000
_END_S_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Kind:
    """A client with an assignor."""

    program: Program | None
    """None: kcat."""
    assignor: str
    says_all: bool = True
    protocol: str = "classic"

    @property
    def gives_up(self) -> bool:
        """Whether it ends at the first error that it is told of, as kcat does, even one that will pass."""
        return self.program is None

    @property
    def name(self) -> str:
        client = "kcat" if self.program is None else self.program.name
        return f"{client}-{self.assignor if self.protocol == 'classic' else self.protocol}"


def kinds_of(assignor: str) -> list[Kind]:
    """Every client that can be a member of one group by this assignor."""
    eager = [Kind(AIOKAFKA, assignor, says_all=False), Kind(KAFKA_PYTHON, assignor)]
    cooperating = [Kind(program, assignor) for program in (LIBRDKAFKA, *JAVA, FRANZ_GO)]
    if assignor == "cooperative-sticky":
        return cooperating
    return [*cooperating, *eager, Kind(None, assignor, says_all=False)]


KAFKAJS_KIND: Final = Kind(KAFKAJS, "kafkajs", says_all=False)
"""The name of its assignor is its own: it shares a group with no other client."""


class Member:
    """One process."""

    def __init__(
        self, kind: Kind, number: int, directory: Path, *, session_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        self.kind = kind
        self._session_ms = session_ms
        self.name = f"{kind.name}-{number}"
        self.is_paused = False
        self._log = directory / f"{self.name}.log"
        self._said = directory / f"{self.name}.err"
        self.tail = Tail(self._log, is_kcat=kind.program is None)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str, topic: str, group: str) -> None:
        kind = self.kind
        if kind.program is None:
            require("kcat")
            command: Sequence[str] = _kcat(bootstrap, topic, group, kind.assignor)
            environment: dict[str, str] = {}
        else:
            require(*kind.program.tools)
            command = [
                *(*kind.program.command, "subscribe", "--bootstrap", bootstrap),
                *("--topic", topic, "--group", group, "--log", str(self._log)),
                *("--assignor", kind.assignor, "--protocol", kind.protocol),
                *("--session-timeout-ms", str(self._session_ms)),
            ]
            environment = dict(kind.program.environment)
        with self._said.open("ab") as said, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log if kind.program is None else said,
                stderr=said,
            )
        atexit.register(self._process.kill)

    @property
    def life(self) -> Life:
        """Everything that it has logged."""
        is_kcat = self.kind.program is None
        return Life(
            self.name, self.tail.events, says_all=self.kind.says_all, logs_commits=not is_kcat
        )

    @property
    def exit_status(self) -> int | None:
        """The status of a member that ended by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Sends SIGSTOP."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def leave(self) -> int:
        """Sends SIGTERM, upon which it leaves the group; returns the exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        process.terminate()
        try:
            return process.wait(_END_S_MAX)
        finally:
            process.kill()
            process.wait()

    def said(self) -> str:
        """The end of what it said about itself."""
        return self._said.read_text(errors="replace")[-2000:]

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def _kcat(bootstrap: str, topic: str, group: str, assignor: str) -> Sequence[str]:
    settings = {
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
        "partition.assignment.strategy": assignor,
    }
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    return ["kcat", "-b", bootstrap, "-G", group, "-u", "-f", "%p %o %s\\n", *options, topic]
