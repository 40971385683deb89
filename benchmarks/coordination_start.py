"""The cost of coordination at a broker's start: the time of each step, on a new and a full tree.

    python -m benchmarks.coordination_start [PARTITIONS]

Steps are those of the broker, in its order; the best of several starts counts, since the question
is the cost of the code. CPU time is shown beside it, for machines that are busy with other things.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from echoless.broker.metadata.cluster_id import read_or_create_cluster_id
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.broker.metadata.registration import BrokerInfo, Endpoint, register_broker
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.embedded import EmbeddedNodeTree

STARTS: Final = 10
PARTITIONS_DEFAULT: Final = 1000
BROKER: Final = BrokerInfo(
    broker_id=1, endpoints={"PLAINTEXT": Endpoint(host="127.0.0.1", port=9092)}, started_ms=0
)

T = TypeVar("T")


class Laps:
    """The best wall-clock and CPU time of each step, in ms."""

    def __init__(self) -> None:
        self._best: dict[str, tuple[float, float]] = {}

    async def measure(self, step: str, call: Awaitable[T]) -> T:
        """Awaits the step and returns its result."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = await call
        taken = (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3
        self._best[step] = min(self._best.get(step, taken), taken)
        return result

    def show(self, title: str) -> None:
        """Prints one line per step."""
        print(f"{title}: {sum(wall for wall, _ in self._best.values()):.1f} ms")
        for step, (wall, cpu) in self._best.items():
            print(f"  {step:<16}{wall:8.2f} ms wall {cpu:8.2f} ms CPU")


async def open_tree(path: str) -> EmbeddedNodeTree:
    """Opens the tree; synchronous, but measured like the other steps."""
    return EmbeddedNodeTree.open(path)


async def start(path: str, laps: Laps, partitions: int = 0) -> None:
    """One start of a broker; it creates a topic of this many `partitions` before it stops."""
    tree = await laps.measure("open", open_tree(path))
    await laps.measure("cluster id", read_or_create_cluster_id(tree))
    registry = TopicRegistry(tree, rng=Random(0))
    await laps.measure("load topics", registry.load())
    await laps.measure("register", register_broker(tree, BROKER))
    await laps.measure("claim leadership", registry.claim_leadership(BROKER.broker_id))
    producer_ids = ProducerIds(tree, BROKER.broker_id)
    await laps.measure("producer ids", producer_ids.start())
    if partitions:
        new = NewTopic(name="t", partitions=partitions)
        await laps.measure(f"(create {partitions})", registry.create_topic(new))
    await tree.close()


async def main(partitions: int) -> None:
    """Measures and prints."""
    first, later = Laps(), Laps()
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as directory:
            path = str(Path(directory, "coordination.db"))
            await start(path, first, partitions)
            await start(path, later)
    first.show("new tree")
    later.show(f"tree with {partitions} partitions")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else PARTITIONS_DEFAULT))
