"""A broker in a process and a directory of its own, on free ports, gone when the block ends."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Final, Self

from cli.errors import CommandError

_READY: Final = re.compile(rb"ready broker_id=\d+ listen=\S+:(\d+) native=\S+ admin=(\S+)")
_ANY_PORT: Final = "127.0.0.1:0"
_START_TIMEOUT_S: Final = 30
_STOP_TIMEOUT_S: Final = 5


class BrokerProcess:
    """`echoless serve` as a child process. Use it in an `async with` block."""

    def __init__(self, advertised_port: int, settings: dict[str, str]) -> None:
        """Clients are told to connect to `advertised_port`."""
        self.port = 0
        self.admin_address = ""
        self._advertise = f"127.0.0.1:{advertised_port}"
        self._settings = settings

    async def __aenter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="echoless-demo-")
        try:
            await self._start()
        except BaseException:
            self._directory.cleanup()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._directory.cleanup()

    async def _start(self) -> None:
        log_path = Path(self._directory.name) / "log"
        with log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _START_TIMEOUT_S)
        except BaseException:
            self._process.kill()
            raise
        match = _READY.match(line)
        if match is None:
            last = log_path.read_text(errors="replace").strip().rpartition("\n")[2]
            raise CommandError(f"the demo's broker did not start: {last or 'it said nothing'}")
        self.port, self.admin_address = int(match[1]), match[2].decode()

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "broker", "--listen", _ANY_PORT, "--native-listen", _ANY_PORT),
            *("--admin-listen", _ANY_PORT, "--advertise", self._advertise),
            *("--data-dir", str(Path(self._directory.name) / "data")),
            *(part for item in self._settings.items() for part in ("--set", "=".join(item))),
        ]


def _environment() -> dict[str, str]:
    """The environment without what the user has configured for real brokers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ECHOLESS_")}
