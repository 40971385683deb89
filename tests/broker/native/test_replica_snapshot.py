"""Pieces of producer state for a follower that starts from scratch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.native import replica_snapshot
from echoless.broker.native.replica_snapshot import PIECE_BYTES_MAX
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import (
    NEWEST_SNAPSHOT,
    ReplicaSnapshot,
    SnapshotPiece,
    read_replica_snapshot_answer,
)
from echoless.storage.file_system import StorageError

TOPIC_ID = uuid.UUID(int=4)
SUCCESS = {"error": {"code": 0, "name": "NONE", "message": "", "retriable": False}}
SNAPSHOT = bytes(range(100))
NOW_MS = 1_700_000_000_000


class FakeLog:
    """Keeps one snapshot, as of offset 7."""

    log_start_offset = 8

    def __init__(self) -> None:
        self.bytes_max = 0
        self.error: Exception | None = None

    def producer_snapshot_chunk(self, offset: int | None, position: int, bytes_max: int) -> Any:
        self.bytes_max = bytes_max
        if self.error is not None:
            raise self.error
        if offset not in {None, 7}:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = SNAPSHOT[position : position + bytes_max]
        return SimpleNamespace(offset=7, size=len(SNAPSHOT), position=position, data=data)


@dataclass(slots=True)
class FakePartitions:
    """The only partition, led here in epoch 3, and the way to find it."""

    log: FakeLog = field(default_factory=FakeLog)

    def find(self, topic_id: uuid.UUID, index: int) -> FakePartitions:
        if (topic_id, index) != (TOPIC_ID, 0):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self

    def check_leader(self, leader_epoch: int) -> None:
        if leader_epoch != 3:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class FakeServices:
    """The parts that the handler asks."""

    partitions: FakePartitions = field(default_factory=FakePartitions)
    failures: list[Exception] = field(default_factory=list)
    clock: Any = field(default_factory=lambda: SimpleNamespace(steady_ms=lambda: NOW_MS))

    def fail_storage(self, error: StorageError) -> None:
        self.failures.append(error)


def ask(services: FakeServices, **changes: Any) -> SnapshotPiece:
    fields = {
        "broker_id": 2,
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "leader_epoch": 3,
        "offset": NEWEST_SNAPSHOT,
        "position": 0,
        "bytes_max": 40,
        **changes,
    }
    message = ReplicaSnapshot(**fields)
    answer = replica_snapshot.handle(message, Peer(1, "127.0.0.1:1"), services)  # type: ignore[arg-type]
    return read_replica_snapshot_answer({**SUCCESS, **answer}, message)


def test_the_pieces_make_up_the_snapshot() -> None:
    """The first piece says which snapshot it is; asked for by that offset, the rest follow."""
    services = FakeServices()
    first = ask(services)
    assert first == SnapshotPiece(7, 100, 0, SNAPSHOT[:40], 8, NOW_MS)
    data = first.data
    while len(data) < first.size:
        data += ask(services, offset=first.offset, position=len(data)).data
    assert data == SNAPSHOT


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"offset": 6}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"topic_id": uuid.UUID(int=5)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_only_the_leader_that_was_meant_answers(changes: Any, code: ErrorCode) -> None:
    """A snapshot that has gone, another epoch, another topic of the same name: errors."""
    with pytest.raises(KafkaError) as caught:
        ask(FakeServices(), **changes)
    assert caught.value.code is code


def test_an_answer_stays_small() -> None:
    """However much the follower asks for."""
    services = FakeServices()
    ask(services, bytes_max=2**31 - 1)
    assert services.partitions.log.bytes_max == PIECE_BYTES_MAX


def test_a_broken_disk_takes_the_directory_offline() -> None:
    """The follower gets the error, and the broker is notified."""
    services = FakeServices()
    services.partitions.log.error = StorageError("/data", "broken")
    with pytest.raises(KafkaError) as caught:
        ask(services)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert services.failures == [services.partitions.log.error]
