"""`python -m benchmarks.request_floor COMMIT`: the least that a produce request costs a server in Python, beside the broker.

Four servers in turn, the same client: one takes each frame whole by uvloop and answers with bytes that it made before; one
also writes the batch to a file with `pwritev`; the others are the broker as it is and as of a commit, which check,
decide and remember. What lies between the second and a target is what all that may cost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.pairs import several_in_turn
from benchmarks.present_pages import take_pages
from benchmarks.request_cost import KINDS, Addresses, processor_s, request_cost_us
from benchmarks.versus_commit import serving, this_tree, tree_of
from tests.support.echoless import Echoless

_TOPIC: Final = "floor"
_KINDS: Final = ("produce-100", "produce-1k", "produce-16k")
_INIT_PRODUCER_ID: Final = 22
_NUMBERS: Final = itertools.count()
_ROUND_BYTES_MAX: Final = 256 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024
_TRAILING_TAGS: Final = 3
_PRODUCER_ID: Final = struct.pack(">bihqhb", 0, 0, 0, 1000, 0, 0)
"""The answer to InitProducerId v2 after the correlation id."""
_PRODUCED: Final = (
    bytes((0, 2, len(_TOPIC) + 1))
    + _TOPIC.encode()
    + struct.pack(">bihqqqbbb", 2, 0, 0, 0, -1, 0, 1, 0, 0)
    + struct.pack(">bib", 0, 0, 0)
)
"""The answer to Produce v9 with one batch, after the correlation id."""


class _Server(asyncio.BufferedProtocol):
    """Answers each frame as it arrives; frames of one read in one write."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._position = 0
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        end, begin, answers = self._end + nbytes, 0, []
        while end - begin >= 4:
            (size,) = struct.unpack_from(">i", self._buffer, begin)
            if end - begin < 4 + size:
                break
            answers.append(self._answer(begin + 4, begin + 4 + size))
            begin += 4 + size
        self._view[: end - begin] = self._view[begin:end]
        self._end = end - begin
        if answers:
            self._transport.write(b"".join(answers))  # type: ignore[attr-defined]

    def _answer(self, begin: int, end: int) -> bytes:
        is_first = self._buffer[begin + 1] == _INIT_PRODUCER_ID
        if self._descriptor is not None and not is_first:
            batch = self._view[begin + len(_TOPIC) : end - _TRAILING_TAGS]
            self._position += os.pwritev(self._descriptor, (batch,), self._position)
        body = _PRODUCER_ID if is_first else _PRODUCED
        correlation_id = self._buffer[begin + 4 : begin + 8]
        return struct.pack(">i", 4 + len(body)) + correlation_id + body


async def _serve(path: Path | None) -> None:
    descriptor = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Server(descriptor), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def _server(file: str) -> Iterator[Callable[[str], float]]:
    command = [sys.executable, "-m", "benchmarks.request_floor", "-", "--serve", file]
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
        await KINDS[kind].run(addresses, _TOPIC, count // 10)
        begun = processor_s(pid)
        await KINDS[kind].run(addresses, _TOPIC, count)
        return (processor_s(pid) - begun) / count * 1e6

    return asyncio.run(run())


def main() -> None:
    """Measures in rounds, and prints medians and ranges."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_floor", description=__doc__)
    parser.add_argument("commit", help="its broker is measured as well")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        uvloop.run(_serve(Path(arguments.serve) if arguments.serve else None))
        return
    with (
        tempfile.TemporaryDirectory(prefix="floor-") as directory,
        this_tree() as here,
        tree_of(arguments.commit) as there,
        _server("") as answers,
        _server(str(Path(directory) / "log")) as writes,
        serving(here) as ours,
        serving(there) as theirs,
    ):
        servers: dict[str, Callable[[str], float]] = {
            "answers": answers,
            "answers and writes": writes,
            "the broker": partial(_broker_us, ours),
            arguments.commit: partial(_broker_us, theirs),
        }
        for kind in _KINDS:
            _compare(arguments.rounds, kind, servers)


def _broker_us(broker: Echoless, kind: str) -> float:
    addresses = Addresses(broker.kafka_address, broker.native_address)
    return request_cost_us(broker.process.pid, addresses, kind, f"{_TOPIC}-{next(_NUMBERS)}")


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
