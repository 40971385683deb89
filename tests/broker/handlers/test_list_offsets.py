"""ListOffsets: special timestamps by version, isolation, epochs and repeats (`administration.py` asks Kafka too)."""

from __future__ import annotations

import pytest

from echoless.broker.partitions.partition import Partition
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.raw_produce import PartitionData


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    """An empty topic `t` of one partition."""
    await create_topic(kafka, "t", 1)


async def offsets(
    kafka: RawConnection, version: int, timestamp: int, *partitions: int, epoch: int = -1
) -> list[tuple[int, str]]:
    """Partition and code of each row."""
    known = {"current_leader_epoch": epoch} if version >= 4 else {}
    row = nested("list_offsets", version, "ListOffsetsPartition")
    rows = tuple(row(partition_index=one, timestamp=timestamp, **known) for one in partitions)
    topic = nested("list_offsets", version, "ListOffsetsTopic")(name="t", partitions=rows)
    fields = {"isolation_level": 0} if version >= 2 else {}
    response = await kafka.call("list_offsets", version, replica_id=-1, topics=(topic,), **fields)
    return [(one.partition_index, one.error_code.name) for one in response.topics[0].partitions]


@pytest.mark.parametrize(("timestamp", "known_from"), [(-3, 7), (-4, 8), (-5, 9), (-6, 10)])
async def test_times_with_a_meaning_are_known_from_a_version_on(
    kafka: RawConnection, timestamp: int, known_from: int
) -> None:
    """An older version gets an error, as it asks for something it cannot know."""
    for version in range(1, 10):
        code = "none" if version >= known_from else "unsupported_version"
        assert await offsets(kafka, version, timestamp, 0) == [(0, code)]


async def test_the_latest_offset_of_read_committed_is_the_last_stable_one(
    kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record at or above it is found by its timestamp; version 1 knows no isolation level."""
    batches = [plain_batch([value]).encode() for value in (b"one", b"two")]
    for batch in batches:
        await kafka.produce(9, -1, [PartitionData("t", 0, batch)])
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda _partition: 1))

    async def offset(version: int, timestamp: int, **fields: int) -> int:
        row = nested("list_offsets", version, "ListOffsetsPartition")
        rows = (row(partition_index=0, timestamp=timestamp),)
        topic = nested("list_offsets", version, "ListOffsetsTopic")(name="t", partitions=rows)
        response = await kafka.call(
            "list_offsets", version, replica_id=-1, topics=(topic,), **fields
        )
        found: int = response.topics[0].partitions[0].offset
        return found

    assert await offset(1, -1) == 2
    assert [await offset(3, -1, isolation_level=level) for level in (0, 1)] == [2, 1]
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda _partition: 0))
    assert [await offset(3, 0, isolation_level=level) for level in (0, 1)] == [0, -1]


async def test_a_partition_that_is_listed_twice_has_no_offset(kafka: RawConnection) -> None:
    """Which of the two was meant? The others are answered."""
    twice, once = "invalid_request", "unknown_topic_or_partition"
    assert await offsets(kafka, 7, -1, 0, 5, 0) == [(0, twice), (5, once), (0, twice)]


async def test_an_epoch_below_any_is_fenced(kafka: RawConnection) -> None:
    """Only -1 means any."""
    for epoch, code in ((-1, "none"), (0, "none"), (1, "unknown_leader_epoch")):
        assert await offsets(kafka, 7, -1, 0, epoch=epoch) == [(0, code)]
    for epoch in (-2, -(2**31)):
        assert await offsets(kafka, 7, -1, 0, epoch=epoch) == [(0, "fenced_leader_epoch")]
