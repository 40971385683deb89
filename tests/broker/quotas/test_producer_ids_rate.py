"""The quota of new producer ids: counted per partition, answered with a pause, never with an error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

BURST = 11
"""The most that a rate of one per second allows at once."""


@pytest.fixture
async def clock(running: Running, kafka: RawConnection) -> Clock:
    await create_topic(kafka, "t", 2)
    await alter(kafka, {"producer_ids_rate": 1.0}, user="ANONYMOUS")
    clock = Clock()
    running.broker.quotas.clock = clock
    return clock


def batch(producer_id: int, sequence: int = 0) -> bytes:
    return plain_batch(
        [b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    ).encode()


async def produced(kafka: RawConnection, producer_id: int, *sequences: int) -> int:
    """The milliseconds of pause after the last of these, in partition 0."""
    answer: Any = None
    for sequence in sequences or (0,):
        kafka.send_produce(9, -1, [PartitionData("t", 0, batch(producer_id, sequence))])
        answer = await kafka.receive_response("produce", 9)
        assert int(answer.responses[0].partition_responses[0].error_code) == 0
    return round(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.slow
async def test_a_client_that_makes_up_ids_pauses(kafka: RawConnection, clock: Clock) -> None:
    """Its batch is stored; known producers go on; time pays the debt."""
    for producer_id in range(BURST):
        assert await produced(kafka, producer_id) == 0
    assert await produced(kafka, 5, 1, 2, 3) == 0, "known"
    assert await produced(kafka, 100) == 1000
    assert await produced(kafka, 100, 1) == 0, "known by now"
    clock.now += 2
    assert await produced(kafka, 101) == 0


async def test_each_partition_counts(kafka: RawConnection, clock: Clock) -> None:
    """An id costs each partition that it is new to an entry; a batch without an id costs none."""
    assert clock.now
    for producer_id in range(BURST // 2 + 1):
        rows = [PartitionData("t", index, batch(producer_id)) for index in (0, 1)]
        rows = rows if producer_id else rows[:1]
        assert [one.error for one in await kafka.produce(9, -1, rows)] == [0] * len(rows)
    plain = plain_batch([b"v"]).encode()
    assert (await kafka.produce(9, -1, [PartitionData("t", 0, plain)]))[0].error == 0
    assert await produced(kafka, 100) == 1000


async def test_refused_batches_and_repeats_do_not_count(kafka: RawConnection, clock: Clock) -> None:
    """Only what a partition has to remember."""
    assert clock.now
    assert await produced(kafka, 1) == 0
    for _ in range(2 * BURST):
        (refused,) = await kafka.produce(9, -1, [PartitionData("t", 0, batch(2, 7))])
        assert refused.error != 0
        assert await produced(kafka, 1) == 0


async def test_the_native_port(running: Running, kafka: RawConnection, clock: Clock) -> None:
    """The same count."""
    assert clock.now
    for producer_id in range(BURST):
        assert await produced(kafka, producer_id) == 0
    native = await NativeConnection.open(running.native_address)
    answer = await native.call("produce", topic="t", partition=0, batch=batch(100))
    assert (answer["error"]["code"], answer["throttle_time_ms"]) == (0, 1000)
    await native.close()
