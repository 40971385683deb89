"""Fetch against a plain model: kio encodes and decodes, and a few lines say which batches are returned."""

from __future__ import annotations

import asyncio
import datetime
import io
import itertools
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echoless.broker.handlers.fetch import API
from echoless.broker.records.fetch import BYTES_MAX
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import StoredBatch, plain_batch, split_log
from tests.support.raw_client import RawConnection, create_topic, message, nested, topic_id
from tests.support.raw_produce import PartitionData

INT32_MAX: Final = 2**31 - 1
SETTINGS: Final[dict[str, Any]] = {
    "log_segment_bytes": 100_000,
    "log_retention_ms": -1,
    "max_incremental_fetch_session_cache_slots": 0,
}
SIZES: Final = {
    0: [100] * 60 + [5000] * 3,
    1: [20_000, 70_000, 100, 90_000, 100, 100],
    2: [16_000] * 20,
}
"""The values produced to each partition of `t`, one batch each; partition 3 stays empty."""
PARTITIONS: Final = 4


class Part(NamedTuple):
    """All that the answers about one partition depend on."""

    segments: list[list[StoredBatch]]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    epoch_starts: list[int]
    """The first offset of each leader epoch, from 0 on."""

    def error(self, row: dict[str, int]) -> int:
        """The error because of which nothing is read."""
        epoch = len(self.epoch_starts) - 1
        if row["leader_epoch"] not in {-1, epoch}:
            return 74 if row["leader_epoch"] < epoch else 75
        return 1 if row["last_epoch"] > epoch else 0

    def diverging(self, row: dict[str, int]) -> tuple[int, int] | None:
        """The end of an epoch that the fetcher's log goes beyond."""
        epoch = row["last_epoch"]
        if epoch < 0:
            return None
        end = [*self.epoch_starts, self.log_end_offset][epoch + 1]
        return (epoch, end) if end < row["offset"] else None

    def read(self, offset: int, limit: int, end: int) -> bytes:
        """Whole batches of one segment: as many as fit into the limit, but at least one."""
        found = b""
        for segment in self.segments:
            for batch, next_offset in with_next_offsets(segment):
                if next_offset <= offset:
                    continue
                if next_offset > end or (found and len(found) + len(batch.data) > limit):
                    return found
                found += batch.data
            if found:
                return found
        return found


def with_next_offsets(batches: list[StoredBatch]) -> Iterator[tuple[StoredBatch, int]]:
    for batch in batches:
        (last_delta,) = struct.unpack_from(">i", batch.data, 23)
        yield batch, batch.base_offset + last_delta + 1


class Model:
    """The answers to requests, row by row."""

    def __init__(self, parts: dict[tuple[Any, int], Part]) -> None:
        self.parts = parts
        """By name and by id."""

    def answer(self, version: int, request: dict[str, Any]) -> bytes:
        """The body of the response, as kio writes it."""
        code, responses = 0, []
        if version >= 7 and request["session_epoch"] not in {0, -1}:
            code = 70
        else:
            self.left = min(request["max_bytes"], BYTES_MAX)
            self.size = 0
            for key, rows in request["topics"]:
                partitions = [self.row(version, request, key, row) for row in rows]
                responses.append({"topic": key, "topic_id": key, "partitions": partitions})
        return API.encode_response(
            version,
            {"throttle_time": 0, "error_code": code, "session_id": 0, "responses": responses},
        )

    def row(
        self, version: int, request: dict[str, Any], key: Any, row: dict[str, int]
    ) -> dict[str, Any]:
        row = dict(row)
        if version < 9:
            row["leader_epoch"] = -1
        if version < 12:
            row["last_epoch"] = -1
        part = self.parts.get((key, row["index"]))
        if part is None:
            is_known = any(key == known for known, _ in self.parts)
            return answered(row, 3 if is_known or isinstance(key, str) else 100)
        error, records = part.error(row), b""
        diverging = None if error else part.diverging(row)
        if not error and diverging is None:
            read = self.read(part, row, request["isolation_level"])
            error, records = (1, b"") if read is None else (0, read)
        self.size += len(records)
        fields = answered(row, error, None if error else part, records, diverging)
        if not error and request["isolation_level"] == 1:
            fields["aborted_transactions"] = []
        return fields

    def read(self, part: Part, row: dict[str, int], isolation_level: int) -> bytes | None:
        """The records; None if the offset is out of range."""
        offset, limit = row["offset"], min(row["bytes_max"], self.left - self.size)
        end = part.last_stable_offset if isolation_level == 1 else part.high_watermark
        if offset >= max(part.log_start_offset, end):
            return b"" if offset <= part.log_end_offset else None
        if offset < part.log_start_offset:
            return None
        if limit <= 0 and self.size:
            return b""
        records = part.read(offset, max(limit, 0), end)
        return records if not self.size or len(records) <= limit else b""


