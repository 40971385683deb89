"""`python -m tests.hostile.fuzz.attack KAFKA NATIVE --seed S --first N [--seconds T] [--requests K]`.

Sends hostile requests, a few on each connection, and reads what comes back; prints one line of JSON
per connection: the requests' numbers, and the client's port, by which the broker's log names it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import socket
import sys
import time
import uuid
from collections.abc import Iterator

from tests.hostile.fuzz.kafka_requests import kafka_request
from tests.hostile.fuzz.native_messages import native_message
from tests.hostile.fuzz.values import TOPICS
from tests.hostile.target import framed
from tests.support.native_client import NativeConnection

ANSWER_WAIT_S = 0.03
"""For the answers of one connection; a fetch that waits for data is left waiting."""
_IDS_EVERY = 200
_NATIVE_SHARE = 0.2


def request(seed: int, number: int, topic_ids: list[uuid.UUID]) -> tuple[bool, bytes]:
    """Whether request `number` is for the native port, and its frame without the length."""
    rng = random.Random(f"{seed}/{number}")
    if rng.random() < _NATIVE_SHARE:
        return True, native_message(rng, number, topic_ids)
    return False, kafka_request(rng, number, topic_ids)


def connections(seed: int, first: int) -> Iterator[tuple[random.Random, range]]:
    """The numbers of the requests of each connection; how it ends is drawn from the generator."""
    while True:
        rng = random.Random(f"{seed}/connection/{first}")
        numbers = range(first, first + rng.choice((1, 1, 2, 5)))
        yield rng, numbers
        first = numbers.stop


class Attack:
    def __init__(self, kafka: str, native: str, seed: int) -> None:
        self._addresses = [_address(kafka), _address(native)]
        self._seed = seed
        self._topic_ids: list[uuid.UUID] = []

    def run(self, first: int, seconds: float, requests_max: float) -> None:
        deadline = time.monotonic() + seconds
        for count, (rng, numbers) in enumerate(connections(self._seed, first)):
            if count % _IDS_EVERY == 0:
                self._topic_ids = learn_topic_ids(self._addresses[1])
            self._connection(rng, numbers)
            if numbers.stop - first >= requests_max or time.monotonic() > deadline:
                return

    def _connection(self, rng: random.Random, numbers: range) -> None:
        requests = [request(self._seed, number, self._topic_ids) for number in numbers]
        is_native = requests[0][0]
        frames = [framed(frame) for native, frame in requests if native == is_native]
        with socket.create_connection(self._addresses[is_native], timeout=30) as connection:
            port = connection.getsockname()[1]
            line = {"native": is_native, "numbers": [*numbers], "port": port}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            with contextlib.suppress(OSError):  # the broker may close before it has read all
                connection.sendall(b"".join(frames))
                if rng.random() < 0.1:
                    connection.shutdown(socket.SHUT_WR)
                if rng.random() < 0.9:
                    connection.settimeout(ANSWER_WAIT_S)
                    left = len(frames)
                    while left and (data := connection.recv(65536)):
                        left -= len(data) < 65536


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def learn_topic_ids(native: tuple[str, int]) -> list[uuid.UUID]:
    """Creates the topics that plausible requests name, and learns their ids."""
    import asyncio

    async def learn() -> list[uuid.UUID]:
        connection = await NativeConnection.open("{}:{}".format(*native))
        for topic in TOPICS:
            await connection.call("create_topic", topic=topic, partitions=2, replication_factor=1)
        answer = await connection.call("metadata", topics=list(TOPICS))
        await connection.close()
        return [uuid.UUID(row["topic_id"]) for row in answer["topics"] if row.get("topic_id")]

    return asyncio.run(learn())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kafka")
    parser.add_argument("native")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--requests", type=float, default=math.inf, help="at most about so many")
    given = parser.parse_args()
    Attack(given.kafka, given.native, given.seed).run(given.first, given.seconds, given.requests)


if __name__ == "__main__":
    main()
