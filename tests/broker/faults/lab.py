"""A broker with one topic, a producer that sends single batches, and rules added in one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echoless.broker.decisions.events import FaultHit
from echoless.broker.faults.reading_rules import read_rules
from tests.support.in_process import Running
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, fetch_log
from tests.support.raw_produce import PartitionAnswer, PartitionData

TOPIC = "orders"
VERSION = 9
PRODUCER_ID = 1_000_000


class Lab:
    """One broker in this process."""

    def __init__(self, running: Running) -> None:
        self.broker = running.broker
        self.kafka_address = running.kafka_address
        self.native_address = running.native_address

    def add(self, action: Any, match: dict[str, Any] | None = None, **schedule: Any) -> str:
        """Adds a rule; its name."""
        (rule,) = self.broker.faults.add(
            read_rules({"match": match or {}, "schedule": schedule, "action": action})
        )
        return str(rule["name"])

    def join(self) -> None:
        """Has the broker take itself for a member of a cluster from now on: it may have links."""
        self.broker.faults._config = replace(
            self.broker.config, coordinator="zookeeper://127.0.0.1:1"
        )

    def counts(self, name: str) -> tuple[int, int]:
        """Matches and hits of a rule."""
        (rule,) = [one for one in self.broker.faults.documents() if one["name"] == name]
        return rule["seen"], rule["hits"]

    def hits(self) -> list[FaultHit]:
        """All events, oldest first."""
        return self.broker.decisions.latest_faults(1000)[::-1]

    def verdicts(self) -> list[tuple[int, str]]:
        """Base sequence and outcome of each batch that reached the decision, oldest first."""
        outcomes = self.broker.decisions.latest(1000)[::-1]
        return [(outcome.header.base_sequence, outcome.outcome) for outcome in outcomes]

    async def connect(self) -> RawConnection:
        return await RawConnection.open(self.kafka_address)

    async def create_topic(self, partitions: int = 1) -> None:
        connection = await self.connect()
        await create_topic(connection, TOPIC, partitions)
        await connection.close()

    async def stored(self, partition: int = 0) -> int:
        """Batches in the log."""
        connection = await self.connect()
        batches = await fetch_log(connection, TOPIC, partition)
        await connection.close()
        return len(batches)


def batch(
    sequence: int, partition: int = 0, producer_id: int = PRODUCER_ID, epoch: int = 0
) -> PartitionData:
    """One record of the lab's producer."""
    data = plain_batch(
        [b"x"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    ).encode()
    return PartitionData(TOPIC, partition, data)


async def produce(connection: RawConnection, *rows: PartitionData, acks: int = -1) -> list[int]:
    """The error codes, in the order of the answer."""
    answers = await answered(connection, *rows, acks=acks)
    return [answer.error for answer in answers]


async def answered(
    connection: RawConnection, *rows: PartitionData, acks: int = -1
) -> list[PartitionAnswer]:
    return await connection.produce(VERSION, acks, rows)


def send(connection: RawConnection, *rows: PartitionData, acks: int = -1) -> None:
    """Only sends."""
    connection.send_produce(VERSION, acks, rows)
