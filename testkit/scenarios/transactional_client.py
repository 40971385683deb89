"""A transactional producer in a process of its own, of any family of clients: one line of JSON each way.

It can be killed, and paused. What runs are the `*_transactions` programs in `testkit/clients`. What it answers is the name of an error,
and what the client makes of it: `abortable`, `fatal` or `other`; errors that clients call retriable are tried again there.
librdkafka's reads as well.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from typing import Any, Final, Self

from echoless.testkit.clients.programs import PROGRAMS, Program
from echoless.testkit.python_child import module_path

_ANSWERED_S: Final = 60.0
LIBRDKAFKA: Final = PROGRAMS["librdkafka"]

Outcome = dict[str, Any]
"""`error`: a name, or None; `kind`; `values` of a reader, by partition."""


class TransactionalClient:
    """One process. Use it in a `with` block: it is killed at the end."""

    def __init__(self, servers: str, program: Program = LIBRDKAFKA) -> None:
        self._command = program.transactions_command(servers)

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            "PYTHONPATH": module_path(),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        }
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a fatal error is written there, whatever the log level
            text=True,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()
        self._process.communicate()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def begin_to(self, what: str, **fields: Any) -> None:
        """Has it do something; `answer` waits for the end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **fields}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Outcome:
        """Waits for the outcome. Raises `TimeoutError` without one, or if the process has ended."""
        stdout = self._process.stdout
        assert stdout is not None
        is_there = bool(select.select([stdout], [], [], _ANSWERED_S)[0])
        line = stdout.readline() if is_there else ""
        if not line:
            raise TimeoutError("the client does not answer, or has ended")
        outcome: Outcome = json.loads(line)
        return outcome

    def do(self, what: str, **fields: Any) -> Outcome:
        """Has it do something, and waits for the outcome."""
        self.begin_to(what, **fields)
        return self.answer()
