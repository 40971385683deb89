"""A proof as a command: its seed, the directory with its logs, the verdict and the exit status."""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.proofs.verdict import Verdict
from tests.support.cluster_security import NativeDoor


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every proof has."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.{name}", description=description)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--directory", type=Path, help="where everything is kept")
    return parser


def add_settings(parser: argparse.ArgumentParser, whose: str) -> None:
    """Add `--set NAME=VALUE`; `settings_of` reads it."""
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help=whose
    )


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return what `--set` said."""
    return dict(pair.split("=", 1) for pair in arguments.settings)


def add_security(parser: argparse.ArgumentParser) -> None:
    """Add `--security`; `security_of` reads it."""
    parser.add_argument(
        "--security",
        type=NativeDoor,
        choices=list(NativeDoor),
        metavar="|".join(NativeDoor),
        help="clients log in over TLS, ACLs and sessions of 3 s; between brokers this",
    )


def security_of(arguments: argparse.Namespace) -> NativeDoor | None:
    """Return what `--security` said."""
    chosen: NativeDoor | None = arguments.security
    return chosen


def prove(name: str, arguments: argparse.Namespace, run: Callable[[Path], Verdict]) -> int:
    """Runs in a separate directory, which is kept if the promise was broken.

    Returns the exit status.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix=f"{name}-"))
    console = Console(width=120)
    console.print(f"seed {arguments.seed}, logs in {directory}")
    verdict = run(directory)
    verdict.print(console)
    if not verdict.is_kept:
        console.print(f"every log is in {directory}")
    elif arguments.directory is None:
        shutil.rmtree(directory)
    return 0 if verdict.is_kept else 1
