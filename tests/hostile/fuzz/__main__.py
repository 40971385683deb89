"""`python -m tests.hostile.fuzz --seconds 60 --seed 7`; see the package."""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

from tests.hostile.fuzz.run import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed if not given")
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--requests", type=float, default=math.inf, help="at most about so many")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    sys.stdout.write(f"seed {seed}\n")
    with tempfile.TemporaryDirectory() as directory:
        report = fuzz(
            Path(directory),
            seed,
            first=given.first,
            seconds=given.seconds,
            requests=given.requests,
        )
    waits = report.waits_s or [0.0]
    sys.stdout.write(
        f"{report.requests} hostile requests; {len(report.waits_s)} good records, median "
        f"{1000 * waits[len(waits) // 2]:.1f} ms, longest {1000 * waits[-1]:.1f} ms\n"
    )
    for complaint in report.complaints:
        sys.stdout.write(f"{complaint}\n")
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
