"""`python -m tests.differential --histories N --seed S [--only K [--minimise]] [--kafka-only | --security]`.

Prints how often each named difference occurred, and each failed history request by request;
exits 1 when one failed. `--only K` plays history K of that seed alone, and `--minimise` leaves out
what its failure does not need. `--kafka-only` plays against a second Apache Kafka, where nothing at
all may differ: it tests the oracle itself.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.differential.minimise import minimise
from tests.differential.pair import contest
from tests.differential.run import summary


def main() -> int:
    """Runs what the options say; 0 when every difference had its name."""
    options = _parse()
    first, last = options.first, options.first + options.histories
    numbers = range(first, last) if options.only is None else [options.only]
    begun = time.monotonic()
    with contest(
        options.seed, kafka_only=options.kafka_only, is_secured=options.security
    ) as brokers:
        if options.minimise:
            failure = minimise(brokers, numbers[0])
            print(failure or "it passes")
            return 0 if failure is None else 1
        report = brokers.run(numbers)
    print(summary(report, failures_max=options.failures))
    print(f"in {time.monotonic() - begun:.0f} s")
    return 1 if report.failures else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.differential", description=__doc__)
    parser.add_argument("--histories", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--only", type=int, help="play just this history")
    parser.add_argument("--minimise", action="store_true", help="of the history that --only names")
    parser.add_argument("--failures", type=int, default=5, help="how many failures are shown")
    parser.add_argument("--kafka-only", action="store_true")
    parser.add_argument("--security", action="store_true", help="Echoless over TLS, with ACLs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
