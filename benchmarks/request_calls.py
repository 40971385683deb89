"""`python -m benchmarks.request_calls`: how many calls the broker makes for one request.

Calls of Python functions, and of C functions from them, in the broker's own files. They are most of what a request
costs, and a machine that is slow or busy does not change their number. `tests/benchmarks/test_request_calls.py`
fails if there are many more than last recorded here.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvloop

from benchmarks.request_cost import KINDS, Addresses, prepare
from echoless.broker.config.names import LogFlush
from tests.support.echoless import SOURCES
from tests.support.in_process import Running, in_process

RECORDED: Final = {
    "produce-1k": 91,
    "produce-16k": 108,
    "produce-1k-of-4": 300,
    "native-1k": 90,
    "fetch-1k": 78,
    "fetch-idle": 207,
    "offset-commit": 333,
    "commit produce-1k": 163,
    "commit produce-1k-of-4": 385,
}
"""At the last count. Put the new numbers here after a change that saves calls, so that they stay saved.

Kinds after `commit` wait for a flush, as those of a leader wait for its followers.
"""
_COMMIT: Final = "commit "
_ROOMS: Final = tuple(
    str(SOURCES / "echoless" / room) for room in ("broker", "coordinators", "storage", "protocol")
)
_SAMPLES: Final = 3
_REQUESTS: Final = 20


class Calls:
    """A profile function that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(_ROOMS):
            self.count += 1


async def count_calls(directory: Path) -> dict[str, int]:
    """Calls per request of each kind in `RECORDED`, five requests in flight, by a broker in this process."""
    waiting = [name for name in RECORDED if name.startswith(_COMMIT)]
    others = [name for name in RECORDED if name not in waiting]
    async with in_process(directory / "os") as running:
        found = await _count(running, others)
    async with in_process(directory / "commit", log_flush=LogFlush.COMMIT) as running:
        return found | await _count(running, waiting)


async def _count(running: Running, names: list[str]) -> dict[str, int]:
    addresses = Addresses(running.kafka_address, running.native_address)
    found = {}
    for name in names:
        kind = name.removeprefix(_COMMIT)
        await prepare(addresses, kind, kind)
        samples = [await _sample(kind, addresses) for _ in range(_SAMPLES)]
        found[name] = round(statistics.median(samples))
    return found


async def _sample(name: str, addresses: Addresses) -> float:
    """The difference of a long run and a short one: what a connection costs drops out."""
    run = KINDS[name].run
    few = await _counted(run(addresses, name, _REQUESTS))
    many = await _counted(run(addresses, name, 2 * _REQUESTS))
    return (many - few) / _REQUESTS


async def _counted(work: Awaitable[None]) -> int:
    calls = Calls()
    sys.setprofile(calls)
    try:
        await work
    finally:
        sys.setprofile(None)
    return calls.count


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        for name, count in runner.run(count_calls(Path(directory))).items():
            print(f'    "{name}": {count},  # was {RECORDED[name]}')


if __name__ == "__main__":
    main()
