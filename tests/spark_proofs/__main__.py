"""`python -m tests.spark_proofs --sink echoless --target cluster --seed S`: one run and its verdict.

Exit status 1 when a record was lost, stored twice or out of order; the directory with the
checkpoint and every log is then kept.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.spark_proofs.plan import LONG_PLAN, Kind
from tests.spark_proofs.query import SINKS
from tests.spark_proofs.run import RunOptions, run
from tests.spark_proofs.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_proofs", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=100, help="of the query")
    parser.add_argument("--sink", choices=SINKS, default="echoless")
    parser.add_argument("--target", choices=sorted(TARGETS), default="echoless")
    parser.add_argument("--restarts", type=int, default=10, help="SIGKILLs of the driver")
    parser.add_argument("--only", nargs="+", choices=[kind.name for kind in Kind], default=None)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--directory", type=Path, help="where everything is kept")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="spark-proofs-"))
    counts = {**LONG_PLAN, Kind.KILL_DRIVER: arguments.restarts}
    options = RunOptions(
        sink=arguments.sink,
        target=arguments.target,
        seed=arguments.seed,
        records=arguments.records,
        batches=arguments.batches,
        counts={
            k: n for k, n in counts.items() if arguments.only is None or k.name in arguments.only
        },
        sink_options=dict(pair.split("=", 1) for pair in arguments.settings),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
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
