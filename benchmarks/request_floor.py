"""`python -m benchmarks.request_floor COMMIT`: the least that a produce request costs a server in Python, beside the broker.

Five servers in turn, the same client: one takes each frame whole by uvloop and answers with bytes that it made before; one
does that on bare epoll, without an event loop; one also writes the batch to a file with `pwritev`; the
others are the broker as it is and as of a commit, which check, decide and remember. What lies between the third and a
target is what all that may cost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.floor_server import TOPIC
from benchmarks.pairs import several_in_turn
from benchmarks.present_pages import take_pages
from benchmarks.request_cost import KINDS, Addresses, processor_s, request_cost_us
from benchmarks.versus_commit import serving, this_tree, tree_of
from tests.support.echoless import Echoless

_KINDS: Final = ("produce-100", "produce-1k", "produce-16k")
_NUMBERS: Final = itertools.count()
_ROUND_BYTES_MAX: Final = 256 * 1024 * 1024


@contextmanager
def _server(*options: str) -> Iterator[Callable[[str], float]]:
    command = [sys.executable, "-m", "benchmarks.floor_server", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"127.0.0.1:{int(process.stdout.readline())}"
            yield partial(_floor_us, process.pid, Addresses(address, ""))
        finally:
            process.kill()


def _floor_us(pid: int, addresses: Addresses, kind: str) -> float:
    async def run() -> float:
        count = KINDS[kind].requests
        await KINDS[kind].run(addresses, TOPIC, count // 10)
        begun = processor_s(pid)
        await KINDS[kind].run(addresses, TOPIC, count)
        return (processor_s(pid) - begun) / count * 1e6

    return asyncio.run(run())


def main() -> None:
    """Measures in rounds, and prints medians and ranges."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_floor", description=__doc__)
    parser.add_argument("commit", help="its broker is measured as well")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="floor-") as directory,
        this_tree() as here,
        tree_of(arguments.commit) as there,
        _server() as answers,
        _server("--epoll") as epoll,
        _server("--file", str(Path(directory) / "log")) as writes,
        serving(here) as ours,
        serving(there) as theirs,
    ):
        servers: dict[str, Callable[[str], float]] = {
            "answers": answers,
            "answers, epoll": epoll,
            "answers and writes": writes,
            "the broker": partial(_broker_us, ours),
            arguments.commit: partial(_broker_us, theirs),
        }
        for kind in _KINDS:
            _compare(arguments.rounds, kind, servers)


def _broker_us(broker: Echoless, kind: str) -> float:
    addresses = Addresses(broker.kafka_address, broker.native_address)
    return request_cost_us(broker.process.pid, addresses, kind, f"{TOPIC}-{next(_NUMBERS)}")


def _compare(rounds: int, kind: str, servers: Mapping[str, Callable[[str], float]]) -> None:
    def measure(cost_us: Callable[[str], float]) -> dict[str, float]:
        take_pages(_ROUND_BYTES_MAX)
        return {"us": cost_us(kind)}

    found = several_in_turn(rounds, [partial(measure, one) for one in servers.values()])
    for name, figures in zip(servers, found, strict=True):
        us = sorted(one["us"] for one in figures)
        middle = statistics.median(us)
        print(f"{kind:12} {name:20} {middle:6.1f} us  [{us[0]:.1f} .. {us[-1]:.1f}]", flush=True)


if __name__ == "__main__":
    main()
