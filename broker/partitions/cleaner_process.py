"""The broker's end of a process that does passes of compaction (`storage/compaction/worker.py`).

It takes no time of the broker's interpreter, so it need not pause for requests. Only the swaps of finished segments, and
the decision to go on, stay with the broker. Called by `cleaner.py`.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from functools import partial
from typing import Final, Self

from echoless.broker.threads import DISK
from echoless.storage.compaction.cleaning import CleaningJob
from echoless.storage.compaction.worker import LENGTH, Progress, encode
from echoless.storage.compaction.worker import __name__ as WORKER  # noqa: N812

_END_PATIENCE_S: Final = 5.0
"""Time that the process gets to remove what it was writing."""


class CleanerProcess:
    """A running process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> Self:
        """Starts it. Raises `ChildProcessError`."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    process = await DISK.run(partial(_spawn, theirs))
                    reader, writer = await asyncio.open_connection(sock=ours)
                except BaseException:
                    ours.close()
                    raise
        except OSError as error:
            raise ChildProcessError(f"cannot start a process: {error}") from error
        return cls(process, reader, writer)

    def begin(self, job: CleaningJob) -> None:
        """Begins another pass; one that has not come to its end ends."""
        self._writer.write(encode(job))

    async def work(self, seconds: float) -> Progress:
        """Goes on with the pass for so long. Raises `ChildProcessError`."""
        try:
            self._writer.write(encode(seconds))
            await self._writer.drain()
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            data = await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            status = await self.end()
            raise ChildProcessError(f"the process has ended with status {status}") from error
        progress = pickle.loads(data)  # noqa: S301 - bytes of the same program
        assert isinstance(progress, Progress)
        return progress

    async def end(self) -> int:
        """Ends the process, and returns its status."""
        self._writer.close()
        return await DISK.run(partial(_ended, self._process))


def _spawn(connection: socket.socket) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", f"from {WORKER} import main; main()"]
    # A session of its own: Ctrl-C in a terminal is for the broker, which then ends it.
    ends = connection.fileno()
    return subprocess.Popen(command, stdin=ends, stdout=ends, start_new_session=True)  # noqa: S603


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
