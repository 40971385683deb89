"""A transactional producer, and a reader, of librdkafka in a process of its own: one line of JSON each way.

It can be killed, and paused; `testkit/clients/librdkafka_transactions.py` is what runs. What it answers is the name of an error, and what the client makes of it: `abortable`, `fatal` or
`other`; errors that librdkafka calls retriable are tried again there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
from typing import Any, Final, Self

from echoless.testkit.clients.build import BuildError
from echoless.testkit.python_child import module_command, module_path

_ANSWERED_S: Final = 60.0
_MODULE: Final = "echoless.testkit.clients.librdkafka_transactions"

Outcome = dict[str, Any]
"""`error`: a name, or None; `kind`; `values` of a reader, by partition."""


class TransactionalClient:
    """One process. Use it in a `with` block: it is killed at the end."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def __enter__(self) -> Self:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise BuildError("librdkafka: the Python module confluent_kafka is not installed")
        command = [*module_command(_MODULE), self._servers]
        environment = {**os.environ, "PYTHONPATH": module_path()}
        self._process = subprocess.Popen(
            command,
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
