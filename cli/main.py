"""The `echoless` command: its subcommands, and how they fail.

`serve` goes straight to the broker, before anything that a server does not need is imported; all
other commands are typer's. Exit codes: 0 done, 1 failed (one line on standard error), 2 wrong
usage.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

FAILED = 1
_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of a file that cannot take what is written to it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    if arguments[:1] == ["serve"]:
        from echoless.broker.garbage import begin_start

        begin_start()

        from echoless.broker.without_openssl import import_asyncio

        import_asyncio()

        from echoless.broker.serve import main as serve

        return serve(arguments[1:])
    return _run_command(arguments)


def _open_closed_streams() -> None:
    """Gives closed standard streams the null device, so that no connection gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _run_command(arguments: list[str]) -> int:
    from echoless.cli.commands import app_for
    from echoless.cli.errors import CommandError
    from echoless.storage.file_system import StorageError

    try:
        try:
            app_for(arguments)(arguments, prog_name="echoless")
        finally:
            sys.stdout.flush()
    except (CommandError, StorageError) as error:
        sys.stderr.write(f"echoless: {error}\n")
        return FAILED
    except BrokenPipeError:
        # The reader has closed the pipe; it does not want the rest of the buffer.
        sys.stdout = None
        return FAILED
    except OSError as error:
        if error.errno not in _NOT_WRITTEN or error.filename is not None:
            raise
        sys.stderr.write(f"echoless: the output cannot be written: {error.strerror}\n")
        sys.stdout = None  # the rest of the buffer has no place
        return FAILED
    return 0
