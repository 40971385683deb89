"""Batches with the sequences of stored ones: repeats are acknowledged, other records never."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record, build_batch
from echoless.protocol.same_records import have_same_records
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection


@pytest.fixture
async def topic(native: NativeConnection) -> str:
    """A topic with one partition."""
    await native.call("create_topic", topic="orders", partitions=1)
    return "orders"


RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 1000),
        st.none() | st.binary(max_size=3),
        st.none() | st.binary(max_size=3),
        st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=4,
)


@given(RECORDS, RECORDS, st.sampled_from(Codec), st.sampled_from(Codec), st.integers(0, 10**6))
def test_records_are_the_same_whatever_their_times_and_codec(
    one: list[Record], other: list[Record], codec: Codec, other_codec: Codec, later_ms: int
) -> None:
    """Keys, values and headers decide, and nothing else."""
    again = [record._replace(timestamp=record.timestamp + later_ms) for record in one]
    batch = build_batch(one, codec=codec)
    assert have_same_records(batch, build_batch(again, codec=other_codec))
    are_equal = [record[2:] for record in one] == [record[2:] for record in other]
    assert have_same_records(batch, build_batch(other, codec=other_codec)) is are_equal


def test_what_cannot_be_read_is_not_the_same() -> None:
    """A batch cut off, and one with nonsense in its records."""
    batch = build_batch([Record(0, 0, None, b"value")])
    assert not have_same_records(batch, batch[:-1])
    assert not have_same_records(batch, batch[:-3] + b"\x99" * 3)


async def send(
    native: NativeConnection, topic: str, sequence: int, *values: str, **fields: object
) -> tuple[int, int]:
    """Produces records; the error code, and the base offset."""
    answer = await native.call(
        "produce",
        topic=topic,
        partition=0,
        producer_id=7,
        producer_epoch=fields.pop("epoch", 0),
        base_sequence=sequence,
        records=[{"value": value, **fields} for value in values],
    )
    return answer["error"]["code"], answer["base_offset"]


@pytest.mark.parametrize("count", [2, 101])
async def test_another_producer_with_the_same_id_is_not_told_that_its_records_are_stored(
    native: NativeConnection,
    running: Running,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    count: int,
) -> None:
    """As after a coordinator's data was restored; with a new epoch its records are stored. Many take a thread."""
    assert await send(native, topic, 0, *("a" * count)) == (0, 0)
    assert await send(native, topic, count, "c") == (0, count)
    with caplog.at_level(logging.WARNING):
        code, offset = await send(native, topic, 0, *("x" * count))
    assert (code, offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert "with other records" in caplog.text
    (outcome,) = running.broker.decisions.latest(1)
    assert (outcome.outcome, outcome.error_code) == ("reject", ErrorCode.UNKNOWN_PRODUCER_ID)
    metrics = running.broker.metrics
    assert (metrics.reused_sequences_total, metrics.divergent_duplicates_total) == (1, 0)
    assert await send(native, topic, 0, *("x" * count), epoch=1) == (0, count + 1)


@pytest.mark.parametrize("count", [2, 101])
async def test_a_repeat_with_new_times_is_acknowledged(
    native: NativeConnection, running: Running, topic: str, count: int
) -> None:
    """A program that runs again sends the same records later."""
    assert await send(native, topic, 0, *("a" * count), timestamp=1000) == (0, 0)
    assert await send(native, topic, 0, *("a" * count), timestamp=2000) == (0, 0)
    metrics = running.broker.metrics
    assert (metrics.duplicates_total, metrics.divergent_duplicates_total) == (1, 1)
    assert metrics.reused_sequences_total == 0
