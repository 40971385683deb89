"""A copier in a process of its own, and its account of how far it is.

    python -m echoless.testkit.scenarios.copier_process SERVERS GROUP SOURCE COPIES [INSTANCE]

Copies each partition of one topic to the same partition of another. Prints a line of JSON whenever a figure
has changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Self

from echoless.client.copier.copier import Copier, CopierFigures
from echoless.client.copier.records import to_same_partition
from echoless.client.copier.settings import CopierSettings
from echoless.client.settings import Settings
from echoless.testkit.python_child import module_command, module_path

SESSION_MS_MIN: Final = 1000
"""The value of the brokers' `group_min_session_timeout_ms`: a copier's session is longer."""
_STOP_S: Final = 60.0


class CopierProcess:
    """One copier. Use it in a `with` block: what still runs is killed at its end."""

    def __init__(
        self, servers: str, group: str, source: str, copies: str, instance: str | None = None
    ) -> None:
        self.figures: dict[str, Any] = asdict(CopierFigures())
        self._arguments = [servers, group, source, copies, *([instance] if instance else [])]

    def __enter__(self) -> Self:
        command = [*module_command("echoless.testkit.scenarios.copier_process"), *self._arguments]
        environment = {**os.environ, "PYTHONPATH": module_path()}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reading.join()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Has it end in order; returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_STOP_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.figures = json.loads(line)


async def _main(arguments: Sequence[str]) -> None:
    servers, group, source, copies, *instance = arguments
    settings = CopierSettings(
        group=group,
        topics=(source,),
        commit_interval_s=0.05,
        instance_id=instance[0] if instance else None,
        session_timeout_s=3.0,
        rebalance_timeout_s=5.0,
        request_timeout_s=1.0,
    )
    said: list[str] = []

    def say(figures: CopierFigures) -> None:
        text = json.dumps({**asdict(figures), "confirmed_at_s": 0})
        if said[-1:] != [text]:
            said[:] = [text]
            print(text, flush=True)  # noqa: T201  the account

    copier = Copier(
        servers,
        servers,
        settings,
        to_same_partition(topic=copies),
        producer_settings=Settings(request_timeout_s=1.0, auto_create_topics=False),
        on_commit=say,
    )
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, copier.stop)
    await copier.run()


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # brokers are killed on purpose
    asyncio.run(_main(sys.argv[1:]))
