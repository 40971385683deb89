"""The cost of fault injection for a broker without rules: CPU time per produce request.

    python -m benchmarks.fault_hooks [--rounds N] [--count N]

Brokers in this process take the same frames in turn, without a client and without sockets, so that
only their own work is measured: two unchanged, two whose files are not watched and whose
connections write as if no answer ever came in pieces (`_Bypassed`). Batches are small, so that a
fixed cost weighs most. `os`: answered at once; `commit`: answered after a flush by another thread,
whose time does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

from echoless.broker.assembly import new_broker
from echoless.broker.config.loading import Address, Config, LogFlush
from echoless.broker.decisions.decisions import Decisions
from echoless.broker.environment import Environment, this_machine
from echoless.broker.faults.faults import FaultInjection
from echoless.broker.handlers.dispatch import KafkaDispatcher
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.connection import Connection
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.server import Server, bind
from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from tests.support.raw_batches import plain_batch
from tests.support.raw_produce import PRODUCE, PartitionData, encode_produce

_VERSION = 9
_TOPIC = "load"
_VALUE = bytes(900)
_IN_FLIGHT = 5
_PRODUCER_ID = 7
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Files in memory: disk time is not the question."""


class _Bypassed(FaultInjection):
    """Leaves the broker's files and peers unwrapped."""

    def __init__(self, config: Config, environment: Environment, decisions: Decisions) -> None:
        super().__init__(config, environment, decisions)
        self.environment = environment


class _ConnectionBefore(Connection):
    """Flushes as it did before answers could come in pieces."""

    def _flush_slots(self) -> None:
        slots = self._slots
        while slots and slots[0].ready and self._may_write:
            buffers = slots.popleft().buffers
            self._count_unsent(-(0 if buffers is None else sum(map(len, buffers))))
            if buffers is not None:
                self._write(buffers)


class _Transport(asyncio.Transport):
    """Accepts everything, and counts the answers: one write may hold several."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered = 0
        self.has_answered = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from(">i", data, position)
            position += 4 + length
            self.unanswered -= 1
        self.has_answered.set()

    async def answered(self, unanswered_max: int) -> None:
        """Returns once no more than this many requests wait for their answer."""
        while self.unanswered > unanswered_max:
            self.has_answered.clear()
            await self.has_answered.wait()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Candidate:
    """One broker with one connection, fed by hand."""

    def __init__(self, directory: Path, log_flush: LogFlush, *, has_hooks: bool) -> None:
        config = Config(data_dir=str(directory), log_flush=log_flush)
        faults_class = FaultInjection if has_hooks else _Bypassed
        self._broker = new_broker(config, this_machine(), faults_class=faults_class)
        self._connection_class = Connection if has_hooks else _ConnectionBefore
        self._sequence = 0
        self._transport = _Transport()

    async def start(self) -> None:
        await self._broker.start({})
        await self._broker.services.topics.create(
            NewTopic(name=_TOPIC, partitions=1, replication_factor=1)
        )
        listener = bind("listen", Address("127.0.0.1", 0))
        budget, unsent = MemoryBudget(2**28), UnsentAnswers(UNSENT_BYTES_MAX)
        metrics, config = self._broker.metrics, self._broker.config
        server = Server(
            listener,
            KafkaDispatcher(self._broker.services),
            config=config,
            budget=budget,
            unsent=unsent,
            metrics=metrics,
        )
        self._broker.faults.watch([server], self._broker.services)
        listener.close()
        self._connection = self._connection_class(
            server.dispatch,
            connection_id=1,
            frame_size_max=config.request_size_max,
            budget=budget,
            unsent=unsent,
            connections=server.connections,
            metrics=metrics,
        )
        self._connection.connection_made(self._transport)

    async def stop(self) -> None:
        self._connection.connection_lost(None)
        self._broker.begin_stop()
        await self._broker.stop()

    async def cpu_per_request(self, count: int) -> float:
        """CPU microseconds of the event loop's thread for each of `count` requests."""
        frames = [self._frame(number) for number in range(self._sequence, self._sequence + count)]
        self._sequence += count
        transport, connection = self._transport, self._connection
        gc.collect()
        gc.disable()
        begin = time.thread_time()
        for frame in frames:
            buffer = connection.get_buffer(-1)
            buffer[: len(frame)] = frame
            transport.unanswered += 1
            connection.buffer_updated(len(frame))
            await transport.answered(_IN_FLIGHT - 1)
        await transport.answered(0)
        cpu_s = time.thread_time() - begin
        gc.enable()
        return 1e6 * cpu_s / count

    def _frame(self, number: int) -> bytes:
        batch = plain_batch(
            [_VALUE], producer_id=_PRODUCER_ID, producer_epoch=0, base_sequence=number
        )
        body = encode_produce(_VERSION, -1, [PartitionData(_TOPIC, 0, batch.encode())])
        frame = struct.pack(">hhih", PRODUCE, _VERSION, number % 2**31, 1) + b"b\0" + body
        return struct.pack(">i", len(frame)) + frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=401)
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    for log_flush in LogFlush:
        with tempfile.TemporaryDirectory(dir=_MEMORY) as directory, asyncio.Runner() as runner:
            rounds = measure(runner, Path(directory), log_flush, arguments.rounds, arguments.count)
            report(log_flush.value, rounds)


def measure(
    runner: asyncio.Runner, directory: Path, log_flush: LogFlush, rounds: int, count: int
) -> list[dict[str, float]]:
    """CPU microseconds per request of two brokers of each kind, taking turns."""
    candidates = {
        name: _Candidate(directory / name, log_flush, has_hooks=name.startswith("hooks"))
        for name in ("hooks-1", "bypassed-1", "hooks-2", "bypassed-2")
    }
    for candidate in candidates.values():
        runner.run(candidate.start())
        runner.run(candidate.cpu_per_request(count))  # warm up
    order, figures = list(candidates), []
    shuffle = random.Random(1).shuffle
    for _ in range(rounds):
        shuffle(order)
        figures.append(
            {name: runner.run(candidates[name].cpu_per_request(count)) for name in order}
        )
    for candidate in candidates.values():
        runner.run(candidate.stop())
    return figures


def report(name: str, rounds: list[dict[str, float]]) -> None:
    """The medians, and the median ratio of a round; the ratio within one kind is the noise."""
    for kind in ("hooks", "bypassed"):
        found = statistics.median(one[f"{kind}-{n}"] for one in rounds for n in (1, 2))
        print(f"{name:8} {kind:9} {found:8.2f} us CPU/request")
    ratio = statistics.median(
        (one["hooks-1"] + one["hooks-2"]) / (one["bypassed-1"] + one["bypassed-2"])
        for one in rounds
    )
    noise = statistics.median(
        (one["hooks-1"] + one["bypassed-1"]) / (one["hooks-2"] + one["bypassed-2"])
        for one in rounds
    )
    print(
        f"{name:8} ratio {ratio:.4f}   one half of both against the other {noise:.4f}", flush=True
    )


if __name__ == "__main__":
    main()
