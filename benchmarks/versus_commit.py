"""`python -m benchmarks.versus_commit COMMIT`: what a request costs here, and what it cost there.

Brokers of both trees run in turn on this machine, on fresh data, and the processor time that they take per
request is compared. Run it before and after a change to a path that every request takes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.compiled import compile_tree, keep_compiled_code
from benchmarks.first_record import acknowledge_one
from benchmarks.pairs import Pair, in_turn, print_pair
from benchmarks.present_pages import take_pages
from benchmarks.request_cost import KINDS, PRODUCES, Addresses, processor_s, request_cost_us
from benchmarks.transactions import Brokers, Load, create, load
from benchmarks.versus_kafka import resident_mb
from tests.support.cluster import Cluster
from tests.support.echoless import REPOSITORY, Echoless
from tests.support.raw_client import ConnectionEndedError

_PLACES: Final = ("src", "broker", "coordinators", "storage", "protocol")
"""The folders that a broker is imported from."""
_COMMIT_SETTINGS: Final = {"log_flush": "commit"}
_TOPICS: Final = map("topic-{}".format, itertools.count())
_TRANSACTIONS: Final = Load("transactions", partitions=10, producers=50)
_TRANSACTIONS_S: Final = 6.0
_ROUND_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than the requests of one round write, in one log."""


def _git(*arguments: str) -> bytes:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout


@contextmanager
def unpacked(commit: str) -> Iterator[Path]:
    """The broker's code as of `commit`.

    Raises `LookupError` if this clone does not have the commit.
    """
    try:
        there = _git("ls-tree", "--name-only", commit).decode().split()
        archive = _git(
            "archive", "--format=tar", commit, *(place for place in _PLACES if place in there)
        )
    except FileNotFoundError:
        raise LookupError("there is no git here") from None
    except subprocess.CalledProcessError as error:
        raise LookupError(error.stderr.decode().strip()) from None
    with tempfile.TemporaryDirectory(prefix="versus-") as directory:
        # not `tarfile`: before Python 3.11.4 it knows no filter, and since 3.12 it warns without one
        subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
        yield _path_of(Path(directory))


def _path_of(tree: Path) -> Path:
    """The directory that the broker is imported from; before 0.3.0 the tree itself."""
    sources = tree / "src"
    return sources if sources.exists() else tree


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Like `unpacked`, compiled as the code of an installation is."""
    with unpacked(commit) as directory:
        compile_tree(directory)
        yield directory


@contextmanager
def this_tree() -> Iterator[Path]:
    """The broker's code as it is in the working tree, compiled in the same way."""
    with tempfile.TemporaryDirectory(prefix="versus-") as directory:
        for place in _PLACES:
            shutil.copytree(REPOSITORY / place, Path(directory) / place, symlinks=True)
        compile_tree(_path_of(Path(directory)))
        yield _path_of(Path(directory))


@contextmanager
def serving(
    tree: Path, settings: Mapping[str, str] | None = None, *, starts: bool = True
) -> Iterator[Echoless]:
    """A broker of this tree, on fresh data; started, unless the caller does that."""
    with tempfile.TemporaryDirectory(prefix="versus-data-") as directory:
        broker = Echoless(Path(directory), settings, tree=tree)
        try:
            if starts:
                broker.start()
            yield broker
        finally:
            broker.kill()


def requests(here: Path, there: Path, rounds: int) -> dict[str, Pair]:
    """Every kind of request to one broker that stands alone."""
    figures = {}
    with serving(here) as ours, serving(there) as theirs:
        for name in KINDS:
            costs = partial(_cost, ours, name), partial(_cost, theirs, name)
            try:
                figures[name] = _compare(name, rounds, *costs)
            except ConnectionEndedError:
                print(
                    f"{name}: one of the two has closed the connection, as for what it does not serve"
                )
    return figures


def commit(here: Path, there: Path, rounds: int) -> dict[str, Pair]:
    """The event loop's part with `log_flush=commit`."""
    with serving(here, _COMMIT_SETTINGS) as ours, serving(there, _COMMIT_SETTINGS) as theirs:
        cost = partial(_cost, main_thread_only=True, requests=1000)
        figures = {}
        for name in PRODUCES:
            title = f"log_flush=commit, the loop's part, {name}"
            costs = partial(cost, ours, name), partial(cost, theirs, name)
            figures[title] = _compare(title, rounds, *costs)
    return figures


