"""`python -m tests.simulation --histories N --seed S [--kind transactions] [--jobs 2] [--trace SEED]`.

Plays the histories of the seeds S to S + N - 1, of records, groups or transactions, prints a line for each that failed and a table at the
end, and exits 1 when one failed. A long run of transactions also fails if something that is expected never happened. `--trace SEED` plays that one alone and shows everything: log lines
of the brokers, what went over the network, every fault, and the findings.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from tests.simulation.history import Kind, play
from tests.simulation.many import Verdict, line, play_many
from tests.simulation.process import OWNER
from tests.simulation.transactions import sometimes


def main() -> int:
    """Plays what the options say; 0 when every promise was kept."""
    options = _parse()
    kind = Kind(options.kind)
    if options.trace is not None:
        return _trace(options.trace, kind)
    seeds = range(options.seed, options.seed + options.histories)
    verdict = play_many(seeds, options.jobs, lambda result: print(line(result), flush=True), kind)
    print(verdict.table())
    absent = sometimes.missing(verdict.counts) if _is_everything_expected(verdict, kind) else []
    for name in absent:
        print(f"never happened: {name}")
    return 1 if verdict.failures or absent else 0


def _is_everything_expected(verdict: Verdict, kind: Kind) -> bool:
    return kind is Kind.TRANSACTIONS and verdict.histories >= sometimes.LONG_ENOUGH


def _trace(seed: int, kind: Kind) -> int:
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(_with_virtual_time)
    handler.setFormatter(logging.Formatter("%(virtual)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    result = play(seed, tell=print, kind=kind)
    print("\n".join(result.findings) or "every promise was kept")
    print(f"digest {result.digest}")
    return 1 if result.findings else 0


def _with_virtual_time(record: logging.LogRecord) -> bool:
    try:
        now = asyncio.get_running_loop().time()
    except RuntimeError:
        now = 0.0
    record.virtual = f"{now:.6f} {OWNER.get()}"
    return True


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    kinds = [kind.value for kind in Kind]
    parser.add_argument("--kind", choices=kinds, default=Kind.RECORDS.value)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--trace", type=int, metavar="SEED")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
