"""`python -m tests.nemesis --seconds 600 --seed S`: one run, its verdict, and where its logs are.

Exit status 1 when the promise was broken; the directory with every log is then kept.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.nemesis.plan import Kind
from tests.nemesis.run import Options, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--rate", type=float, default=0.0, help="records a second per producer")
    parser.add_argument("--only", nargs="+", choices=[kind.name for kind in Kind], default=None)
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="brokers'"
    )
    parser.add_argument("--directory", type=Path, help="where everything is kept")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="nemesis-"))
    kinds = tuple(Kind) if arguments.only is None else [Kind[name] for name in arguments.only]
    options = Options(
        seconds=arguments.seconds,
        seed=arguments.seed,
        rate=arguments.rate,
        kinds=kinds,
        settings=dict(pair.split("=", 1) for pair in arguments.settings),
    )
    console = Console()
    console.print(f"seed {arguments.seed}, logs in {directory}")
    verdict = run(directory, options)
    verdict.print(console)
    if verdict.is_kept and arguments.directory is None:
        shutil.rmtree(directory)
    elif not verdict.is_kept:
        console.print(f"every log is in {directory}")
    return 0 if verdict.is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
