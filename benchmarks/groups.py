"""Consumer groups, Echoless beside Apache Kafka 3.9, in one run with the same raw client.

    python -m benchmarks.groups [rebalance] [commits] [restart] [--members 3 100 1000] [--offsets 1000000]

    rebalance  every member joins again with another subscription at the same moment: milliseconds from the first
               JoinGroup sent to the last SyncGroup answered, p50 of the rounds
    commits    one offset a request, several connections that each wait for the answer: requests a second
    restart    SIGKILL of a broker whose one partition of __consumer_offsets holds so many offsets: seconds from the
               new start to the first OffsetFetch that is answered with what was committed

Members are asyncio connections in this process, which costs both brokers the same. Requests are of old versions,
packed by hand. Delays are off: `group.initial.rebalance.delay.ms` is 0 for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic, wait_for_leaders

_JOIN: Final = (11, 3)
_SYNC: Final = (14, 2)
_COMMIT: Final = (8, 2)
_FETCH: Final = (9, 2)
_TOPIC: Final = "positions"
_PARTITIONS: Final = 100
_SESSION_MS: Final = 300_000
_CONNECTIONS: Final = 32
_NOT_YET: Final = frozenset({14, 15, 16})
"""Coordinator loading, not available, not this broker."""
_REBALANCING: Final = frozenset({22, 27})
_ECHOLESS: Final = {"offsets_topic_num_partitions": "1"}


class Broker(NamedTuple):
    """One of the two, by name."""

    name: str
    process: Echoless | ApacheKafka


class Figure(NamedTuple):
    """One row: what was measured, and the figure by the broker's name."""

    what: str
    by_broker: Mapping[str, float]


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    end = position + 2 + max(size, 0)
    return data[position + 2 : end].decode(), end


class Member:
    """One member on its own connection."""

    def __init__(self, connection: RawConnection, group: str) -> None:
        self._connection = connection
        self._group = _string(group)
        self._member_id = ""
        self.generation = -1
        self._others: list[str] = []

    async def rebalance(self, round_number: int) -> None:
        """Join and sync until no other member has begun one more rebalance meanwhile."""
        while await self._rebalance_once(round_number):
            pass

    async def _rebalance_once(self, round_number: int) -> bool:
        """Join and sync; the leader assigns a few bytes to each member. Whether it has to be done again."""
        topics = b"\0\0\0\0\0\1\0\1t" + _bytes(struct.pack(">i", round_number))
        body = [
            *(self._group, struct.pack(">ii", _SESSION_MS, _SESSION_MS)),
            *(_string(self._member_id), _string("consumer"), struct.pack(">i", 1)),
            *(_string("range"), _bytes(topics)),
        ]
        self._read_join(await self._call(_JOIN, b"".join(body)))
        body = [self._group, struct.pack(">i", self.generation), _string(self._member_id)]
        body.append(struct.pack(">i", len(self._others)))
        body += [_string(one) + _bytes(b"0123456789") for one in self._others]
        answer = await self._call(_SYNC, b"".join(body))
        (code,) = struct.unpack_from(">h", answer, 4)
        assert code in {0, *_REBALANCING}, f"SyncGroup: {code}"
        return bool(code)

    def _read_join(self, answer: bytes) -> None:
        _, code, self.generation = struct.unpack_from(">ihi", answer)
        assert code == 0, f"JoinGroup: {code}"
        _, position = _read_string(answer, 10)
        _, position = _read_string(answer, position)
        self._member_id, position = _read_string(answer, position)
        (count,) = struct.unpack_from(">i", answer, position)
        position += 4
        self._others = []
        for _ in range(count):
            name, position = _read_string(answer, position)
            (size,) = struct.unpack_from(">i", answer, position)
            position += 4 + size
            self._others.append(name)

    async def _call(self, api: tuple[int, int], body: bytes) -> bytes:
        self._connection.send(*api, body, flexible=False)
        return await self._connection.receive()


async def _rebalance(address: str, members: int, rounds: int) -> float:
    """Milliseconds of a rebalance, the median of the rounds."""
    await _coordinator_is_there(address)
    connections = [await RawConnection.open(address) for _ in range(members)]
    group = [Member(connection, f"group-{members}") for connection in connections]
    took = []
    gc.disable()
    for number in range(rounds + 1):
        began = time.monotonic()
        await asyncio.gather(*(member.rebalance(number) for member in group))
        took.append((time.monotonic() - began) * 1000)
        while len({member.generation for member in group}) > 1:  # the first joins one by one
            await asyncio.gather(*(member.rebalance(-1 - number) for member in group))
    gc.enable()
    for connection in connections:
        await connection.close()
    return statistics.median(took[1:])


def _commit_body(group: str, partitions: Sequence[int], offset: int) -> bytes:
    rows = b"".join(struct.pack(">iq", partition, offset) + _string("") for partition in partitions)
    head = _string(group) + struct.pack(">i", -1) + _string("") + struct.pack(">qi", -1, 1)
    return head + _string(_TOPIC) + struct.pack(">i", len(partitions)) + rows


def _commit_codes(answer: bytes) -> set[int]:
    _, position = _read_string(answer, 4)
    (count,) = struct.unpack_from(">i", answer, position)
    rows = struct.iter_unpack(">ih", answer[position + 4 : position + 4 + 6 * count])
    return {code for _, code in rows}


