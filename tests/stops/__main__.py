"""`python -m tests.stops --rounds 100 --seed S`: how long stops took, and what they left.

Exit status 1 when a stop was late, unclean or not 0, or when a record is missing or stored twice.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.stops.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="brokers'"
    )
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    directory = Path(tempfile.mkdtemp(prefix="stops-"))
    sys.stdout.write(f"seed {arguments.seed}, logs in {directory}\n")
    settings = dict(pair.split("=", 1) for pair in arguments.settings)
    report = run(directory, arguments.rounds, random.Random(arguments.seed), settings)
    sys.stdout.writelines(f"{line}\n" for line in report.lines())
    if report.bad or report.wrong_records:
        sys.stdout.write(f"every log is in {directory}\n")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
