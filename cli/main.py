"""The `echoless` command: its subcommands, and how they fail.

`serve` goes straight to the broker, before anything that a server does not need is imported; all
other commands are typer's. Exit codes: 0 done, 1 failed (one line on standard error), 2 wrong
usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["serve"]:
        from echoless.broker.garbage import begin_start

        begin_start()

        from echoless.broker.without_openssl import import_asyncio

        import_asyncio()

        from echoless.broker.serve import main as serve

        return serve(arguments[1:])
    return _run_command(arguments)


def _run_command(arguments: list[str]) -> int:
    from echoless.cli.commands import app_for
    from echoless.cli.errors import CommandError
    from echoless.storage.file_system import StorageError

    try:
        app_for(arguments)(arguments, prog_name="echoless")
    except (CommandError, StorageError) as error:
        sys.stderr.write(f"echoless: {error}\n")
        return FAILED
    except BrokenPipeError:
        # The reader has closed the pipe; it does not want the rest of the buffer.
        sys.stdout = None
        return FAILED
    return 0
