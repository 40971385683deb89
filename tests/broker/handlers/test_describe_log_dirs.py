"""DescribeLogDirs, over a real socket: what this broker holds, and how much of its volume is left."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.storage.file_system import StorageError
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

pytestmark = pytest.mark.usefixtures("ten_records")


async def log_dirs(
    kafka: RawConnection, topics: dict[str, tuple[int, ...]] | None, version: int = 4
) -> Any:
    """The response; None for all topics."""
    wanted = topics and tuple(
        nested("describe_log_dirs", version, "DescribableLogDirTopic")(topic=name, partitions=some)
        for name, some in topics.items()
    )
    asked = () if topics == {} else wanted
    return await kafka.call("describe_log_dirs", version, topics=asked)


def sizes(response: Any) -> dict[tuple[str, int], int]:
    """Bytes by topic and partition; the answer names each once."""
    (directory,) = response.results
    found = [
        ((topic.name, row.partition_index), row.partition_size)
        for topic in directory.topics
        for row in topic.partitions
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


async def test_all_replicas_are_listed_with_their_bytes(
    kafka: RawConnection, running: Running
) -> None:
    """Null asks for all; in every version."""
    await create_topic(kafka, "u", 2)
    held = running.broker.partitions
    for version in range(1, 5):
        response = await log_dirs(kafka, None, version)
        assert sizes(response) == {key: held[key].log.size_bytes for key in held}
        assert sizes(response)["t", 0] > sizes(response)["u", 1] == 0


async def test_the_volume_is_told(kafka: RawConnection, running: Running) -> None:
    """From version 4 on, with the directory's own name."""
    (row,) = (await log_dirs(kafka, {})).results
    usage = shutil.disk_usage(running.broker.config.data_dir)
    assert (row.error_code, row.log_dir) == (0, running.broker.config.data_dir)
    assert row.total_bytes == usage.total
    assert 0 < row.usable_bytes < usage.total
    assert row.topics == ()


async def test_what_is_not_here_is_left_out(kafka: RawConnection) -> None:
    """Unknown partitions and topics have no row; one that is named twice has one."""
    response = await log_dirs(kafka, {"t": (0, 0, 7), "missing": (0,)})
    assert list(sizes(response)) == [("t", 0)]


async def test_a_failed_disk_is_told(kafka: RawConnection, running: Running) -> None:
    """As in Kafka: the directory with KAFKA_STORAGE_ERROR, and nothing in it."""
    running.broker.services.fail_storage(StorageError("t-0", "gone"))
    response = await log_dirs(kafka, None)
    (row,) = response.results
    assert response.error_code == 0
    assert (row.error_code, row.topics, row.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, (), -1)
