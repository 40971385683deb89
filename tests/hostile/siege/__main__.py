"""`python -m tests.hostile.siege --seconds 300 --seed S`: everything at once, then the verdict.

With `--only NAME ...` those attackers; with `--each` one after the other, each for `--seconds`.
`--write-docs` puts what was seen into docs/hostile.md, unless something is wrong; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.hostile.siege.attackers import ATTACKERS
from tests.hostile.siege.page import write_each, write_together
from tests.hostile.siege.run import Options, run
from tests.hostile.siege.verdict import Verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.siege", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--only", nargs="+", choices=list(ATTACKERS))
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--write-docs", action="store_true")
    arguments = parser.parse_args()
    names = arguments.only or list(ATTACKERS)
    verdicts: list[Verdict] = []
    for together in [[name] for name in names] if arguments.each else [names]:
        verdicts.append(
            run(
                Options(
                    names=together,
                    seconds=arguments.seconds,
                    seed=arguments.seed,
                    peace_s=1.0 if arguments.each else 3.0,
                )
            )
        )
        print(verdicts[-1].text(), flush=True)
    is_wrong = any(verdict.problems for verdict in verdicts)
    if arguments.write_docs and not is_wrong:
        if arguments.each:
            write_each(verdicts)
        else:
            write_together(verdicts[0])
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
