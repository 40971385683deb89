"""`python -m tests.group_oracle --histories 60 --seed 7 [--only K]`: random histories of groups, against Apache Kafka."""

from __future__ import annotations

import argparse
import sys

from tests.group_oracle.run import play


def main() -> int:
    """Play, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.group_oracle", description=__doc__)
    parser.add_argument("--histories", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", help="these histories of the seed")
    arguments = parser.parse_args()
    report = play(arguments.seed, arguments.only or range(arguments.histories))
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