async def _commits(address: str, seconds: float) -> float:
    """Commits a second of one offset each."""
    await _coordinator_is_there(address)
    done = 0
    end = time.monotonic() + seconds

    async def commit_all(number: int) -> None:
        nonlocal done
        connection = await RawConnection.open(address)
        body = _commit_body(f"committer-{number}", [number % _PARTITIONS], 1)
        while time.monotonic() < end:
            connection.send(*_COMMIT, body, flexible=False)
            assert _commit_codes(await connection.receive()) == {0}
            done += 1
        await connection.close()

    began = time.monotonic()
    await asyncio.gather(*(commit_all(number) for number in range(_CONNECTIONS)))
    return done / (time.monotonic() - began)


async def _fill(address: str, offsets: int) -> None:
    """Commit so many offsets, a group for each hundred."""
    await _coordinator_is_there(address)
    groups = iter(range(offsets // _PARTITIONS))

    async def commit_some() -> None:
        connection = await RawConnection.open(address)
        for number in groups:
            body = _commit_body(f"holder-{number}", range(_PARTITIONS), number)
            connection.send(*_COMMIT, body, flexible=False)
            assert _commit_codes(await connection.receive()) == {0}
        await connection.close()

    await asyncio.gather(*(commit_some() for _ in range(_CONNECTIONS)))


async def _answers(address: str, offsets: int) -> None:
    """Returns when the last group's offsets are read back."""
    number = offsets // _PARTITIONS - 1
    body = _string(f"holder-{number}") + struct.pack(">i", 1) + _string(_TOPIC)
    body += struct.pack(">ii", 1, 0)
    connection = await RawConnection.open(address)
    while True:
        connection.send(*_FETCH, body, flexible=False)
        answer = await connection.receive()
        (code,) = struct.unpack_from(">h", answer, len(answer) - 2)
        if code == 0:
            _, position = _read_string(answer, 4)
            _, offset = struct.unpack_from(">iq", answer, position + 4)
            assert offset == number, f"{offset} is read back, {number} was committed"
            await connection.close()
            return
        assert code in _NOT_YET, f"OffsetFetch: {code}"
        await asyncio.sleep(0.005)


async def _coordinator_is_there(address: str) -> None:
    connection = await RawConnection.open(address)
    code = -1
    while code:
        found = await connection.call("find_coordinator", 4, key_type=0, coordinator_keys=("g",))
        code = found.coordinators[0].error_code
    code = -1
    while code:
        body = _commit_body("first", [0], 0)
        connection.send(*_COMMIT, body, flexible=False)
        (code,) = _commit_codes(await connection.receive())
    await connection.close()


async def _prepare(address: str) -> None:
    connection = await RawConnection.open(address)
    await create_topic(connection, _TOPIC, _PARTITIONS)
    await wait_for_leaders(connection, _TOPIC, _PARTITIONS)
    await connection.close()


def rebalance(brokers: Sequence[Broker], options: argparse.Namespace) -> Iterator[Figure]:
    """Measure groups of each size."""
    for members in options.members:
        yield _measured(
            f"rebalance of {members:,} members, ms",
            brokers,
            partial(_rebalance, members=members, rounds=options.rounds),
        )


def commits(brokers: Sequence[Broker], options: argparse.Namespace) -> Iterator[Figure]:
    """Measure commits of one offset."""
    what = f"commits of one offset, {_CONNECTIONS} connections, requests/s"
    yield _measured(what, brokers, lambda address: _commits(address, options.seconds))


def restart(brokers: Sequence[Broker], options: argparse.Namespace) -> Iterator[Figure]:
    """Measure the time from a start to the first answer."""
    answers: dict[str, float] = {}
    starts: dict[str, float] = {}
    for name, process in brokers:
        asyncio.run(_fill(process.kafka_address, options.offsets))
        process.kill()
        began = time.monotonic()
        process.start()
        starts[name] = time.monotonic() - began
        asyncio.run(_answers(process.kafka_address, options.offsets))
        answers[name] = time.monotonic() - began
    what = f"after SIGKILL with {options.offsets:,} offsets"
    yield Figure(f"{what}: until it is ready, s", starts)
    yield Figure(f"{what}: until they are read back, s", answers)


def _measured(
    what: str, brokers: Sequence[Broker], measure: Callable[[str], Coroutine[None, None, float]]
) -> Figure:
    found = {}
    for name, process in brokers:
        with asyncio.Runner() as runner:
            found[name] = runner.run(measure(process.kafka_address))
    return Figure(what, found)


@contextlib.contextmanager
def _both(names: Sequence[str]) -> Iterator[list[Broker]]:
    directory = Path(tempfile.mkdtemp(prefix="groups-"))
    made: dict[str, Callable[[], Echoless | ApacheKafka]] = {
        "echoless": lambda: Echoless(directory / "echoless", _ECHOLESS),
        "kafka": lambda: ApacheKafka(directory / "kafka", jvm=KAFKA_JVM),
    }
    found = [Broker(name, made[name]()) for name in names]
    try:
        for _, process in found:
            process.start()
            asyncio.run(_prepare(process.kafka_address))
        yield found
    finally:
        for _, process in found:
            process.kill()
        shutil.rmtree(directory)


_PARTS: Final = {"rebalance": rebalance, "commits": commits, "restart": restart}


def main() -> None:
    """Print the table of `docs/benchmarks.md`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*_PARTS, []], default=[])
    parser.add_argument("--members", type=int, nargs="+", default=[3, 100, 1000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--brokers", nargs="+", default=["echoless", "kafka"])
    options = parser.parse_args()
    print("| |", " | ".join(options.brokers), "|")
    print("|---|" + "---|" * len(options.brokers))
    for part in options.parts or list(_PARTS):
        with _both(options.brokers) as brokers:
            for what, found in _PARTS[part](brokers, options):
                print(f"| {what} |", " | ".join(f"{found[one]:,.1f}" for one in found), "|")


if __name__ == "__main__":
    main()
