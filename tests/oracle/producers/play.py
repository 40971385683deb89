"""Plays half a history to one broker, pipelined on one connection, and records the answers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.oracle.producers.history import (
    UNKNOWN_PARTITION,
    UNKNOWN_TOPIC,
    Describe,
    InitProducerId,
    Produce,
    Step,
)
from tests.oracle.side import Side
from tests.support.raw_client import (
    ConnectionEndedError,
    ProducerRow,
    RawConnection,
    describe_producers_request,
    message,
    producer_rows,
)
from tests.support.raw_produce import PartitionAnswer, PartitionData

_NO_TOPIC = "no-such-topic"
_NO_PARTITION = 1_000_000
_TOPIC_IDS_SINCE = 13
_KAFKA_VERSION_MAX = 11
_ECHOLESS_VERSION_MAX = 13


class Place(NamedTuple):
    """The real partition for a slot."""

    topic: str
    partition: int


class Row(NamedTuple):
    """One partition's row in a produce response."""

    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int


@dataclass(slots=True)
class Answer:
    """One broker's answer to one step; only what the step's kind has is set."""

    rows: dict[int, Row] = field(default_factory=dict)
    """Rows by slot."""
    is_open: bool = True
    """False: the broker closed the connection (after acks 0)."""
    producers: list[ProducerRow] = field(default_factory=list)
    error: int = 0
    producer_epoch: int = -1

    def __str__(self) -> str:
        shown = [f"slot {slot}: {tuple(row)}" for slot, row in sorted(self.rows.items())]
        shown += [f"producer {tuple(row)}" for row in self.producers]
        shown += ["connection closed"] * (not self.is_open)
        return "; ".join(shown) or f"error {self.error}, epoch {self.producer_epoch}"


class Player:
    """Plays to one side, on one connection; it takes another when the broker closes it."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._connection: RawConnection | None = None

    async def play(self, steps: Sequence[Step], places: Sequence[Place]) -> list[Answer]:
        """The answers, step by step. All are sent before the first is read, except around acks 0."""
        answers: list[Answer] = []
        waiting: list[Step] = []
        for step in steps:
            if isinstance(step, Produce) and step.acks == 0:
                answers += [await self._receive(waited, places) for waited in waiting]
                waiting.clear()
                answers.append(await self._play_unanswered(step, places))
            else:
                await self._send(step, places)
                waiting.append(step)
        return answers + [await self._receive(waited, places) for waited in waiting]

    def release(self) -> None:
        """Gives the connection back, if there is one."""
        if self._connection is not None:
            self._side.give_back(self._connection)
        self._connection = None

    async def _borrow(self) -> RawConnection:
        if self._connection is None:
            self._connection = await self._side.borrow()
        return self._connection

    async def _send(self, step: Step, places: Sequence[Place]) -> None:
        connection = await self._borrow()
        if isinstance(step, Produce):
            version = self._version(step)
            connection.send_produce(version, step.acks, self._rows(step, version, places))
        elif isinstance(step, Describe):
            place = places[step.slot]
            connection.send_request(describe_producers_request(place.topic, [place.partition]))
        else:
            connection.send_request(_init_request(step))

    async def _receive(self, step: Step, places: Sequence[Place]) -> Answer:
        connection = await self._borrow()
        if isinstance(step, Produce):
            rows = await connection.receive_produce(self._version(step))
            return Answer(rows={self._slot(row, places): Row(*row[2:]) for row in rows})
        if isinstance(step, Describe):
            response = await connection.receive_response("describe_producers", 0)
            found = response.topics[0].partitions[0]
            return Answer(error=int(found.error_code), producers=producer_rows(found))
        response = await connection.receive_response("init_producer_id", step.version)
        return Answer(error=int(response.error_code), producer_epoch=response.producer_epoch)

    async def _play_unanswered(self, step: Produce, places: Sequence[Place]) -> Answer:
        """Sends, then asks for the API versions: the answer, or the end, comes after the append."""
        connection = await self._borrow()
        await self._send(step, places)
        connection.send_request(message("api_versions", 0, "Request")())
        try:
            await connection.receive_response("api_versions", 0)
        except ConnectionEndedError:
            await connection.close()
            self._connection = None
            return Answer(is_open=False)
        return Answer()

    def _version(self, step: Produce) -> int:
        return min(
            step.version, _KAFKA_VERSION_MAX if self._side.is_kafka else _ECHOLESS_VERSION_MAX
        )

    def _rows(self, step: Produce, version: int, places: Sequence[Place]) -> list[PartitionData]:
        stray = {
            UNKNOWN_TOPIC: Place(_NO_TOPIC, 0),
            UNKNOWN_PARTITION: Place(places[0].topic, _NO_PARTITION),
        }
        rows: list[PartitionData] = []
        for part in step.parts:
            place = places[part.slot] if part.slot >= 0 else stray[part.slot]
            topic = (
                self._side.topic_ids[place.topic] if version >= _TOPIC_IDS_SINCE else place.topic
            )
            rows.append(PartitionData(topic, place.partition, part.records))
        return rows

    def _slot(self, row: PartitionAnswer, places: Sequence[Place]) -> int:
        if row.topic == _NO_TOPIC:
            return UNKNOWN_TOPIC
        if row.partition == _NO_PARTITION:
            return UNKNOWN_PARTITION
        names = self._side.topic_ids
        return next(
            slot
            for slot, place in enumerate(places)
            if row.partition == place.partition and row.topic in (place.topic, names[place.topic])
        )


def _init_request(step: InitProducerId) -> object:
    fields: dict[str, object] = {
        "transactional_id": step.transactional_id,
        "transaction_timeout": datetime.timedelta(seconds=1),
    }
    if step.version >= 3:
        fields |= {"producer_id": step.producer_id, "producer_epoch": step.producer_epoch}
    return message("init_producer_id", step.version, "Request")(**fields)
