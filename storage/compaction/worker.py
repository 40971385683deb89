"""The process that does passes of compaction beside a broker, which so keeps its interpreter for requests.

It reads and writes at one socket, which is both its standard input and output: a `CleaningJob` begins a pass, and is not
answered; a number has it work for so many seconds, and is answered with the `Progress`. Messages are pickled, after
their length in four bytes: both ends are of one program.

It ends when its input does. A broker that is killed leaves a process that works on for one portion and then removes what it
was writing. The log's next owner may have begun by then.

Invariant: no file that it writes has a name that another process may use, and it renames none.

Started by the broker's `partitions/cleaner_process.py`.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from typing import IO, Final, NamedTuple

from echoless.storage.compaction.cleaning import Cleaning, CleaningJob, CleaningReport, Step
from echoless.storage.file_system import FileSystem, OutOfDescriptorsError, StorageError
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.snapshot import SnapshotError

LENGTH: Final = struct.Struct(">I")
"""The length before each message."""
_NICENESS: Final = 5
"""Requests come first where a machine is full."""


class FailedPass(NamedTuple):
    """The reason why a pass has ended before its end."""

    text: str
    path: str | None = None
    """The file of a `StorageError`; None for any other reason."""
    is_shortage: bool = False
    """Whether it was an `OutOfDescriptorsError`."""


class Progress(NamedTuple):
    """The answer to a portion of work."""

    report: CleaningReport
    step: Step = None
    """The segment to be swapped before the pass goes on, if one is finished."""
    is_end: bool = False
    failure: FailedPass | None = None


def main() -> None:
    """Serves the socket that the broker has made the standard input and output."""
    os.nice(_NICENESS)
    with suppress(BrokenPipeError, ConnectionResetError):
        serve(OsFileSystem(), sys.stdin.buffer, sys.stdout.buffer)


def serve(fs: FileSystem, commands: IO[bytes], answers: IO[bytes]) -> None:
    """Does what `commands` ask for, to their end. Raises `OSError` if no one takes an answer."""
    cleaning: Cleaning | None = None
    steps: Generator[Step, None, None] | None = None
    try:
        while (command := _read(commands)) is not None:
            if isinstance(command, CleaningJob):
                if steps is not None:
                    steps.close()
                cleaning = Cleaning(fs, command._replace(writer=f".{os.getpid()}"))
                steps = cleaning.steps()
            else:
                assert isinstance(command, float)
                assert cleaning is not None
                assert steps is not None
                answers.write(encode(_work(cleaning, steps, time.monotonic() + command)))
                answers.flush()
    finally:
        if steps is not None:
            steps.close()


def _work(cleaning: Cleaning, steps: Generator[Step, None, None], until_s: float) -> Progress:
    failure = None
    try:
        for step in steps:
            if step is not None or time.monotonic() >= until_s:
                return Progress(replace(cleaning.report), step)
    except StorageError as error:
        text = str(error).removeprefix(f"{error.path}: ")
        failure = FailedPass(text, error.path, isinstance(error, OutOfDescriptorsError))
    except SnapshotError as error:
        failure = FailedPass(str(error))
    except Exception:  # noqa: BLE001 - a mistake of ours is the broker's to log
        failure = FailedPass(traceback.format_exc())
    return Progress(replace(cleaning.report), is_end=failure is None, failure=failure)


def encode(message: object) -> bytes:
    """Returns the message with its length."""
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data


def _read(commands: IO[bytes]) -> object:
    """Reads the next message; None at the end."""
    head = commands.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = commands.read(size)
    return pickle.loads(data) if len(data) == size else None  # noqa: S301 - the broker's own bytes
