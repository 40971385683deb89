"""`python -m tests.differential --histories N --seed S [--only K] [--kafka-only]`.

Prints how often each named difference occurred, and each failed history request by request;
exits 1 when one failed. `--only K` plays history K of that seed alone. `--kafka-only` plays
against a second Apache Kafka, where nothing at all may differ: it tests the oracle itself.
"""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.differential.differences import NAMES
from tests.differential.run import FAILURES_SHOWN_MAX, KAFKA_SETTINGS, Broker, Contest, Report
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless


def main() -> int:
    """Runs what the options say; 0 when every difference had its name."""
    options = _parse()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="differential-") as directory:
        report = _run(options, Path(directory))
    _print(report, time.monotonic() - begun, is_echoless=not options.kafka_only)
    return 1 if report.failures else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.differential", description=__doc__)
    parser.add_argument("--histories", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--only", type=int, help="play just this history")
    parser.add_argument("--kafka-only", action="store_true")
    return parser.parse_args()


def _run(options: argparse.Namespace, directory: Path) -> Report:
    kafka = ApacheKafka(directory / "kafka", KAFKA_SETTINGS)
    numbers = range(options.first, options.first + options.histories)
    attempts = itertools.count()

    def make_echoless(settings: dict[str, str]) -> Broker:
        place = directory / f"other-{next(attempts)}"
        return (
            ApacheKafka(place, KAFKA_SETTINGS) if options.kafka_only else Echoless(place, settings)
        )

    kafka.start()
    try:
        contest = Contest(kafka, make_echoless, options.seed, is_echoless=not options.kafka_only)
        return contest.run([options.only] if options.only is not None else numbers)
    finally:
        kafka.kill()


def _print(report: Report, seconds: float, *, is_echoless: bool) -> None:
    for failure in report.failures[:FAILURES_SHOWN_MAX]:
        print(failure, end="\n\n")
    for name, count in sorted(report.counts.items()):
        print(f"{count:8}  {name}")
    for name in NAMES if is_echoless else ():
        if not report.counts[name]:
            print(f"   never  {name}")
    print(
        f"{report.histories} histories, {report.answers_compared} answers compared, "
        f"{len(report.failures)} histories failed, {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
