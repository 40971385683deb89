"""One broker's side of a history: its connections, and its producer ids under their labels."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.oracle.messages import Plain, plain, request_of
from tests.oracle.side import Side
from tests.oracle.transactions.answers import codes_of
from tests.oracle.transactions.step import (
    CLOSED,
    GROUPS,
    IDS,
    NOBODY,
    PARTITIONS,
    READ,
    TIME_OUT,
    TOPIC,
    Request,
)
from tests.support.raw_batches import CONTROL, TRANSACTIONAL, StoredBatch, plain_batch, split_log
from tests.support.raw_client import ConnectionEndedError, RawConnection, next_offset
from tests.support.raw_produce import PartitionData, Reader, unsigned_varint

_PATIENCE_S: Final = 12.0
_PAUSE_S: Final = 0.01
_AGAIN: Final = frozenset({14, 15, 16})
"""Codes that say "ask again"."""
_PRODUCE_AGAIN: Final = frozenset({6, 19})
"""The broker was not heard of for a moment, or has not asked the coordinator yet."""
_TIME_MS: Final = round(time.time() * 1000) - 3_600_000
"""The time of all records: so long before those of markers that these begin segments (`SEGMENT_MS`)."""
SEGMENT_MS: Final = 60_000
_FETCH_BYTES: Final = 2**20
_DESCRIBE: Final = 65
_NO_ID: Final = -1
_NAMED: Final = frozenset(
    {"producer_id", "transactional_id", "topic", "name", "group_id", "coordinator_key", "key"}
)
_LISTS_OF_NAMES: Final = frozenset({"coordinator_keys", "transactional_ids"})
_PRODUCER_IDS: Final = frozenset({"producer_id", "v3_and_below_producer_id", "producer_id_filters"})
_NAMES: Final = frozenset(
    {
        *("transactional_id", "v3_and_below_transactional_id", "group_id", "topic", "name", "key"),
    }
)


class TransactionAsker:
    """Asks one broker, one request after the other."""

    def __init__(self, side: Side, prefix: str) -> None:
        self._side = side
        self._prefix = prefix
        self._ids: dict[str, int] = {NOBODY: 2**40 + 1}
        self._labels: dict[int, str] = {self._ids[NOBODY]: NOBODY}
        self._connections: list[RawConnection] = []
        self._first = 0

    def open(self, side: Side, first: int) -> None:
        """`first`: the number of the oldest connection there may be."""
        self._side, self._first = side, first

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections.clear()

    async def _connection(self, number: int) -> RawConnection:
        """The connection with that number, once all before it are open."""
        place = max(number - self._first, 0)
        while len(self._connections) <= place:
            connection = await self._side.connect()
            await connection.call("api_versions", 0)
            self._connections.append(connection)
        return self._connections[place]

    async def ask(self, step: Request) -> Plain:
        """Takes a step; returns the answer as plain values."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                answer = await self._ask(step)
            except ConnectionEndedError:
                del self._connections[max(step.connection - self._first, 0) :]
                return CLOSED
            codes = codes_of(answer)
            again = _PRODUCE_AGAIN if step.api == "produce" else _AGAIN
            if not codes & again or time.monotonic() > end:
                return answer
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, step: Request) -> Plain:
        connection = await self._connection(step.connection)
        match step.api:
            case "produce":
                return await self._produce(connection, step)
            case "fetch":
                return await self._fetch(connection, step.version, **step.values)
            case _ if step.api == READ:
                return await self._read(connection)
            case _ if step.api == TIME_OUT:
                return await self._time_out(step.values["names"])
        connection.send_request(request_of(step.api, step.version, self._translated(step.values)))
        response = await connection.receive_response(step.api, step.version)
        if step.api in {"init_producer_id", "end_txn"}:
            self._learn(int(getattr(response, "producer_id", _NO_ID)), step)
        return self._plain(response, step.api)

    # --- names

    def _translated(self, values: Plain, key: str = "") -> Plain:
        """The values with this broker's ids and names."""
        if isinstance(values, Mapping):
            return {name: self._translated(value, name) for name, value in values.items()}
        if isinstance(values, list):
            return [self._translated(value, key) for value in values]
        if key in _PRODUCER_IDS:
            return self._id_of(values)
        if isinstance(values, str) and key in _NAMES | _LISTS_OF_NAMES:
            return self._name(values)
        return values

    def _name(self, name: str) -> str:
        return name if not name or name.startswith("__") else self._prefix + name

    def _id_of(self, label: str | int) -> int:
        return label if isinstance(label, int) else self._ids.get(label, self._ids[NOBODY])

    def _learn(self, producer_id: int, step: Request) -> None:
        """Names a new producer id after the step that it was issued in."""
        if producer_id != _NO_ID and producer_id not in self._labels:
            label = f"p{step.number}"
            self._ids[label], self._labels[producer_id] = producer_id, label

    def _shown(self, value: Any) -> Plain:
        if isinstance(value, str):
            return value.removeprefix(self._prefix)
        if isinstance(value, int):
            return self._labels.get(value, value if value <= 0 else "?")
        return value

    def _plain(self, response: Any, api: str = "") -> Plain:
        found = plain(response, self._shown, _NAMED)
        if api == "list_transactions":  # those of other histories are left out
            own = [one for one in found["transaction_states"] if one["transactional_id"] in IDS]
            found["transaction_states"] = own
        elif api == "list_offsets":  # the times of markers are those of the brokers' clocks
            for topic in found["topics"]:
                for row in topic["partitions"]:
                    row["timestamp"] = min(row["timestamp"] - _TIME_MS, 1)
                    row.pop("leader_epoch", None)
        return found

    # --- records

    async def _produce(self, connection: RawConnection, step: Request) -> Plain:
        values = step.values
        rows = []
        for row in values["rows"]:
            batch = plain_batch(
                [f"{values['text']}.{index}".encode() for index in range(row["count"])],
                producer_id=self._id_of(values["producer_id"]),
                producer_epoch=values["producer_epoch"],
                base_sequence=row["sequence"],
                timestamp=_TIME_MS,
            )
            attributes = TRANSACTIONAL if values["is_transactional"] else 0
            encoded = replace(batch, attributes=attributes).encode()
            rows.append(PartitionData(self._name(row["topic"]), row["partition"], encoded))
        name = values["transactional_id"]
        answers = await connection.produce(
            step.version, -1, rows, name if name is None else self._name(name)
        )
        return [
            {"partition": one.partition, "error_code": one.error, "base_offset": one.base_offset}
            for one in sorted(answers, key=lambda one: (one.topic, one.partition))
        ]

    async def _fetch(
        self,
        connection: RawConnection,
        version: int,
        *,
        partition: int,
        offset: int,
        isolation: int,
        bytes_max: int = _FETCH_BYTES,
    ) -> Plain:
        row = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": bytes_max,
        }
        values = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": bytes_max,
            "isolation_level": isolation,
            "topics": [{"topic": self._name(TOPIC), "partitions": [row]}],
            "forgotten_topics_data": [],
        }
        connection.send_request(request_of("fetch", version, values))
        response = await connection.receive_response("fetch", version)
        if not response.responses:
            return {"error_code": int(response.error_code)}
        (found,) = response.responses[0].partitions
        batches = split_log(found.records or b"")
        end = next_offset(batches[-1]) if batches else 0
        aborted = found.aborted_transactions
        return {
            "error_code": int(found.error_code),
            "high_watermark": int(found.high_watermark),
            "last_stable_offset": int(found.last_stable_offset),
            "end": end,
            "batches": [self._batch(one) for one in batches],
            "aborted": aborted is not None
            and sorted(
                (self._shown(int(one.producer_id)), int(one.first_offset))
                for one in aborted
                if one.first_offset < end  # either may name more, by its sparse index
            ),
        }

    async def _fetch_all(self, connection: RawConnection, partition: int, isolation: int) -> Plain:
        """Reads as a reader does, to the end: batches and aborted ranges."""
        found: dict[str, Plain] = {"batches": [], "aborted": []}
        offset = 0
        while True:
            answer = await self._fetch(
                connection, 11, partition=partition, offset=offset, isolation=isolation
            )
            found["batches"] += answer["batches"]
            aborted = answer["aborted"] or []
            found["aborted"] = sorted({*found["aborted"], *aborted})
            if not answer["batches"]:
                return {**answer, **found}
            offset = answer["end"]

    def _batch(self, batch: StoredBatch) -> Plain:
        producer_id, epoch, sequence = struct.unpack_from(">qhi", batch.data, 43)
        if batch.attributes & CONTROL:
            (kind,) = struct.unpack_from(">h", batch.data, 68)
            content = ("abort", "commit")[kind]
        else:
            content = batch.data[61:].hex()
        is_transactional = bool(batch.attributes & TRANSACTIONAL)
        return (
            batch.base_offset,
            self._shown(producer_id),
            epoch,
            sequence,
            is_transactional,
            content,
        )

    async def _read(self, connection: RawConnection) -> Plain:
        """The whole of each partition, and the offsets of each group, as readers of both kinds get them."""
        found: dict[str, Plain] = {}
        for isolation in (0, 1):
            for partition in range(PARTITIONS):
                key = f"partition {partition}, isolation {isolation}"
                found[key] = await self._fetch_all(connection, partition, isolation)
            for group in GROUPS:
                found[f"group {group}, stable {isolation}"] = await self._offsets(
                    connection, group, is_stable=bool(isolation)
                )
        found["producers"] = await self._producers(connection)
        return found

    async def _offsets(self, connection: RawConnection, group: str, *, is_stable: bool) -> Plain:
        rows = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]
        values = {"group_id": group, "topics": rows, "require_stable": is_stable}
        connection.send_request(request_of("offset_fetch", 7, self._translated(values)))
        return self._plain(await connection.receive_response("offset_fetch", 7))

    async def _producers(self, connection: RawConnection) -> Plain:
        rows = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]
        values = self._translated({"topics": rows})
        connection.send_request(request_of("describe_producers", 0, values))
        response = await connection.receive_response("describe_producers", 0)
        return sorted(
            (
                int(row.partition_index),
                int(row.error_code),
                sorted(
                    (
                        str(self._shown(int(one.producer_id))),
                        int(one.producer_epoch),
                        int(one.last_sequence),
                        int(one.current_txn_start_offset),
                    )
                    for one in row.active_producers
                ),
            )
            for row in response.topics[0].partitions
        )

    # --- transactional ids

    async def settled(self) -> dict[str, Plain]:
        """The states of all ids, once no transaction of theirs is being ended."""
        connection = await self._side.borrow()
        end = time.monotonic() + _PATIENCE_S
        while True:
            found = await self._describe(connection)
            is_settled = not any(
                row["state"].startswith("Prepare") or row["error_code"] in _AGAIN
                for row in found.values()
            )
            if is_settled or time.monotonic() > end:
                self._side.give_back(connection)
                return found
            await asyncio.sleep(_PAUSE_S)

    async def _time_out(self, names: list[str]) -> Plain:
        """Returns the states once no transaction of these ids is open."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            found = await self.settled()
            if all(found[name]["state"] != "Ongoing" for name in names) or time.monotonic() > end:
                return found
            await asyncio.sleep(_PAUSE_S)

    async def _describe(self, connection: RawConnection) -> dict[str, Plain]:
        """The rows of DescribeTransactions; kio cannot read those of ids whose start is -1."""
        names = [self._name(name).encode() for name in IDS]
        body = bytes([len(names) + 1])
        body += b"".join(unsigned_varint(len(name) + 1) + name for name in names) + b"\0"
        connection.send(_DESCRIBE, 0, body, flexible=True)
        reader = Reader((await connection.receive())[1:], flexible=True)
        reader.unpack(">i")
        rows = [self._described(reader) for _ in range(reader.array_length())]
        return dict(sorted(rows))

    def _described(self, reader: Reader) -> tuple[str, Plain]:
        (error_code,) = reader.unpack(">h")
        name, state = reader.string(), reader.string()
        timeout_ms, start_ms, producer_id, epoch = reader.unpack(">iqqh")
        partitions = []
        for _ in range(reader.array_length()):
            topic = self._shown(reader.string())
            partitions += [
                f"{topic}-{reader.unpack('>i')[0]}" for _ in range(reader.array_length())
            ]
            reader.tags()
        reader.tags()
        return self._shown(name), {
            "error_code": error_code,
            "state": state,
            "timeout": timeout_ms,
            "has_start": state == "Empty" or start_ms >= 0,
            "producer": self._shown(producer_id),
            "epoch": epoch,
            "partitions": sorted(partitions),
        }