def answered(
    row: dict[str, int],
    error: int,
    part: Part | None = None,
    records: bytes = b"",
    diverging: tuple[int, int] | None = None,
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "partition_index": row["index"],
        "error_code": error,
        "high_watermark": -1 if part is None else part.high_watermark,
        "last_stable_offset": -1 if part is None else part.last_stable_offset,
        "log_start_offset": -1 if part is None else part.log_start_offset,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
    }
    if diverging is not None:
        fields["diverging_epoch"] = {"epoch": diverging[0], "end_offset": diverging[1]}
    return fields


# --- the broker's side ---


async def fill(kafka: RawConnection) -> None:
    for index, sizes in SIZES.items():
        for size in sizes:
            values = [bytes(size // 2)] * 2
            batch = plain_batch(values, producer_id=-1, producer_epoch=-1, base_sequence=-1)
            (answer,) = await kafka.produce(9, -1, [PartitionData("t", index, batch.encode())])
            assert answer.error == 0


async def delete_records(kafka: RawConnection, index: int, offset: int) -> None:
    row = nested("delete_records", 2, "DeleteRecordsPartition")(
        partition_index=index, offset=offset
    )
    topic = nested("delete_records", 2, "DeleteRecordsTopic")(name="t", partitions=(row,))
    response = await kafka.call(
        "delete_records", 2, topics=(topic,), timeout=datetime.timedelta(seconds=30)
    )
    assert response.topics[0].partitions[0].error_code == 0


def part_of(running: Running, directory: Path, index: int, epoch_starts: list[int]) -> Part:
    """The partition: its batches are read from its files."""
    partition = running.broker.partitions["t", index]
    files = sorted((directory / "data" / f"t-{index}").glob("*.log"))
    return Part(
        [split_log(file.read_bytes()) for file in files],
        partition.log.log_start_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_end_offset,
        epoch_starts,
    )


# --- requests ---

limits = st.sampled_from([-1, 0, 1, 230, 1000, 9000, 40_000, 64 * 1024, 150_000, INT32_MAX])
offsets = st.one_of(st.integers(-1, 130), st.sampled_from([0, 6, 20, 46, 126, 240, 252, 10**12]))
rows = st.fixed_dictionaries(
    {
        "index": st.sampled_from([0, 0, 1, 1, 2, 2, 3, 9]),
        "offset": offsets,
        "bytes_max": limits,
        "leader_epoch": st.sampled_from([-1, -1, -1, 1, 1, 0, 2]),
        "last_epoch": st.sampled_from([-1, -1, -1, 1, 0, 2]),
    }
)
requests = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([0, 0, 1]),
        "min_bytes": st.sampled_from([0, 1, 10**6]),
        "max_bytes": limits,
        "isolation_level": st.integers(0, 1),
        "session_epoch": st.sampled_from([-1, -1, 0, 1]),
        "topics": st.lists(
            st.tuples(st.sampled_from("tttu"), st.lists(rows, max_size=4)), max_size=3
        ),
        "rack_id": st.sampled_from(["", "rack"]),
    }
)


def with_keys(version: int, request: dict[str, Any], ids: dict[str, uuid.UUID]) -> dict[str, Any]:
    """The request with its topics named as the version does."""
    if version < 13:
        return request
    return {**request, "topics": [(ids[name], rows) for name, rows in request["topics"]]}


