"""A broker inside the test's process, on a loop in a thread: what blocking code can talk to.

with BrokerThread(tmp_path, num_partitions=3) as broker: ...
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

from echoless.client.cluster import parse_addresses
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.pipeline.batches.partition_leader import LATEST, PartitionLeader
from echoless.pipeline.exactly_once.read_back import split
from echoless.protocol.records import Record, read_records
from tests.support.in_process import Running, in_process

_LONG_MS = 10 * 86_400_000


class BrokerThread:
    """`settings`: names of `Config`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._context = in_process(self._directory, **self._settings)
        self.running: Running = self._call(self._context.__aenter__())
        self.address = self.running.kafka_address
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls it in the broker's thread."""
        self._loop.call_soon_threadsafe(call, *arguments)

    def forget_producers(self, topic: str | None = None, partition: int | None = None) -> None:
        """Makes the broker forget producers as if idle for long, there or everywhere."""
        self._call(self._forget_producers(topic, partition))

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic."""
        row = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        row |= {"assignments": [], "configs": []}
        fields = {"topics": [row], "timeout": 10_000, "validate_only": False}
        self._call(self._ask("create_topics", fields))

    def grow(self, topic: str, partitions: int) -> None:
        """Raises the number of partitions."""
        wanted = [{"name": topic, "count": partitions, "assignments": None}]
        fields = {"topics": wanted, "timeout": 10_000, "validate_only": False}
        self._call(self._ask("create_partitions", fields))

    def delete_records(self, topic: str, partitions: int) -> None:
        """All that are there."""
        for index in range(partitions):
            self._call(self._delete_records(topic, index))

    def delete_topic(self, topic: str) -> None:
        topics = {"topics": [{"name": topic, "topic_id": None}], "timeout": 10_000}
        self._call(self._ask("delete_topics", topics))

    def topics(self) -> set[str]:
        return {name for name, _ in self.running.broker.partitions}

    def read(self, topic: str, partition: int) -> list[Record]:
        """Everything that is stored there."""
        records: list[Record] = []
        with PartitionLeader(self.address, topic, partition) as leader:
            end = leader.ask_offset(LATEST)
            while len(records) < end:
                for _, batch in split(leader.fetch(len(records))):
                    records += read_records(batch)
        return records

    def values(self, topic: str, partitions: int) -> list[bytes | None]:
        """The values of all records of the topic, partition by partition."""
        return [one.value for index in range(partitions) for one in self.read(topic, index)]

    async def _forget_producers(self, topic: str | None, index: int | None) -> None:
        broker = self.running.broker
        for key, partition in broker.partitions.items():
            if topic is None or key == (topic, index):
                partition.log.expire_producers(broker.clock.wall_ms() + _LONG_MS)

    async def _delete_records(self, topic: str, index: int) -> None:
        part = {"partition_index": index, "offset": -1}
        topics = [{"name": topic, "partitions": [part]}]
        answer = await self._ask("delete_records", {"topics": topics, "timeout": 10_000})
        assert answer.topics[0].partitions[0].error_code.value == 0

    async def _ask(self, api: str, fields: dict[str, Any]) -> Any:
        connection = await PipelinedConnection.open(*parse_addresses(self.address)[0], 10)
        try:
            return await connection.send(api, fields)
        finally:
            await connection.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)
