"""`python -m tests.proofs --minutes 60 --seed S [--only simulation ...]`: every long proof, one by one.

The minutes are shared between those that run. Each that holds writes its figures into docs/proofs.md, with the
commit and the date; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
import traceback

from tests.proofs import page
from tests.proofs.parts import PARTS, Outcome
from tests.support.fresh_seed import commit, fresh_seed

_COMMIT_SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument(
        "--seed", type=int, default=fresh_seed() % 2**31, help="default: of the commit"
    )
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--no-page", action="store_true", help="write nothing into docs/proofs.md")
    arguments = parser.parse_args()
    shares = sum(PARTS[name][0] for name in arguments.only)
    broken = []
    for name in arguments.only:
        seconds = arguments.minutes * 60 * PARTS[name][0] / shares
        print(f"--- {name}, {seconds:.0f} s, seed {arguments.seed}", flush=True)
        begun = time.monotonic()
        outcome = _run(name, seconds, arguments.seed)
        minutes = (time.monotonic() - begun) / 60
        for problem in outcome.problems:
            print(f"{name}: PROBLEM: {problem}", flush=True)
        print(f"{name}: {dict(outcome.figures)}, {minutes:.1f} minutes", flush=True)
        if outcome.problems:
            broken.append(name)
        elif not arguments.no_page:
            page.write(name, _about(arguments.seed, minutes), outcome.figures)
    print(f"BROKEN: {', '.join(broken)}" if broken else "every proof holds")
    return int(bool(broken))


def _run(name: str, seconds: float, seed: int) -> Outcome:
    """Run one proof; one that cannot be run is broken, and the others run all the same."""
    try:
        return PARTS[name][1](seconds, seed)
    except Exception:  # noqa: BLE001 - shown as what it is
        return Outcome(problems=[traceback.format_exc()])


def _about(seed: int, minutes: float) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    known = (commit() or "unknown")[:_COMMIT_SHOWN]
    return f"Commit {known}, {today}, seed {seed}, {minutes:.1f} minutes."


if __name__ == "__main__":
    sys.exit(main())
