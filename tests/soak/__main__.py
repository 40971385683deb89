"""`python -m tests.soak --seconds 600 --seed S`: half on one broker, half on three; the verdicts.

Exit status 1 if something was found that is not a known limitation of a client.
"""

from __future__ import annotations

import argparse
import random
import sys

from rich.console import Console

from echoless.testkit.clients.programs import PROGRAMS
from tests.soak.run import Options, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--clients", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    arguments = parser.parse_args()
    console = Console(width=120)
    is_broken = False
    for brokers in arguments.brokers:
        seconds = arguments.seconds / len(arguments.brokers)
        options = Options(
            seconds=seconds, seed=arguments.seed, brokers=brokers, clients=arguments.clients
        )
        verdict = run(options)
        verdict.print(console)
        is_broken |= not verdict.is_kept
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
