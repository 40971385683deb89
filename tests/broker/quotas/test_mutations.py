"""The quota of partitions that are created and deleted: 89, or a pause for clients that do not know it."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

TIMEOUT = datetime.timedelta(seconds=10)
EXCEEDED = 89


@pytest.fixture
async def clock(running: Running, kafka: RawConnection) -> Clock:
    """One partition per second, and eleven at once."""
    await alter(kafka, {"controller_mutation_rate": 1.0}, user="ANONYMOUS")
    clock = Clock()
    running.broker.quotas.clock = clock
    return clock


async def created(
    kafka: RawConnection, version: int, *, validate_only: bool = False, **topics: int
) -> Any:
    """The codes, and the milliseconds of pause."""
    row = nested("create_topics", version, "CreatableTopic")
    answer = await kafka.call(
        "create_topics",
        version,
        topics=tuple(
            row(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=(),
                configs=(),
            )
            for name, partitions in topics.items()
        ),
        timeout=TIMEOUT,
        validate_only=validate_only,
    )
    return [int(one.error_code) for one in answer.topics], in_ms(answer)


def in_ms(answer: Any) -> int:
    return round(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("version", [6, 7])
async def test_what_is_beyond_is_refused(kafka: RawConnection, clock: Clock, version: int) -> None:
    """Vector 62: twelve partitions are one too many, and made; then a second has to pass."""
    assert await created(kafka, version, a=12, b=1) == ([0, EXCEEDED], 1000)
    clock.now += 1
    assert await created(kafka, version, b=1) == ([0], 0)


async def test_in_two_requests(kafka: RawConnection, clock: Clock) -> None:
    """The first is made, and its client does not pause; the second is refused."""
    assert clock.now
    assert await created(kafka, 7, a=12) == ([0], 0)
    assert await created(kafka, 7, b=1) == ([EXCEEDED], 1000)


async def test_an_old_client_pauses(kafka: RawConnection, clock: Clock) -> None:
    """Vector 62: everything is made, the debt is its pause."""
    assert clock.now
    assert await created(kafka, 5, a=12, b=1) == ([0, 0], 2000)


async def test_what_is_not_made_is_not_counted(kafka: RawConnection, clock: Clock) -> None:
    """Topics that exist, that cannot be, and a request that only asks."""
    assert clock.now
    assert await created(kafka, 7, validate_only=True, a=100) == ([0], 0)
    assert await created(kafka, 7, a=12) == ([0], 0)
    clock.now += 1.5
    assert await created(kafka, 7, a=12) == ([36], 0)
    assert await created(kafka, 7, **{"not a name": 12}) == ([17], 0)
    assert await created(kafka, 7, b=1) == ([0], 0)


@pytest.mark.slow
async def test_adding_partitions_and_deleting_topics(kafka: RawConnection, clock: Clock) -> None:
    """Both are counted by partitions: those added, and those that the topic has."""
    assert await created(kafka, 7, a=8) == ([0], 0)
    extended = await kafka.call(
        "create_partitions",
        3,
        topics=(
            nested("create_partitions", 3, "CreatePartitionsTopic")(
                name="a", count=12, assignments=None
            ),
        ),
        timeout=TIMEOUT,
        validate_only=False,
    )
    assert ([int(one.error_code) for one in extended.results], in_ms(extended)) == ([0], 0)
    delete = nested("delete_topics", 6, "DeleteTopicState")(name="a", topic_id=None)
    deleted = await kafka.call("delete_topics", 6, topics=(delete,), timeout=TIMEOUT)
    assert ([int(one.error_code) for one in deleted.responses], in_ms(deleted)) == (
        [EXCEEDED],
        1000,
    )
    clock.now += 1
    deleted = await kafka.call("delete_topics", 6, topics=(delete,), timeout=TIMEOUT)
    assert int(deleted.responses[0].error_code) == 0
    assert await created(kafka, 7, b=1) == ([EXCEEDED], 12_000)
