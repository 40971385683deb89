"""`python -m tests.consumer_oracle --histories 60 --seed 7 [--only K]`: random histories, against Apache Kafka 4.2."""

from __future__ import annotations

import argparse
import sys

from tests.consumer_oracle.play import contest


def main() -> int:
    """Play, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.consumer_oracle", description=__doc__)
    parser.add_argument("--histories", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", help="these histories of the seed")
    arguments = parser.parse_args()
    with contest() as both:
        report = both.run(arguments.seed, arguments.only or range(arguments.histories))
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
