"""`python -m tests.hostile.steps.walk [--api NAME ...] [--mode MODE ...]`: the longest step of the loop, request by request."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.hostile.steps import shapes
from tests.hostile.steps.measured_broker import STEPS_FILE, Step, read_steps
from tests.hostile.steps.shapes import Shaped
from tests.hostile.target import connect, framed, header
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic

TRIES: Final = 2
_ANSWER_S: Final = 30.0
MODES: Final = ("open", "authorizer", "before a log-in", "after a log-in")


class Held(NamedTuple):
    """The longest step that one request caused."""

    request: Shaped
    mode: str
    step_s: float
    what: str
    answered: bool


class Walk:
    def __init__(self, broker: Echoless, steps: Path, mode: str) -> None:
        self._broker = broker
        self._steps = steps
        self._mode = mode
        _, self._position = read_steps(steps)
        first, _ = read_steps(steps)
        self._normal_s = min(one.yardstick_s for one in first)

    def held(self, request: Shaped) -> Held:
        """Sends a request a few times: what it costs each time, it costs; what the machine takes now and then does not count."""
        return min((self._once(request) for _ in range(TRIES)), key=lambda one: one.step_s)

    def _once(self, request: Shaped) -> Held:
        _, self._position = read_steps(self._steps, self._position)
        answered = self._send(request)
        settle(self._broker)
        steps, self._position = read_steps(self._steps, self._position)
        longest = max(map(self._net_s, steps), default=0.0)
        what = next((one.what for one in steps if self._net_s(one) == longest), "")
        return Held(request, self._mode, longest, what, answered)

    def _net_s(self, step: Step) -> float:
        self._normal_s = min(self._normal_s, step.yardstick_s)
        return step.took_s / max(1.0, step.yardstick_s / self._normal_s)

    def _send(self, request: Shaped) -> bool:
        api, version = request.api, request.version
        data = framed(header(api.key, version, flexible=api.is_flexible(version)) + request.body)
        with connect(self._broker.kafka_address) as connection:
            connection.settimeout(_ANSWER_S)
            try:
                connection.sendall(data)
                size = _received(connection, 4)
                _received(connection, struct.unpack(">i", size)[0])
            except (ConnectionError, EOFError):
                return False
        return True


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def settle(broker: Echoless) -> None:
    """Another client's request, so that the step that freed the last one's memory has ended."""
    with connect(broker.kafka_address) as connection:
        for _ in range(3):
            connection.sendall(framed(header(18, 0, flexible=False)))
            size = _received(connection, 4)
            _received(connection, struct.unpack(">i", size)[0])


@contextlib.contextmanager
def measured(directory: Path, **settings: str) -> Iterator[tuple[Echoless, Path]]:
    steps = directory / "steps.jsonl"
    os.environ[STEPS_FILE] = str(steps)
    broker = Echoless(directory, settings, module="tests.hostile.steps.measured_broker")
    broker.start()
    try:
        yield broker, steps
    finally:
        broker.kill()


async def furnish(address: str) -> None:
    """A topic of many partitions and a group with offsets and members."""
    connection = await RawConnection.open(address)
    await create_topic(connection, shapes.TOPIC, 1000)
    await connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", nargs="*", default=[])
    parser.add_argument("--least", type=float, default=5.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, measured(Path(directory)) as (broker, steps):
        asyncio.run(furnish(broker.kafka_address))
        walk = Walk(broker, steps, "open")
        for request in shapes.requests(given.api):
            began = time.monotonic()
            held = walk.held(request)
            if 1000 * held.step_s >= given.least:
                print(
                    f"{request.api.name:32} v{request.version:<3} {request.shape:18} {len(request.body):>9} {1000 * held.step_s:7.1f} ms  {'' if held.answered else 'closed'} {time.monotonic() - began:.1f}s {held.what}",
                    flush=True,
                )
        print(broker.process.log()[-1500:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
