"""Offsets that are committed in transactions, request by request: Kafka's answers, and Echoless's beside them.

The vectors are also what Echoless has to answer. They are compared with it as soon as it announces TxnOffsetCommit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.compatibility.offset_vectors import VECTORS
from tests.compatibility.offsets_in_transactions import (
    PARTITIONS,
    STORIES,
    TOPIC,
    serves_offsets_in_transactions,
    told,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic

pytestmark = pytest.mark.slow

DIFFERENCES: Final[Mapping[str, Mapping[int, str]]] = {
    "a_group_that_is_not_there": {
        # Kafka 4's code, and that of OffsetCommit: Kafka 3.9 makes the group, and then misses the member.
        1: "commit v3 inputs {0: 1}: {0: 'ILLEGAL_GENERATION'}",
    },
    "all_offsets_of_a_group": {
        # A reader of stable offsets is warned of one that has never been committed before, as when it names it.
        4: "fetch stable: {0: 1, 1: 'UNSTABLE_OFFSET_COMMIT', 2: 'UNSTABLE_OFFSET_COMMIT'}",
    },
}
"""Lines of Echoless that differ on purpose, by their place in the story."""


def test_every_story_has_its_vectors() -> None:
    assert VECTORS.keys() == STORIES.keys()
    for name, lines in DIFFERENCES.items():
        for place, line in lines.items():
            assert VECTORS[name][place] != line


@pytest.fixture(scope="module")
def kafka_address(apache_kafka: ApacheKafka) -> str:
    """Kafka, with the topic."""
    asyncio.run(prepare(apache_kafka.address))
    return apache_kafka.address


async def prepare(address: str) -> bool:
    """Creates the topic; returns whether the broker serves offsets in transactions."""
    connection = await RawConnection.open(address)
    await create_topic(connection, TOPIC, PARTITIONS)
    is_served = await serves_offsets_in_transactions(connection)
    await connection.close()
    return is_served


@pytest.mark.kafka
@pytest.mark.parametrize("name", STORIES)
async def test_kafka_answers_as_it_has(kafka_address: str, name: str) -> None:
    """The vectors are true."""
    connection = await RawConnection.open(kafka_address)
    assert await told(connection, name) == list(VECTORS[name])
    await connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one Echoless."""
    broker = Echoless(tmp_path_factory.mktemp("offsets"))
    broker.start()
    if not asyncio.run(prepare(broker.kafka_address)):
        broker.kill()
        pytest.skip("TxnOffsetCommit is not announced yet")
    yield broker.kafka_address
    broker.kill()


@pytest.mark.parametrize("name", STORIES)
async def test_echoless_answers_as_kafka(served: str, name: str) -> None:
    """Line by line, but for what differs on purpose."""
    differences = DIFFERENCES.get(name, {})
    expected = [differences.get(place, line) for place, line in enumerate(VECTORS[name])]
    connection = await RawConnection.open(served)
    assert await told(connection, name) == expected
    await connection.close()