def cluster(here: Path, there: Path, rounds: int) -> dict[str, Pair]:
    """The leader of two followers, acks=all."""
    with _cluster(here) as ours, _cluster(there) as theirs:
        figures = {}
        for name in PRODUCES:
            title = f"leader of two followers, {name}"
            costs = partial(_leader_cost, ours, name), partial(_leader_cost, theirs, name)
            figures[title] = _compare(title, rounds, *costs)
    return figures


def transactions(here: Path, there: Path, rounds: int) -> dict[str, Pair]:
    """Transactions of fifty producers with a record in each of ten partitions, by librdkafka."""
    with serving(here) as ours, serving(there) as theirs:
        both = [
            Brokers(name, one.kafka_address, [one.process.pid])
            for name, one in (("here", ours), ("there", theirs))
        ]
        for one in both:
            create(one, _TRANSACTIONS.partitions)
        first, second = (partial(load, one, _TRANSACTIONS, _TRANSACTIONS_S) for one in both)
        figures = in_turn(rounds, first, second)
    for name, pair in figures.items():
        print_pair(f"{_TRANSACTIONS.name}: {name}", pair, "here", "there")
    return figures


def start(here: Path, there: Path, rounds: int) -> dict[str, Pair]:
    """A start up to the first acknowledged record, and the memory after it."""
    figures = in_turn(2 * rounds, partial(_start_once, here), partial(_start_once, there))
    for name, pair in figures.items():
        print_pair(name, pair, "here", "there")
    return figures


def _start_once(tree: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="versus-data-") as directory:
        broker = Echoless(Path(directory), tree=tree)
        begun = time.perf_counter()
        broker.start()
        try:
            acknowledge_one(broker.kafka_address)
            return {
                "start to the first acknowledged record, ms": 1000 * (time.perf_counter() - begun),
                "its processor time, ms": 1000 * processor_s(broker.process.pid),
                "resident memory after it, MB": resident_mb(broker.process.pid),
            }
        finally:
            broker.terminate()


@contextmanager
def _cluster(tree: Path) -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="versus-cluster-") as directory,
        Cluster(Path(directory), tree=tree) as brokers,
    ):
        brokers.start()
        yield brokers


def _leader_cost(cluster: Cluster, name: str) -> dict[str, float]:
    topic = next(_TOPICS)
    cluster.create_topic(topic, KINDS[name].partitions, leader=1)
    leader = cluster.brokers[1]
    take_pages(len(cluster.brokers) * _ROUND_BYTES_MAX)
    addresses = Addresses(leader.kafka_address, leader.native_address)
    return {"us": request_cost_us(leader.process.pid, addresses, name, topic, creates_topic=False)}


def _cost(
    broker: Echoless, name: str, *, requests: int | None = None, main_thread_only: bool = False
) -> dict[str, float]:
    addresses = Addresses(broker.kafka_address, broker.native_address)
    pid, topic = broker.process.pid, next(_TOPICS)
    take_pages(_ROUND_BYTES_MAX)
    us = request_cost_us(
        pid, addresses, name, topic, requests=requests, main_thread_only=main_thread_only
    )
    return {"us": us}


def _compare(
    title: str,
    rounds: int,
    here: Callable[[], dict[str, float]],
    there: Callable[[], dict[str, float]],
) -> Pair:
    pair = in_turn(rounds, here, there)["us"]
    print_pair(f"{title}, us", pair, "here", "there")
    return pair


MEASUREMENTS: Final = {
    "requests": requests,
    "commit": commit,
    "cluster": cluster,
    "start": start,
    "transactions": transactions,
}


def main() -> int:
    """Prints a line per figure; the ratio is this tree's figure divided by the commit's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("what", nargs="*", default=list(MEASUREMENTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    keep_compiled_code()
    figures: dict[str, Pair] = {}
    with this_tree() as here, tree_of(arguments.commit) as there:
        for name in arguments.what:
            figures |= MEASUREMENTS[name](here, there, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps({k: asdict(v) for k, v in figures.items()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
