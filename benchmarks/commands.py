"""`python -m benchmarks.commands [COMMIT]`: the processor time of everyday commands, here and at a commit.

Each of the two is installed into an environment of its own, as a user has it: packages that only tests need cost time
as well (kio imports hypothesis where there is one). Of the working tree counts what is committed. One broker answers all.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.compiled import keep_compiled_code
from benchmarks.pairs import in_turn, pairs_of, print_pair
from tests.support.echoless import REPOSITORY, Echoless

_COMMANDS: Final = (
    *("--help", "topics --help", "topics list", "topics describe orders"),
    *("topics create {new}", "produce orders", "consume orders", "groups list"),
    *("brokers", "producers orders", "decisions", "listeners list"),
)
_LINES: Final = b"one\ntwo\nthree\n"
_NEW: Final = map("topic-{}".format, itertools.count())


def _installed(commit: str, directory: Path) -> str:
    """The interpreter of a new environment with what is installed from that commit."""
    tree = directory / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
    python = str(directory / "venv/bin/python")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, str(tree)], check=True)
    return python


def _cost_ms(python: str, command: str, environment: Mapping[str, str]) -> dict[str, float]:
    arguments = shlex.split(command.format(new=next(_NEW)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [python, "-P", "-m", "echoless", *arguments],
        input=_LINES,
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert ran.returncode == 0, f"{command}: {ran.stderr.decode()}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {command: 1000 * taken_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    keep_compiled_code()
    with tempfile.TemporaryDirectory(prefix="commands-") as name:
        here = _installed("HEAD", Path(name) / "here")
        there = _installed(arguments.commit, Path(name) / "there") if arguments.commit else None
        broker = Echoless(Path(name))
        broker.start()
        address = {
            "ECHOLESS_BOOTSTRAP_SERVER": broker.kafka_address,
            "ECHOLESS_ADMIN": broker.admin_address,
        }
        try:
            for command in ("topics create orders", "produce orders"):
                _cost_ms(here, command, address)
            for command in _COMMANDS:
                cost = partial(_cost_ms, command=command, environment=address)
                other = partial(cost, there) if there else None
                _compare(arguments.rounds, partial(cost, here), other)
        finally:
            broker.kill()


def _compare(
    rounds: int,
    here: Callable[[], Mapping[str, float]],
    there: Callable[[], Mapping[str, float]] | None,
) -> None:
    """Prints a line; the first run of each, whose files have to be read, does not count."""
    here()
    if there is None:
        ours = [here() for _ in range(rounds)]
        pairs = pairs_of(ours, ours)
    else:
        there()
        pairs = in_turn(rounds, here, there)
    for name, pair in pairs.items():
        print_pair(name, pair, "ms here", "there")


if __name__ == "__main__":
    main()
