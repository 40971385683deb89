"""`python -m tests.oracle SCRIPT --histories N --seed S [--only K ... [--minimise]]`.

Prints how often each named difference occurred, and each failed history step by step; exits 1 when
one failed. `--only K` plays history K of that seed alone, and `--minimise` leaves out what its failure
does not need. `--kafka-only` plays against a second Apache Kafka: it tests the oracle itself.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.oracle.contest import contest
from tests.oracle.minimise import minimise
from tests.oracle.scripts import SCRIPTS


def main() -> int:
    """Runs what the options say; 0 when every difference had its name."""
    options = _parse()
    numbers = options.only or range(options.first, options.first + options.histories)
    begun = time.monotonic()
    script = SCRIPTS[options.script]
    with contest(script, kafka_only=options.kafka_only, is_secured=options.security) as both:
        if options.minimise:
            failure = minimise(both.play, options.seed, numbers[0])
            print(failure or "it passes")
            return 0 if failure is None else 1
        report = both.run(numbers, [options.seed])
    print(report.summary(failures_max=options.failures))
    print(f"in {time.monotonic() - begun:.0f} s")
    return 1 if report.failures else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("script", choices=SCRIPTS)
    parser.add_argument("--histories", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--only", type=int, nargs="+", help="play just these histories")
    parser.add_argument("--minimise", action="store_true", help="the history that --only names")
    parser.add_argument("--failures", type=int, default=5, help="how many failures are shown")
    parser.add_argument("--kafka-only", action="store_true")
    parser.add_argument("--security", action="store_true", help="Echoless over TLS, with ACLs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