def encode(version: int, request: dict[str, Any], correlation_id: int) -> bytes:
    """One frame, by kio."""
    fields = {
        "max_wait": datetime.timedelta(milliseconds=request["max_wait_ms"]),
        "min_bytes": request["min_bytes"],
        "max_bytes": request["max_bytes"],
        "isolation_level": request["isolation_level"],
        "topics": tuple(topic_entity(version, *topic) for topic in request["topics"]),
    }
    if version >= 7:
        fields |= {"session_epoch": request["session_epoch"], "forgotten_topics_data": ()}
    if version >= 11:
        fields["rack_id"] = request["rack_id"]
    entity, out = message("fetch", version, "Request")(**fields), io.BytesIO()
    from kio.serial import entity_writer

    entity_writer(type(entity))(out, entity)
    header = struct.pack(">hhih", 1, version, correlation_id, 2) + b"me" + b"\0" * (version >= 12)
    frame = header + out.getvalue()
    return struct.pack(">i", len(frame)) + frame


def topic_entity(version: int, key: Any, rows: list[dict[str, int]]) -> Any:
    def partition(row: dict[str, int]) -> Any:
        fields = {
            "partition": row["index"],
            "fetch_offset": row["offset"],
            "partition_max_bytes": row["bytes_max"],
        }
        if version >= 9:
            fields["current_leader_epoch"] = row["leader_epoch"]
        if version >= 12:
            fields["last_fetched_epoch"] = row["last_epoch"]
        return nested("fetch", version, "FetchPartition")(**fields)

    name = {"topic_id": key} if version >= 13 else {"topic": key}
    return nested("fetch", version, "FetchTopic")(**name, partitions=tuple(map(partition, rows)))


def receive(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        assert more, "the broker closed the connection"
        found += more
    return found


def play(address: str, model: Model, ids: dict[str, uuid.UUID]) -> None:
    """Sends random pipelines of requests, cut anywhere, and compares each answer, byte by byte."""
    host, _, port = address.rpartition(":")

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), database=None)
    @given(
        asked=st.lists(st.tuples(st.integers(4, 17), requests), min_size=1, max_size=4),
        cuts=st.lists(st.floats(0, 1), max_size=4),
    )
    def compare(asked: list[tuple[int, dict[str, Any]]], cuts: list[float]) -> None:
        keyed = [(version, with_keys(version, request, ids)) for version, request in asked]
        data = b"".join(encode(*one, number) for number, one in enumerate(keyed))
        places = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for begin, end in itertools.pairwise(places):
                connection.sendall(data[begin:end])
            for number, (version, request) in enumerate(keyed):
                (size,) = struct.unpack(">i", receive(connection, 4))
                header = struct.pack(">i", number) + b"\0" * (version >= 12)
                expected = header + model.answer(version, request)
                assert receive(connection, size) == expected, (version, request)

    compare()


@pytest.mark.slow
async def test_any_requests_are_answered_as_a_plain_model_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any version, any mix of partitions, limits, offsets and epochs, any split of the bytes.

    Requests of three rows or more are answered with rows that the connection keeps.
    """
    monkeypatch.setattr("echoless.broker.handlers.fetch.ROWS_MIN", 3)
    async with in_process(tmp_path, **SETTINGS) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", PARTITIONS)
        await fill(kafka)
        await kafka.close()
    async with in_process(tmp_path, **SETTINGS) as running:
        kafka = await RawConnection.open(running.kafka_address)
        ends = [running.broker.partitions["t", n].log.log_end_offset for n in range(PARTITIONS)]
        await fill(kafka)  # in leader epoch 1
        await delete_records(kafka, 0, 5)
        partition = running.broker.partitions["t", 1]
        partition.high_watermark = 19  # the rest is not committed, nor will it be
        monkeypatch.setattr(partition, "advance_high_watermark", lambda: None)
        ids = {"t": await topic_id(kafka, "t"), "u": uuid.UUID(int=7)}
        parts: dict[tuple[Any, int], Part] = {}
        for index, end in enumerate(ends):
            epoch_starts = [0, end] if end else [0, 0]
            part = part_of(running, tmp_path, index, epoch_starts)
            parts["t", index] = parts[ids["t"], index] = part
        assert len(parts["t", 1].segments) > 2
        await kafka.close()
        await asyncio.to_thread(play, running.kafka_address, Model(parts), ids)
